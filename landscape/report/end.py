"""Whether a training ended at a minimum or at a saddle, or whether its loss was still falling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..curvature.data import CurvatureData
from ..drawing.texts import unit_of
from ..grid.data import LandscapeData
from .path import difference_of_loss
from .statement import BY_RESIDUAL, Answer, Evidence, Number, Statement, percent, plus_minus

END, SHARPNESS = "end", "sharpness"
FEWEST = 30
"""Samples, with fewer of which nothing is said about the sign of a curvature: an interval needs about so many."""
SHARE = 0.01
"""Of the loss: what one step must gain at least for the loss to be still falling; of the largest eigenvalue: below this
an eigenvalue counts as flat."""
# A line's second difference and the eigenvalue must agree so well, or the loss is no parabola that far.
_AGREEMENT = 0.5
_LITTLE = f"{100 * SHARE:g} % of the largest eigenvalue"
_FELL = f"still falling: over the last quarter of the path the loss fell by more than {100 * SHARE:g} %"
_QUESTION = "Is the end a minimum, a saddle, or is the loss still falling?"


def answer_end(
    curvature: CurvatureData | None, path: LandscapeData, bottom: LandscapeData | None, missing: str = ""
) -> Answer:
    """Answers from the curvature at the end, the path, and three points along the lowest eigenvector.

    Args:
        curvature: with one row, its columns the largest eigenvalue first and the lowest one last; None if not measured.
        path: the landscape with the run's checkpoints.
        bottom: the line along the lowest eigenvector, with the loss of each sample; None if not measured.
        missing: why there is no curvature.
    """
    trend = _trend(path)
    fell = any(_gains(statement.number, path, curvature) for statement in trend)
    if curvature is None or not np.isfinite(curvature.eigenvalues).all() or not math.isfinite(curvature.loss[0]):
        reason = missing or "the curvature at the end is not finite"
        verdict = _FELL if fell else f"not known: {reason}"
        return Answer(END, _QUESTION, verdict, known=fell, statements=tuple(trend))
    evidence = Evidence.of_curvature(curvature)
    step, lowest = _one_step(evidence), _lowest(evidence)
    along = _along(bottom, lowest)
    statements = (
        Statement(
            f"The gradient of the loss has the length {curvature.gradient_norm[0]:.3g}: if the loss is a parabola, one "
            f"step of gradient descent, with the rate 1 / (largest eigenvalue), lowers it by {percent(step)}.",
            step,
            SHARPNESS,
        ),
        *trend,
        Statement(
            f"The lowest eigenvalue of the Hessian is {plus_minus(lowest)}; the largest one is "
            f"{curvature.eigenvalues[0, 0]:.4g}.",
            lowest,
            SHARPNESS,
        ),
        *along,
    )
    verdict, known = _verdict(curvature, step, lowest, [item.number for item in along], fell=fell)
    return Answer(END, _QUESTION, verdict, known=known, statements=statements)


def _verdict(
    curvature: CurvatureData, step: Number, lowest: Number, along: Sequence[Number], *, fell: bool
) -> tuple[str, bool]:
    largest = float(curvature.eigenvalues[0, 0])
    if step.low > SHARE:
        return f"still falling: a step of gradient descent would lower the loss by {percent(step)}", True
    if fell:
        return _FELL, True
    if not step.high <= SHARE:
        return "not known: the largest eigenvalue is too uncertain to say what a step would gain", False
    few = curvature.attributes.get("num_samples")
    if few is not None and few < FEWEST:
        return f"not known: {few} samples are too few, at least {FEWEST} are needed", False
    undecided = [number for number in along[:1] if not (number.low > 0 or number.high < 0)]
    if lowest.high < -SHARE * largest:
        if undecided:
            return "not known: the direction that bends down may be chance, with so few samples", False
        return "a saddle: the loss bends down in at least one direction", True
    if lowest.low > SHARE * largest:
        if undecided:
            return "not known: the lowest curvature may be chance, with so few samples", False
        return "a minimum: the loss bends up in every direction", True
    if lowest.low > -SHARE * largest and lowest.high < SHARE * largest:
        return f"a minimum, flat in some directions: in none does the loss bend down by more than {_LITTLE}", True
    return "not known: the lowest eigenvalue is too uncertain to have a sign", False


def _trend(path: LandscapeData) -> list[Statement]:
    """Returns how the loss changed over the last quarter of the path."""
    found, unit = path.checkpoints, unit_of(path)
    if found is None or not found.paths:
        return []
    last, before = _last_quarter(found.paths[0])
    if not np.isfinite(found.metrics["loss"][[last, before]]).all():
        return []
    number = difference_of_loss(Evidence.of_landscape(path), last, before)
    text = (
        f"From {unit} {found.number[before]} to {unit} {found.number[last]} the loss changed by {plus_minus(number)}."
    )
    return [Statement(text, number, "path")]


def _gains(change: Number, path: LandscapeData, curvature: CurvatureData | None) -> bool:
    """Returns whether the loss surely fell by more than its share, and whether the gradient lets it go on."""
    found = path.checkpoints
    if found is None or not change.low_formula:
        return False
    last, before = _last_quarter(found.paths[0])
    least = SHARE * abs(float(found.metrics["loss"][last]))
    # As far again as in the last quarter, the loss cannot fall by more than the gradient times that distance, except
    # where it bends down. A valley may be so flat that one step gains little and many gain much.
    slope = math.nan if curvature is None else float(curvature.gradient_norm[0])
    return change.high < -least and not slope * float(found.norm[before]) < least


def _last_quarter(rows: NDArray[np.int64]) -> tuple[int, int]:
    """Returns the rows of the last checkpoint, and of the one with which the last quarter of the path begins."""
    return int(rows[-1]), int(rows[min(3 * (len(rows) - 1) // 4, len(rows) - 2)])


def _one_step(evidence: Evidence) -> Number:
    """Returns by which share of the loss a step of the rate 1 / (largest eigenvalue) lowers it, for a parabola."""

    def share(largest: str) -> str:
        return f"norm[0] ** 2 / (2 * ({largest})) / abs(loss[0])"

    value, residual = "values[0, 0]", "residuals[0, 0]"
    return evidence.number(
        share(value), share(f"{value} + {residual}"), share(f"maximum({value} - {residual}, 0)"), kind=BY_RESIDUAL,
        norm="gradient_norm", values="eigenvalues", residuals="residuals", loss="loss",
    )  # fmt: skip


def _lowest(evidence: Evidence) -> Number:
    value, residual = "values[0, -1]", "residuals[0, -1]"
    return evidence.number(
        value, f"{value} - {residual}", f"{value} + {residual}", kind=BY_RESIDUAL, values="eigenvalues",
        residuals="residuals",
    )  # fmt: skip


def _along(bottom: LandscapeData | None, lowest: Number) -> list[Statement]:
    """Returns how the losses of each data set's samples bend along the lowest eigenvector, three points of a line."""
    if bottom is None or not np.isfinite(bottom.loss).all():
        return []
    evidence, statements = Evidence.of_landscape(bottom), []
    for name, kept in bottom.kept_samples.items():
        bend = "(loss[0] - 2 * loss[1] + loss[2]) / x[2] ** 2"
        if kept.weights is not None:
            continue
        samples = replace(evidence, samples={"": kept.count})
        number = samples.mean(
            f"({bend}).mean()", f"({bend}).std(ddof=1) / sqrt({kept.count})", loss=f"samples/{name}/loss", x="x"
        )
        main = name == next(iter(bottom.kept_samples))
        if main and not abs(number.value - lowest.value) <= _AGREEMENT * abs(lowest.value):
            return []
        which = "these" if main else f"the {name} set's"
        text = f"Along its eigenvector, the losses of {which} {kept.count:,} samples bend by {plus_minus(number)}"
        statements.append(Statement(f"{text}{'' if main else '; it was not searched on them'}.", number))
    return statements
