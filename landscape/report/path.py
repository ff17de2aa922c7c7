"""Where the training went, and how much of that the plane shows."""

from __future__ import annotations

import numpy as np

from ..drawing.texts import unit_of
from ..grid.data import LandscapeData
from ..record.checks import PointStatus
from .measuring import Findings
from .statement import Answer, Evidence, Number, Statement, Unknown, plus_minus

PATH = "path"
# Shares of the path's variance from which on the plane shows it, and below which it does not.
_SHOWN, _HIDDEN = 0.9, 0.5
_QUESTION = "Where did the training go, and how much of that does the plane show?"


def answer_path(findings: Findings) -> Answer:
    """Answers from the plane of a run's principal directions."""
    landscape = findings.path
    found = None if landscape is None else landscape.checkpoints
    if landscape is None or found is None or not found.paths:
        reason = findings.missing.get("path", "") if landscape is None else "the landscape has no path"
        return Answer.of(PATH, _QUESTION, [Unknown(f"not known: {reason}")])
    evidence, unit, rows = Evidence.of_landscape(landscape), unit_of(landscape), found.paths[0]
    first, last = int(rows[0]), int(rows[-1])
    label = {row: f"{unit} {found.number[row]}" for row in rows.tolist()}
    shares = evidence.exact("ratio.sum()", ratio="directions/explained_variance_ratio")
    share = f"{100 * shares.value:.3g} %"
    far = int(rows[np.argmax(found.residual[rows])])
    statements = [
        _statement(
            f"The weights of {label[first]} are {{}} away from those of {label[last]}, in Euclidean length.",
            evidence.exact(f"norm[{first}]", norm="checkpoints/norm"),
        )
    ]
    losses = found.metrics["loss"][[first, last]]
    if np.isfinite(losses).all():
        # Of independent samples; the samples are the same, so that the true interval is usually shorter.
        error, places = f"hypot(stderr[{last}], stderr[{first}])", {"stderr": "checkpoints/loss_stderr"}
        change = evidence.mean(f"loss[{last}] - loss[{first}]", error, loss="checkpoints/loss", **places)
        ends = f"{losses[0]:.4g} to {losses[1]:.4g}"
        text = f"From {label[first]} to {label[last]} the loss went from {ends}, a change of {{}}."
        statements.append(_statement(text, change))
    statements += [
        _statement(f"The plane holds {share} of the variance of the {len(rows)} checkpoints of the path.", shares),
        _statement(
            f"The checkpoint that is furthest from the plane is {label[far]}: {{}} away, in Euclidean length.",
            evidence.exact(f"residual[{far}]", residual="checkpoints/residual"),
        ),
        *_lowest(evidence, landscape),
    ]
    shown = "shows the path" if shares.value >= _SHOWN else "shows a part of the path"
    verdict = f"the plane {shown if shares.value >= _HIDDEN else 'does not show the path'}: it holds {share}"
    return Answer.of(PATH, _QUESTION, [f"{verdict} of its variance"], statements)


def _lowest(evidence: Evidence, landscape: LandscapeData) -> list[Statement]:
    """Returns how far the lowest measured point of the plane is below the end."""
    measured = (landscape.status == PointStatus.MEASURED) & np.isfinite(landscape.loss)
    if not measured.any() or not np.isfinite(landscape.origin.metrics["loss"]):
        return []
    lowest = np.unravel_index(np.argmin(np.where(measured, landscape.loss, np.inf)), landscape.shape)
    row, column = (int(place) for place in lowest)
    number = evidence.mean(
        f"loss[{row}, {column}] - end", f"hypot(stderr[{row}, {column}], end_stderr)", loss="loss", end="origin/loss",
        stderr="loss_stderr", end_stderr="origin/loss_stderr",
    )  # fmt: skip
    if number.value >= 0:
        text = "No measured point of the plane is lower than the end of the path: the lowest one differs by {}."
        return [_statement(text, number)]
    where = f"at x = {landscape.x[column]:.3g}, y = {landscape.y[row]:.3g}" if landscape.y is not None else ""
    sure = ", which these samples cannot tell from none" if number.high >= 0 else ""
    text = f"The lowest measured point of the plane, {where}, differs from the end of the path by {{}}{sure}."
    return [_statement(text, number)]


def _statement(text: str, number: Number) -> Statement:
    return Statement(text.format(plus_minus(number)), number, PATH)
