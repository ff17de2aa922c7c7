"""How flat the end of a training is, in its sharpest direction and around it, and which of several recipes flatter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from ..comparison.answers import INCONCLUSIVE, NO_INTERVAL, OF_ONE_EACH, PAIRED, Answer, in_pairs
from ..comparison.comparison import Comparison, what_shows
from ..comparison.data import left_out, rows_of
from ..curvature.data import CurvatureData
from ..grid.data import LandscapeData
from ..record.checks import PointStatus
from ..record.identity import REDUCTION
from .end import SHARPNESS
from .measuring import Findings
from .statement import Evidence, Found, Number, Statement, Unknown, percent, plus_minus

AROUND, ALONG, RECIPES = "around", "along", "recipes"
RADIUS = 0.5  # of the ring on the random plane, in lengths of its directions


def answer_flatness(findings: Findings) -> Found:
    curvature, around = findings.curvature, findings.around
    statements, verdicts = [], []
    if curvature is not None and np.isfinite(curvature.eigenvalues[0, 0]):
        evidence = Evidence.of_curvature(curvature)
        largest = evidence.eigenvalue(0)
        count = evidence.samples.get("")
        of_samples = "" if count is None else f"of these {count:,} samples "
        bends = f"bends by {plus_minus(largest)}; this is the largest eigenvalue."
        text = f"In the sharpest direction the loss {of_samples}{bends}"
        statements.append(Statement(text, largest, SHARPNESS))
        statements += [*_mean_curvature(curvature, evidence), *_edge(curvature, evidence)]
        verdicts.append(f"the largest eigenvalue is {largest.value:.3g}")
    if findings.along is not None:
        statements += _over_the_run(findings.along)
    ring, lost = (None, "") if around is None else _ring(around)
    if around is not None and ring is not None:
        how, distance = around.attributes.get("normalization"), RADIUS * float(around.directions.norms.mean())
        change = f"{ring.value:.3g} on average ({ring.low:.3g} to {ring.high:.3g} at the points near it){lost}"
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
    if curvature.attributes.get(REDUCTION) == "sum":
        return  # training takes the gradient of fewer samples, whose sum bends less
    rate = curvature.attributes.get("learning_rate")
    rate = rate.get(str(curvature.number[0])) if isinstance(rate, Mapping) else rate
    if isinstance(rate, int | float) and rate > 0:
        number = evidence.eigenvalue(0, form=f"({{}}) * {rate:.10g} / 2", kind="from its residual")
        text = (
            "Gradient descent without momentum cannot settle where the largest eigenvalue is above 2 / learning rate "
            f"(Cohen et al. 2021). Here it is {percent(number)} of that limit."
        )
        yield Statement(text, number, ALONG)


def _over_the_run(along: CurvatureData) -> Iterator[Statement]:
    rows = np.flatnonzero(np.isfinite(along.eigenvalues[:, 0]))
    if len(rows) < 2:
        return
    evidence, unit = Evidence.of_curvature(along), along.attributes["unit"]
    last, top = int(rows[-1]), int(rows[np.argmax(along.eigenvalues[rows, 0])])
    number, highest = (evidence.eigenvalue(0, row) for row in (last, top))
    others = rows[rows != top]
    if not highest.low > (along.eigenvalues[others, 0] + along.residuals[others, 0]).max():
        # Of eigenvalues that are equal but for rounding none is the largest.
        text = (
            f"Of {len(rows)} checkpoints none is certainly sharper than the others; the largest eigenvalue of the last "
            f"one, {unit} {along.number[last]}, is {plus_minus(number)}."
        )
    elif top == last:
        text = (
            f"Of {len(rows)} checkpoints the last one is the sharpest, {unit} {along.number[last]}; its largest "
            f"eigenvalue is {plus_minus(number)}."
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
        sharpest, end = (f"{unit} {along.number[row]}" for row in (top, last))
        text = (
            f"Of {len(rows)} checkpoints, {sharpest} is the sharpest: its largest eigenvalue is {highest.value:.4g}. "
            f"The largest eigenvalue of {end} is {plus_minus(number)}{times}."
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
    left_out_there = f"; at {count} points there it is not finite" if count else ""
    return number if math.isfinite(number.value) else None, left_out_there


def answer_recipes(findings: Findings) -> Found:
    comparison = findings.comparison
    if comparison is None:
        return [Unknown(f"not known: {findings.missing['comparison']}")], []
    radius = comparison.attributes["radius"]
    statements: list[Statement] = []
    verdicts: list[str] = []
    for place, answer in enumerate(comparison.table()):
        number = _number(comparison, answer, place)
        reason = _with_left_out(comparison, answer)
        if math.isnan(answer.difference):
            verdicts.append(Unknown(f"not known for {answer.first} and {answer.second}: {reason}"))
            continue
        text = (
            f"Along random lines through the networks, to the radius {radius:g}, the loss rises "
            f"on average {_rises(comparison, answer)}; the difference is {plus_minus(number)}"
        )
        beside = f"; {answer.reason.rstrip('.')}" if answer.reason else ""
        needed = f" {what_shows(answer)}" if answer.needed is not None else ""
        statements.append(Statement(f"{text}{beside}.{needed}", number, RECIPES))
        undecided = {INCONCLUSIVE: "the interval of the difference holds 0", NO_INTERVAL: reason}
        why = undecided.get(answer.verdict)
        unknown = Unknown(f"not known for {answer.first} and {answer.second}: {why}")
        whose = f"of these two networks, one of {answer.first} and one of {answer.second}, that of "
        verdict = f"{whose if answer.method in OF_ONE_EACH else ''}{answer.verdict}"
        verdicts.append(verdict if why is None else unknown)
    return verdicts, statements


def _rises(comparison: Comparison, answer: Answer) -> str:
    """Returns in words how far the loss rises on average, for each recipe, around the networks of a difference."""
    pair, values = (answer.first, answer.second), comparison.values()
    pairs = in_pairs(comparison, *pair) if answer.method == PAIRED else None
    rows = pairs or [rows_of(comparison, name) for name in pair]
    rises = (f"by {values[chosen].mean():.3g} for {name}" for name, chosen in zip(pair, rows, strict=True))
    return " and ".join(rises) + (f", over {len(pairs[0])} pairs of networks" if pairs else "")


def _with_left_out(comparison: Comparison, answer: Answer) -> str:
    """Returns the reason that an answer gives, and why networks of its pair do not count."""
    pair = (answer.first, answer.second)
    rows = [row for row in left_out(comparison) if comparison.recipe[row] in pair][:3]
    why = (f"{comparison.recipe[row]} {comparison.name[row]}: {left_out(comparison)[row]}" for row in rows)
    return "; ".join(filter(None, [answer.reason, *why]))


def _number(comparison: Comparison, answer: Answer, place: int) -> Number:
    """Returns the difference of a pair; its formula is a call, as statistics over networks are no single line."""
    call = f"Comparison.load(file).table()[{place}]"
    ends = ("", "") if math.isnan(answer.low) else (f"{call}.low", f"{call}.high")
    kind = f"{100 * answer.confidence:.4g} % interval, {answer.method}" if answer.method else answer.reason
    file = "" if comparison.path is None else comparison.path.name
    difference = (answer.difference, answer.low, answer.high)
    return Number(*difference, kind, file, {"loss": "loss"}, f"{call}.difference", *ends)
