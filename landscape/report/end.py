"""How a training ended: at a minimum, at a saddle, or with a loss that still falls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..comparison.statistics import Estimate
from ..curvature.curvature import Curvature
from ..curvature.data import CurvatureData
from ..drawing.texts import unit_of
from ..grid.data import LandscapeData
from .measuring import FLAT, Findings
from .statement import NEGLIGIBLE, Evidence, Found, Number, Statement, Unknown, percent, plus_minus, too_few

SHARPNESS = "sharpness"
SHARE = 0.01
"""Of the range of the path's losses: less counts as no change."""
# A first loss that is a thousand times the next one says nothing about what a change is later; of a path that hardly
# changes but for its highest tenth, a millionth of the whole range is left.
_USUAL, _FLOOR = 0.9, 1e-6
# A line's second difference and the eigenvalue must agree so well, or the loss is no parabola that far.
_AGREEMENT = 0.2
_MOST_ALIKE = 0.9  # of the correlation of what two checkpoints, one behind the other, leave
_WANTED, _FEWEST = 5, 3  # checkpoints, through which a line shows by how much they jitter
_OF_RANGE = f"{100 * SHARE:g} % of the range of the losses on the path without the highest tenth"
_LITTLE = f"{100 * FLAT:g} % of the largest eigenvalue"


@dataclass(frozen=True)
class _Bend:
    name: str
    number: Number
    most: float  # that of the sample that bends most, up or down
    few: str  # why its interval is not to be trusted

    @property
    def is_sure(self) -> bool:
        return not self.few and (self.number.low > 0 or self.number.high < 0)


def answer_end(findings: Findings) -> Found:
    curvature, path = findings.curvature, findings.path
    trend, scale = None if path is None else _trend(path), _range(findings)
    falls = trend is not None and trend.number.high < -SHARE * scale
    statements = [] if trend is None else [trend]
    if curvature is None or not np.isfinite(curvature.eigenvalues).all() or not math.isfinite(curvature.loss[0]):
        verdict: str = Unknown(f"not known: {findings.missing.get('end') or 'the curvature at the end is not finite'}")
    else:
        evidence = Evidence.of_curvature(curvature)
        largest, lowest = evidence.eigenvalue(0), evidence.eigenvalue(-1)
        bends = [] if findings.bottom is None else _bends(findings.bottom)
        gradient = float(curvature.gradient_norm[0])
        if largest.low > 0:
            statements.append(_one_step(evidence, curvature))
        text = f"The lowest eigenvalue of the Hessian is {plus_minus(lowest)}; the largest one is {largest.value:.4g}."
        statements += [Statement(text, lowest, SHARPNESS), *_along(bends)]
        verdict = _stationary(findings, trend, scale, curvature, largest, lowest, bends)
        # Whatever the last checkpoints did, no parabola falls from here.
        falls = falls and not _gains_little(gradient, lowest, scale)
    if trend is not None and falls:
        verdict = f"still falling: {trend.text[:1].lower()}{trend.text[1:-1]}; this is more than {_OF_RANGE}"
    return [verdict], statements


def _stationary(
    findings: Findings, trend: Statement | None, scale: float, curvature: Curvature, largest: Number, lowest: Number,
    bends: list[_Bend],
) -> str:  # fmt: skip
    if not math.isfinite(scale):
        return Unknown("not known: the losses on the path do not differ, or are not finite")
    gradient, of_weights = float(curvature.gradient_norm[0]), f"of its {curvature.weights:,} trainable weights"
    steepest = max(abs(largest.value), abs(lowest.value))
    little = FLAT * steepest
    # A parabola that bends up in every direction falls by no more than this; of another one, a step tells the least,
    # and the slope along the lowest eigenvector.
    rests = _gains_little(gradient, lowest, scale)
    if not (rests or lowest.low > little):
        fastest = largest.value if largest.low > 0 else steepest
        line = findings.bottom
        slope = 0.0 if line is None or not bends else float((line.loss[2] - line.loss[0]) / (line.x[2] - line.x[0]))
        rests = gradient**2 <= 2 * fastest * SHARE * scale and _gains_little(slope, lowest, scale)
    if not rests:
        moves = "but it is not certain that the loss falls: training or samples may be noisy"
        if trend is not None and trend.number.low > 0:
            moves = "and the loss rises"
        elif risen := _has_risen(findings, str(curvature.attributes["unit"])):
            moves = risen
        return Unknown(f"not known: the gradient is not zero there, {moves}")
    if not bends:
        without = "the loss of each sample is not known, so the curvature has no interval"
        return Unknown(f"not known: {findings.missing.get('bottom') or without}")
    main = bends[0]
    if main.few and not main.most < little:
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
        kind = f"a minimum {here}: the loss bends up in every direction {of_weights}"
    elif largest.high < 0:
        kind = f"a maximum {here}: the loss bends down in every direction {of_weights}"
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
    wider = _widening(found.number[first : last + 1], found.metrics["loss"][first : last + 1])
    change = Evidence.of_landscape(path).number(
        f"{slope} * {span}", *(f"{slope} * {span} {sign} {reach * wider:.6g} * {error}" for sign in "-+"),
        kind=f"95 % interval of a straight line through {count} checkpoints, {wider:.2f} times as wide as Student's",
        number="checkpoints/number", loss="checkpoints/loss",
    )  # fmt: skip
    ends = f"From {unit} {found.number[first]} to {unit} {found.number[last]}"
    text = f"{ends} a straight line through the losses of {count} checkpoints changes by {plus_minus(change)}."
    return Statement(text, change, "path")


def _widening(numbers: NDArray[np.int64], losses: NDArray[np.float64]) -> float:
    """Returns how much wider an interval is where what a straight line leaves depends on the checkpoint before."""
    steps = np.diff(losses)
    rest = losses - np.polyval(np.polyfit(numbers, losses, 1), numbers)
    # What falls, or rises, from each checkpoint to the next bends rather than jitters.
    if not (scale := float(rest @ rest)) or (steps < 0).all() or (steps > 0).all():
        return 1.0
    # Of n checkpoints it is found too low by about (1 + 4 times itself) / n (Marriott and Pope 1954).
    along = float(rest[1:] @ rest[:-1]) / scale
    along = min(max(along + (1 + 4 * along) / len(rest), 0.0), _MOST_ALIKE)
    return math.sqrt((1 + along) / (1 - along))


def _losses(findings: Findings) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns the numbers and the finite losses of the path's checkpoints; without a plane, those of a few of them."""
    found, along = None if findings.path is None else findings.path.checkpoints, findings.along
    if found is not None and found.paths:
        numbers, losses = found.number[found.paths[0]], found.metrics["loss"][found.paths[0]]
    elif along is not None:
        numbers, losses = along.number, along.loss
    else:
        return np.zeros(0, np.int64), np.zeros(0)
    return numbers[np.isfinite(losses)], losses[np.isfinite(losses)]


def _range(findings: Findings) -> float:
    _, losses = _losses(findings)
    if not len(losses):
        return math.nan
    lowest = losses.min()
    return float(max(np.quantile(losses, _USUAL) - lowest, _FLOOR * (losses.max() - lowest))) or math.nan


def _gains_little(slope: float, lowest: Number, scale: float) -> bool:
    """Whether a parabola that bends by the lowest eigenvalue falls by little to where a slope ends."""
    bend = lowest.low if lowest.low > 0 else max(abs(lowest.low), abs(lowest.high))
    return slope**2 <= 2 * bend * SHARE * scale


def _has_risen(findings: Findings, unit: str) -> str:
    """Returns in words since when the loss has risen by more than half of its range; "" where it has not."""
    numbers, losses = _losses(findings)
    if not len(losses) or not losses[-1] - losses.min() > np.ptp(losses) / 2:
        return ""
    place = int(np.argmin(losses))
    return f"and the loss has risen since {unit} {numbers[place]}, from {losses[place]:.4g} to {losses[-1]:.4g}"


def _one_step(evidence: Evidence, curvature: CurvatureData) -> Statement:
    """Returns by which share of the loss a step of the rate 1 / (largest eigenvalue) lowers it, for a parabola."""
    # Along the steepest direction it is the least; along the one that bends down most, the most.
    least = "norm[0] ** 2 / (2 * values[0, 0]) / abs(loss[0])"
    most = f"{least} * (2 + maximum(-values[0, -1], 0) / values[0, 0])"
    places = {"norm": "gradient_norm", "values": "eigenvalues", "loss": "loss"}
    number = evidence.number(least, least, most, kind="on these samples, if the loss is a parabola", **places)
    length = f"The length of the loss's gradient is {curvature.gradient_norm[0]:.3g}"
    if not math.isfinite(number.value):
        return Statement(f"{length}.", evidence.exact("norm[0]", norm="gradient_norm"), SHARPNESS)
    share = percent(number) if number.high < NEGLIGIBLE else f"at least {100 * number.low:.3g} %"
    text = (
        f"{length}. If the loss is a parabola, one step of gradient descent with the learning rate 1 / (largest "
        f"eigenvalue) lowers the loss of these samples by {share}."
    )
    return Statement(text, number, SHARPNESS)


def _bends(bottom: LandscapeData) -> list[_Bend]:
    if not np.isfinite(bottom.loss).all():
        return []
    evidence, bends = Evidence.of_landscape(bottom), []
    names = list(bottom.kept_samples)
    for place, (name, kept) in enumerate(bottom.kept_samples.items()):
        losses, main = (np.asarray(evidence.arrays[f"samples/{one}/loss"], np.float64) for one in (name, names[0]))
        if place and np.array_equal(losses, main, equal_nan=True):
            continue  # the same samples once more confirm nothing
        counted = kept.counted
        bend, places = "(loss[0] - 2 * loss[1] + loss[2]) / x[2] ** 2", {"loss": f"samples/{name}/loss", "x": "x"}
        samples = replace(evidence, samples={"": (count := int(counted.sum()))})
        if kept.is_sum:
            number = samples.mean(f"({bend}).sum()", f"({bend}).std(ddof=1) * sqrt({count})", **places)
        elif kept.weights is None:
            number = samples.mean(f"({bend}).mean()", f"({bend}).std(ddof=1) / sqrt({count})", **places)
        else:
            # What does not count has no loss.
            bend = f"where(weight > 0, {bend}, 0)"
            mean = f"({bend} * weight).sum() / weight.sum()"
            error = f"sqrt(((({bend} - {mean}) * weight) ** 2).sum() * {count} / {count - 1 or 1}) / weight.sum()"
            number = samples.mean(mean, error, **places, weight=f"samples/{name}/weight")
        words = f"{count:,} samples" + (f" of {name}" if place else "")
        each = ((losses[0] - 2 * losses[1] + losses[2]) / bottom.x[2] ** 2)[counted]
        most = np.abs(each).sum() if kept.is_sum else np.abs(each).max()
        weights = None if kept.weights is None else kept.weights[counted]
        bends.append(_Bend(words, number, float(most), too_few(each, weights=weights)))
    return bends


def _along(bends: Sequence[_Bend]) -> Iterator[Statement]:
    for place, bend in enumerate(bends):
        which, searched = ("the", ", on which it was not searched,") if place else ("these", "")
        text = (
            f"Along the eigenvector of the lowest eigenvalue, the loss of {which} {bend.name}{searched} bends by "
            f"{plus_minus(bend.number)}."
        )
        yield Statement(text, bend.number)
