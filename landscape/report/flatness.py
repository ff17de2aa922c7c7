"""How flat the end is: in the sharpest direction, in a random one, and along the training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..curvature.data import CurvatureData
from ..grid.data import LandscapeData
from .end import SHARPNESS, eigenvalue
from .statement import Answer, Evidence, Number, Statement, plus_minus

FLATNESS, AROUND, ALONG = "flatness", "around", "along"
RADIUS = 0.5
"""Of the ring on the random plane, in lengths of its directions."""
_QUESTION = "How flat is the end?"


def answer_flatness(
    curvature: CurvatureData | None, along: CurvatureData | None, around: LandscapeData | None, missing: str = ""
) -> Answer:
    """Answers from the curvature at the end and at some checkpoints, and from a plane of random directions.

    Args:
        curvature: with one row, the largest eigenvalue first; None if not measured.
        along: with a row for each checkpoint; None if not measured.
        around: the plane of random directions around the end; None if not measured.
        missing: why there is no curvature.
    """
    statements, verdicts = [], []
    if curvature is not None and np.isfinite(curvature.eigenvalues[0, 0]):
        evidence = Evidence.of_curvature(curvature)
        largest = eigenvalue(evidence, 0)
        text = f"In the sharpest direction the loss bends by {plus_minus(largest)}, the largest eigenvalue."
        statements.append(Statement(text, largest, SHARPNESS))
        statements += [*_mean_curvature(curvature, evidence), *_edge(curvature, evidence)]
        verdicts.append(f"the largest eigenvalue is {largest.value:.3g}")
    statements += _over_the_run(along)
    ring = None if around is None else _ring(around)
    if around is not None and ring is not None:
        how, distance = around.attributes.get("normalization"), RADIUS * float(around.directions.norms.mean())
        change = f"{ring.value:.3g} on average ({ring.low:.3g} to {ring.high:.3g} over its directions)"
        text = (
            f"On the plane of two random directions ({how}-normalized), at the distance {distance:.3g} from the end, "
            f"half the length of a direction, the loss differs from that of the end by {change}."
        )
        statements.append(Statement(text, ring, AROUND))
        verdicts.append(f"at the distance {distance:.3g} around it the loss differs by {change}")
    reason = missing or "nothing finite was measured around the end"
    verdict = "; ".join(verdicts) if verdicts else f"not known: {reason}"
    return Answer(FLATNESS, _QUESTION, verdict, known=bool(verdicts), statements=tuple(statements))


def _mean_curvature(curvature: CurvatureData, evidence: Evidence) -> list[Statement]:
    if not np.isfinite(curvature.trace[0]):
        return []
    weights = int(curvature.attributes["weights"])
    number = evidence.number(
        f"trace[0] / {weights}", f"low[0] / {weights}", f"high[0] / {weights}",
        kind="95 % interval over random directions", trace="trace", low="trace_low", high="trace_high",
    )  # fmt: skip
    text = (
        f"In a random direction of length 1 it bends by {plus_minus(number)} on average: the sum of all eigenvalues, "
        f"divided by the {weights:,} weights."
    )
    return [Statement(text, number, SHARPNESS)]


def _edge(curvature: CurvatureData, evidence: Evidence) -> list[Statement]:
    """Returns how the sharpness compares with gradient descent's limit, where its learning rate was recorded."""
    rate = curvature.attributes.get("learning_rate")
    rate = rate.get(str(curvature.number[0])) if isinstance(rate, Mapping) else rate
    if not isinstance(rate, int | float) or not rate > 0:
        return []

    def share(largest: str) -> str:
        return f"({largest}) * {rate:.10g} / 2"

    value, residual = "values[0, 0]", "residuals[0, 0]"
    number = evidence.number(
        share(value), share(f"{value} - {residual}"), share(f"{value} + {residual}"), kind="from its residual",
        values="eigenvalues", residuals="residuals",
    )  # fmt: skip
    text = (
        f"The largest eigenvalue is {plus_minus(number)} times 2 / learning rate, above which gradient descent without "
        "momentum cannot settle (Cohen et al. 2021)."
    )
    return [Statement(text, number, ALONG)]


def _over_the_run(along: CurvatureData | None) -> list[Statement]:
    if along is None:
        return []
    rows = np.flatnonzero(np.isfinite(along.eigenvalues[:, 0]))
    if len(rows) < 2:
        return []
    evidence, unit = Evidence.of_curvature(along), along.attributes["unit"]
    last, top = int(rows[-1]), int(rows[np.argmax(along.eigenvalues[rows, 0])])
    if top == last or along.eigenvalues[top, 0] <= 0:
        number = eigenvalue(evidence, 0, last)
        text = (
            f"Of {len(rows)} checkpoints none is sharper than the last one, {unit} {along.number[last]}, with a "
            f"largest eigenvalue of {plus_minus(number)}."
        )
        return [Statement(text, number, ALONG)]
    ends = []
    for sign, opposite in ("-+", "+-"):
        numerator = f"values[{last}, 0] {sign} residuals[{last}, 0]"
        ends.append(f"({numerator}) / (values[{top}, 0] {opposite} residuals[{top}, 0])")
    number = evidence.number(
        f"values[{last}, 0] / values[{top}, 0]", *ends, kind="from the residuals of both", values="eigenvalues",
        residuals="residuals",
    )  # fmt: skip
    text = (
        f"Of {len(rows)} checkpoints, {unit} {along.number[top]} is the sharpest, with a largest eigenvalue of "
        f"{along.eigenvalues[top, 0]:.4g}; that of the last one is {plus_minus(number)} of it."
    )
    return [Statement(text, number, ALONG)]


def _ring(around: LandscapeData) -> Number | None:
    """Returns how far the loss differs on a ring around the end: the mean, the least and the most."""
    x, y = around.x, around.y
    if y is None or not np.isfinite(around.origin.metrics["loss"]):
        return None
    evidence: Any = Evidence.of_landscape(around)
    width = float(max(np.diff(x).max(), np.diff(y).max())) / 2
    across, along = "x[None, :]", "y[:, None]"
    length = f"sqrt({across} ** 2 + {along} ** 2 + 2 * cosine * {across} * {along})"
    inside = f"abs({length} - {RADIUS:g}) <= {width:.10g}"
    # Points of a grid are not all on the ring; near a stationary point the loss differs by the square of the distance.
    scaling = f"({RADIUS:g} / maximum({length}, {width:.10g})) ** 2"
    rise = f"((loss - end) * {scaling})[{inside}]"
    number: Number = evidence.number(
        f"nanmean({rise})", f"nanmin({rise})", f"nanmax({rise})",
        kind="the least and the most over directions, scaled to the radius by its square", x="x", y="y", loss="loss",
        end="origin/loss", cosine="directions/cosine",
    )  # fmt: skip
    return number if math.isfinite(number.value) else None
