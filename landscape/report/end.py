"""How a training ended: at a minimum, at a saddle or still falling, how flat, and which of several recipes flatter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..comparison.answers import INCONCLUSIVE, NO_INTERVAL, Answer
from ..comparison.comparison import Comparison
from ..comparison.facts import what_shows
from ..comparison.statistics import Estimate
from ..curvature.data import CurvatureData
from ..drawing.texts import unit_of
from ..grid.data import LandscapeData
from ..record.checks import PointStatus
from .measuring import Findings
from .statement import BY_RESIDUAL, Evidence, Found, Number, Statement, Unknown, percent, plus_minus, too_few

SHARPNESS, AROUND, ALONG, RECIPES = "sharpness", "around", "along", "recipes"
SHARE = 0.01
"""Of the range of the path's losses: less counts as no change. Of the largest eigenvalue: less counts as flat."""
# A line's second difference and the eigenvalue must agree so well, or the loss is no parabola that far.
_AGREEMENT = 0.2
_WANTED, _FEWEST = 5, 3  # checkpoints, through which a line shows by how much they jitter
_OF_RANGE = f"{100 * SHARE:g} % of the range of the losses on the path"
_LITTLE = f"{100 * SHARE:g} % of the largest eigenvalue"
RADIUS = 0.5  # of the ring on the random plane, in lengths of its directions


@dataclass(frozen=True)
class _Bend:
    name: str
    number: Number
    few: str  # why its interval is not to be trusted

    @property
    def is_sure(self) -> bool:
        return not self.few and (self.number.low > 0 or self.number.high < 0)


def answer_end(findings: Findings) -> Found:
    curvature, path = findings.curvature, findings.path
    trend = None if path is None else _trend(path)
    falls = trend is not None and trend.number.high < -SHARE * _range(path)
    statements = [] if trend is None else [trend]
    if curvature is None or not np.isfinite(curvature.eigenvalues).all() or not math.isfinite(curvature.loss[0]):
        verdict: str = Unknown(f"not known: {findings.missing.get('end') or 'the curvature at the end is not finite'}")
    else:
        evidence = Evidence.of_curvature(curvature)
        largest, lowest = eigenvalue(evidence, 0), eigenvalue(evidence, -1)
        bends = [] if findings.bottom is None else _bends(findings.bottom)
        if largest.low > 0:
            statements.append(_one_step(evidence, curvature))
        text = f"The lowest eigenvalue of the Hessian is {plus_minus(lowest)}; the largest one is {largest.value:.4g}."
        statements += [Statement(text, lowest, SHARPNESS), *_along(bends)]
        verdict = _stationary(findings, trend, float(curvature.gradient_norm[0]), largest, lowest, bends)
    if trend is not None and falls:
        ends = trend.text.partition("; this is")[0]
        verdict = f"still falling: {ends[:1].lower()}{ends[1:]}; this is more than {_OF_RANGE}"
    return [verdict], statements


def eigenvalue(evidence: Evidence, place: int, row: int = 0, form: str = "{}", kind: str = BY_RESIDUAL) -> Number:
    """Returns an eigenvalue of a curvature, or a formula of it, with its residual."""
    value, residual = f"values[{row}, {place}]", f"residuals[{row}, {place}]"
    formulas = (form.format(text) for text in (value, f"{value} - {residual}", f"{value} + {residual}"))
    return evidence.number(*formulas, kind=kind, values="eigenvalues", residuals="residuals")


def _stationary(
    findings: Findings, trend: Statement | None, gradient: float, largest: Number, lowest: Number, bends: list[_Bend]
) -> str:
    scale = _range(findings.path)
    if not math.isfinite(scale):
        return Unknown("not known: the losses on the path do not differ, or were not measured")
    # A parabola that bends up in every direction falls by no more than this; of another one, a step tells the least.
    steepest = max(abs(largest.value), abs(lowest.value))
    little = SHARE * steepest
    slowest = lowest.low if lowest.low > little else largest.value if largest.low > 0 else steepest
    if not gradient**2 <= 2 * slowest * SHARE * scale:
        moves = "but it is not certain that the loss falls: training or samples may be noisy"
        if trend is not None and trend.number.low > 0:
            moves = "and the loss rises"
        return Unknown(f"not known: the gradient is not zero there, {moves}")
    if not bends:
        without = "the loss of each sample is not known, so the curvature has no interval"
        return Unknown(f"not known: {findings.missing.get('bottom') or without}")
    main = bends[0]
    if main.few:
        return Unknown(f"not known: {main.few}")
    if not abs(main.number.value - lowest.value) <= _AGREEMENT * abs(lowest.value) + little:
        return Unknown("not known: the loss is not a parabola where it was measured, so its curvature has no interval")
    by_chance = Unknown("not known: the lowest curvature may be chance, with so few samples")
    here = f"on these {main.name}"
    if lowest.low > -little and lowest.high < little:
        is_flat = -little < main.number.low and main.number.high < little
        return f"flat {here}: in its lowest direction the loss bends by less than {_LITTLE}" if is_flat else by_chance
    if not (lowest.low > little or lowest.high < -little):
        return Unknown("not known: the lowest eigenvalue is too uncertain to have a sign")
    if not main.is_sure:
        return by_chance
    if lowest.value > 0:
        kind = f"a minimum {here}: the loss bends up in every direction"
    elif largest.high < 0:
        kind = f"a maximum {here}: the loss bends down in every direction"
    else:
        kind = f"a saddle {here}: the loss bends down in at least one direction"
    others = [bend for bend in bends[1:] if not bend.is_sure or (bend.number.value > 0) != (lowest.value > 0)]
    if others:
        return Unknown(f"not known: {kind}, but the {others[0].name} do not confirm it")
    return kind if len(bends) > 1 else f"{kind}; a second data set would tell whether it is one on other samples too"


def _trend(path: LandscapeData) -> Statement | None:
    """Returns how the loss changed over the last quarter of the path, by a straight line through its checkpoints."""
    found, unit = path.checkpoints, unit_of(path)
    if found is None or not found.paths:
        return None
    numbers: NDArray[np.int64] = found.number[found.paths[0]]
    half, quarter = (int(np.searchsorted(numbers, numbers[-1] - (numbers[-1] - numbers[0]) / part)) for part in (2, 4))
    # Of few checkpoints, some more of the last half.
    begin = max(min(quarter, len(numbers) - _WANTED), half)
    first, last = int(found.paths[0][begin]), int(found.paths[0][-1])
    count = len(numbers) - begin
    if count < _FEWEST or not np.isfinite(found.metrics["loss"][first : last + 1]).all():
        return None
    number, loss = (f"{name}[{first}:{last + 1}]" for name in ("number", "loss"))
    away = f"({number} - {number}.mean())"
    slope, span = f"({away} * {loss}).sum() / ({away} ** 2).sum()", f"(number[{last}] - number[{first}])"
    rest = f"({loss} - {loss}.mean() - {slope} * {away})"
    # Of a training whose weights jitter, two checkpoints tell nothing; the line's error knows by how much they do.
    error = f"sqrt(({rest} ** 2).sum() / {count - 2} / ({away} ** 2).sum()) * {span}"
    reach = Estimate(0.0, 1.0, count - 2).interval()[1]
    change = Evidence.of_landscape(path).number(
        f"{slope} * {span}", *(f"{slope} * {span} {sign} {reach:.6g} * {error}" for sign in "-+"),
        kind=f"95 % interval of a straight line through {count} checkpoints", number="checkpoints/number",
        loss="checkpoints/loss",
    )  # fmt: skip
    ends = f"From {unit} {found.number[first]} to {unit} {found.number[last]}"
    text = (
        f"{ends} the loss changed by {plus_minus(change)}; this is the change of a straight line through {count} "
        "checkpoints."
    )
    return Statement(text, change, "path")


def _range(path: LandscapeData | None) -> float:
    found = None if path is None else path.checkpoints
    losses = np.zeros(0) if found is None or not found.paths else found.metrics["loss"][found.paths[0]]
    losses = losses[np.isfinite(losses)]
    return float(np.ptp(losses)) or math.nan if len(losses) else math.nan


def _one_step(evidence: Evidence, curvature: CurvatureData) -> Statement:
    """Returns by which share of the loss a step of the rate 1 / (largest eigenvalue) lowers it, for a parabola."""
    formula = "norm[0] ** 2 / (2 * values[0, 0]) / abs(loss[0])"
    places = {"norm": "gradient_norm", "values": "eigenvalues", "loss": "loss"}
    number = evidence.number(formula, kind="on these samples, if the loss is a parabola", **places)
    length = f"The length of the loss's gradient is {curvature.gradient_norm[0]:.3g}"
    if not math.isfinite(number.value):
        return Statement(f"{length}.", evidence.exact("norm[0]", norm="gradient_norm"), SHARPNESS)
    text = (
        f"{length}. If the loss is a parabola, one step of gradient descent with the learning rate 1 / (largest "
        f"eigenvalue) lowers the loss of these samples by {percent(number)}."
    )
    return Statement(text, number, SHARPNESS)


def _bends(bottom: LandscapeData) -> list[_Bend]:
    if not np.isfinite(bottom.loss).all():
        return []
    evidence, bends = Evidence.of_landscape(bottom), []
    names = list(bottom.kept_samples)
    for place, (name, kept) in enumerate(bottom.kept_samples.items()):
        losses, main = (np.asarray(evidence.arrays[f"samples/{one}/loss"], np.float64) for one in (name, names[0]))
        if place and np.array_equal(losses, main):
            continue  # the same samples once more confirm nothing
        bend, places = "(loss[0] - 2 * loss[1] + loss[2]) / x[2] ** 2", {"loss": f"samples/{name}/loss", "x": "x"}
        samples = replace(evidence, samples={"": kept.count})
        if kept.is_sum:
            number = samples.mean(f"({bend}).sum()", f"({bend}).std(ddof=1) * sqrt({kept.count})", **places)
        elif kept.weights is None:
            number = samples.mean(f"({bend}).mean()", f"({bend}).std(ddof=1) / sqrt({kept.count})", **places)
        else:
            mean = f"(({bend}) * weight).sum() / weight.sum()"
            spread = f"((({bend} - {mean}) * weight) ** 2).sum()"
            error = f"sqrt({spread} * {kept.count} / {kept.count - 1 or 1}) / weight.sum()"
            number = samples.mean(mean, error, **places, weight=f"samples/{name}/weight")
        words = f"{kept.count:,} samples" + (f" of {name}" if place else "")
        bends.append(_Bend(words, number, too_few(losses[0] - 2 * losses[1] + losses[2])))
    return bends


def _along(bends: Sequence[_Bend]) -> Iterator[Statement]:
    for place, bend in enumerate(bends):
        which, searched = ("the", ", on which it was not searched,") if place else ("these", "")
        text = (
            f"Along the eigenvector of the lowest eigenvalue, the loss of {which} {bend.name}{searched} bends by "
            f"{plus_minus(bend.number)}."
        )
        yield Statement(text, bend.number)


def answer_flatness(findings: Findings) -> Found:
    curvature, around = findings.curvature, findings.around
    statements, verdicts = [], []
    if curvature is not None and np.isfinite(curvature.eigenvalues[0, 0]):
        evidence = Evidence.of_curvature(curvature)
        largest = eigenvalue(evidence, 0)
        text = f"In the sharpest direction the loss bends by {plus_minus(largest)}; this is the largest eigenvalue."
        statements.append(Statement(text, largest, SHARPNESS))
        statements += [*_mean_curvature(curvature, evidence), *_edge(curvature, evidence)]
        verdicts.append(f"the largest eigenvalue is {largest.value:.3g}")
    if findings.along is not None:
        statements += _over_the_run(findings.along)
    ring, left_out = (None, "") if around is None else _ring(around)
    if around is not None and ring is not None:
        how, distance = around.attributes.get("normalization"), RADIUS * float(around.directions.norms.mean())
        change = (
            f"{ring.value:.3g} on average ({ring.low:.3g} to {ring.high:.3g}, depending on the direction){left_out}"
        )
        text = (
            f"A plane was measured around the end, of two random directions ({how}-normalized). At a distance of "
            f"{distance:.3g}, half the length of a direction, its loss differs from that of the end by {change}."
        )
        statements.append(Statement(text, ring, AROUND))
        verdicts.append(f"at a distance of {distance:.3g} from the end the loss differs by {change}")
    reason = findings.missing.get("end") or "nothing finite was measured around the end"
    return verdicts or [Unknown(f"not known: {reason}")], statements


def _mean_curvature(curvature: CurvatureData, evidence: Evidence) -> Iterator[Statement]:
    if np.isfinite(curvature.trace[0]):
        weights = int(curvature.attributes["weights"])
        number = evidence.number(
            *(f"{name}[0] / {weights}" for name in ("trace", "low", "high")),
            kind="95 % interval over random directions", trace="trace", low="trace_low", high="trace_high",
        )  # fmt: skip
        text = (
            f"In a random direction of length 1 the loss bends by {plus_minus(number)} on average; this is the sum of "
            f"all eigenvalues divided by the number of weights, {weights:,}."
        )
        yield Statement(text, number, SHARPNESS)


def _edge(curvature: CurvatureData, evidence: Evidence) -> Iterator[Statement]:
    """Yields how the sharpness compares with gradient descent's limit, where its learning rate was recorded."""
    rate = curvature.attributes.get("learning_rate")
    rate = rate.get(str(curvature.number[0])) if isinstance(rate, Mapping) else rate
    if isinstance(rate, int | float) and rate > 0:
        number = eigenvalue(evidence, 0, form=f"({{}}) * {rate:.10g} / 2", kind="from its residual")
        text = (
            "Gradient descent without momentum cannot settle where the largest eigenvalue is above 2 / learning rate "
            f"(Cohen et al. 2021). Here it is {plus_minus(number)} times that limit."
        )
        yield Statement(text, number, ALONG)


def _over_the_run(along: CurvatureData) -> Iterator[Statement]:
    rows = np.flatnonzero(np.isfinite(along.eigenvalues[:, 0]))
    if len(rows) < 2:
        return
    evidence, unit = Evidence.of_curvature(along), along.attributes["unit"]
    last, top = int(rows[-1]), int(rows[np.argmax(along.eigenvalues[rows, 0])])
    number, highest = (eigenvalue(evidence, 0, row) for row in (last, top))
    if top == last or not highest.low > number.high:
        # Of eigenvalues that are equal but for rounding none is the largest.
        found = "" if top == last else ", by more than their residuals"
        text = (
            f"Of {len(rows)} checkpoints none is sharper than the last one, {unit} {along.number[last]}{found}; its "
            f"largest eigenvalue is {plus_minus(number)}."
        )
    else:
        times = ""
        if number.low > 0:  # of what bends down a share says nothing
            end, other = (f"(values[{row}, 0] {{}} residuals[{row}, 0])" for row in (last, top))
            number, times = evidence.number(
                f"values[{last}, 0] / values[{top}, 0]",
                *(f"{end.format(sign)} / {other.format(opposite)}" for sign, opposite in ("-+", "+-")),
                kind="from the residuals of both", values="eigenvalues", residuals="residuals",
            ), " times that"  # fmt: skip
        text = (
            f"Of {len(rows)} checkpoints, {unit} {along.number[top]} is the sharpest: its largest eigenvalue is "
            f"{highest.value:.4g}. The largest eigenvalue of the last checkpoint is {plus_minus(number)}{times}."
        )
    yield Statement(text, number, ALONG)


def _ring(around: LandscapeData) -> tuple[Number | None, str]:
    """Returns how far the loss differs on a ring around the end, in the mean, the least and the most; and where not."""
    x, y = around.x, around.y
    if y is None or not np.isfinite(around.origin.metrics["loss"]):
        return None, ""
    width = float(max(np.diff(x).max(), np.diff(y).max())) / 2
    across, along = "x[None, :]", "y[:, None]"
    length = f"sqrt({across} ** 2 + {along} ** 2 + 2 * cosine * {across} * {along})"
    inside, evidence = f"abs({length} - {RADIUS:g}) <= {width:.10g}", Evidence.of_landscape(around)
    places = {"x": "x", "y": "y", "loss": "loss", "end": "origin/loss", "cosine": "directions/cosine"}
    lost = f"(({inside}) & (status == {PointStatus.MEASURED:d}) & ~isfinite(loss)).sum()"
    if count := int(evidence.exact(lost, **places, status="status").value):
        inside = f"({inside}) & isfinite(loss)"
    # Points of a grid are not all on the ring; near a stationary point the loss differs by the square of the distance.
    scaling = f"({RADIUS:g} / maximum({length}, {width:.10g})) ** 2"
    number = evidence.number(
        *(f"{name}(((loss - end) * {scaling})[{inside}])" for name in ("nanmean", "nanmin", "nanmax")),
        kind="the least and the most over directions, scaled to the radius by its square", **places,
    )  # fmt: skip
    left_out = f"; at {count} points there it is not finite" if count else ""
    return number if math.isfinite(number.value) else None, left_out


def answer_recipes(findings: Findings) -> Found:
    comparison = findings.comparison
    if comparison is None:
        return [Unknown(f"not known: {findings.missing['comparison']}")], []
    means = {item.recipe: item.mean for item in comparison.means()}
    radius = comparison.attributes["radius"]
    statements, verdicts = [], []
    for place, answer in enumerate(comparison.table()):
        number = _number(comparison, answer, place)
        rises = " and ".join(f"by {means[name]:.3g} for {name}" for name in (answer.first, answer.second))
        text = (
            f"Along random lines through the networks, to the radius {radius:g}, the loss rises on average {rises}; "
            f"the difference is {plus_minus(number)}"
        )
        reason = f"; {answer.reason.rstrip('.')}" if answer.reason else ""
        needed = f" {what_shows(answer)}" if answer.needed is not None else ""
        statements.append(Statement(f"{text}{reason}.{needed}", number, RECIPES))
        undecided = {INCONCLUSIVE: "the interval of the difference holds 0", NO_INTERVAL: answer.reason}
        why = undecided.get(answer.verdict)
        unknown = Unknown(f"not known for {answer.first} and {answer.second}: {why}")
        verdicts.append(answer.verdict if why is None else unknown)
    return verdicts, statements


def _number(comparison: Comparison, answer: Answer, place: int) -> Number:
    """Returns the difference of a pair; its formula is a call, as statistics over networks are no single line."""
    call = f"Comparison.load(file).table()[{place}]"
    ends = ("", "") if math.isnan(answer.low) else (f"{call}.low", f"{call}.high")
    kind = f"{100 * answer.confidence:.4g} % interval, {answer.method}" if answer.method else answer.reason
    file = "" if comparison.path is None else comparison.path.name
    difference = (answer.difference, answer.low, answer.high)
    return Number(*difference, kind, file, {"loss": "loss"}, f"{call}.difference", *ends)
