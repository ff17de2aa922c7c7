"""How flat the end is: in the sharpest direction, in a random one, and along the training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from ..curvature.data import CurvatureData
from ..grid.data import LandscapeData
from .end import SHARPNESS, eigenvalue
from .measuring import Findings
from .statement import Answer, Evidence, Number, Statement, Unknown, plus_minus

FLATNESS, AROUND, ALONG = "flatness", "around", "along"
RADIUS = 0.5
"""Of the ring on the random plane, in lengths of its directions."""
_QUESTION = "How flat is the end?"


def answer_flatness(findings: Findings) -> Answer:
    """Answers from the curvature at the end and at some checkpoints, and from a plane of random directions."""
    curvature, around = findings.curvature, findings.around
    statements, verdicts = [], []
    if curvature is not None and np.isfinite(curvature.eigenvalues[0, 0]):
        evidence = Evidence.of_curvature(curvature)
        largest = eigenvalue(evidence, 0)
        text = f"In the sharpest direction the loss bends by {plus_minus(largest)}, the largest eigenvalue."
        statements.append(Statement(text, largest, SHARPNESS))
        statements += [*_mean_curvature(curvature, evidence), *_edge(curvature, evidence)]
        verdicts.append(f"the largest eigenvalue is {largest.value:.3g}")
    if findings.along is not None:
        statements += _over_the_run(findings.along)
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
    reason = findings.missing.get("end") or "nothing finite was measured around the end"
    return Answer.of(FLATNESS, _QUESTION, verdicts or [Unknown(f"not known: {reason}")], statements)


def _mean_curvature(curvature: CurvatureData, evidence: Evidence) -> Iterator[Statement]:
    if np.isfinite(curvature.trace[0]):
        weights = int(curvature.attributes["weights"])
        number = evidence.number(
            *(f"{name}[0] / {weights}" for name in ("trace", "low", "high")),
            kind="95 % interval over random directions", trace="trace", low="trace_low", high="trace_high",
        )  # fmt: skip
        text = (
            f"In a random direction of length 1 it bends by {plus_minus(number)} on average: the sum of all "
            f"eigenvalues, divided by the {weights:,} weights."
        )
        yield Statement(text, number, SHARPNESS)


def _edge(curvature: CurvatureData, evidence: Evidence) -> Iterator[Statement]:
    """Yields how the sharpness compares with gradient descent's limit, where its learning rate was recorded."""
    rate = curvature.attributes.get("learning_rate")
    rate = rate.get(str(curvature.number[0])) if isinstance(rate, Mapping) else rate
    if isinstance(rate, int | float) and rate > 0:
        number = eigenvalue(evidence, 0, form=f"({{}}) * {rate:.10g} / 2", kind="from its residual")
        text = (
            f"The largest eigenvalue is {plus_minus(number)} times 2 / learning rate, above which gradient descent "
            "without momentum cannot settle (Cohen et al. 2021)."
        )
        yield Statement(text, number, ALONG)


def _over_the_run(along: CurvatureData) -> Iterator[Statement]:
    rows = np.flatnonzero(np.isfinite(along.eigenvalues[:, 0]))
    if len(rows) < 2:
        return
    evidence, unit = Evidence.of_curvature(along), along.attributes["unit"]
    last, top = int(rows[-1]), int(rows[np.argmax(along.eigenvalues[rows, 0])])
    if top == last or along.eigenvalues[top, 0] <= 0:
        number = eigenvalue(evidence, 0, last)
        text = (
            f"Of {len(rows)} checkpoints none is sharper than the last one, {unit} {along.number[last]}, with a "
            f"largest eigenvalue of {plus_minus(number)}."
        )
    else:
        end, other = (f"(values[{row}, 0] {{}} residuals[{row}, 0])" for row in (last, top))
        number = evidence.number(
            f"values[{last}, 0] / values[{top}, 0]",
            *(f"{end.format(sign)} / {other.format(opposite)}" for sign, opposite in ("-+", "+-")),
            kind="from the residuals of both", values="eigenvalues", residuals="residuals",
        )  # fmt: skip
        text = (
            f"Of {len(rows)} checkpoints, {unit} {along.number[top]} is the sharpest, with a largest eigenvalue of "
            f"{along.eigenvalues[top, 0]:.4g}; that of the last one is {plus_minus(number)} of it."
        )
    yield Statement(text, number, ALONG)


def _ring(around: LandscapeData) -> Number | None:
    """Returns how far the loss differs on a ring around the end: the mean, the least and the most."""
    x, y = around.x, around.y
    if y is None or not np.isfinite(around.origin.metrics["loss"]):
        return None
    width = float(max(np.diff(x).max(), np.diff(y).max())) / 2
    across, along = "x[None, :]", "y[:, None]"
    length = f"sqrt({across} ** 2 + {along} ** 2 + 2 * cosine * {across} * {along})"
    inside = f"abs({length} - {RADIUS:g}) <= {width:.10g}"
    # Points of a grid are not all on the ring; near a stationary point the loss differs by the square of the distance.
    scaling = f"({RADIUS:g} / maximum({length}, {width:.10g})) ** 2"
    number = Evidence.of_landscape(around).number(
        *(f"{name}(((loss - end) * {scaling})[{inside}])" for name in ("nanmean", "nanmin", "nanmax")),
        kind="the least and the most over directions, scaled to the radius by its square", x="x", y="y", loss="loss",
        end="origin/loss", cosine="directions/cosine",
    )  # fmt: skip
    return number if math.isfinite(number.value) else None
