"""Where the training went, and how much of that the plane shows."""

from __future__ import annotations

import numpy as np

from ..drawing.texts import unit_of
from ..grid.data import LandscapeData
from ..record.checks import PointStatus
from .statement import Answer, Evidence, Number, Statement, plus_minus

PATH = "path"
# Shares of the path's variance from which on the plane shows it, and below which it does not.
_SHOWN, _HIDDEN = 0.9, 0.5
_QUESTION = "Where did the training go, and how much of that does the plane show?"


def answer_path(landscape: LandscapeData | None, missing: str = "") -> Answer:
    """Answers from the plane of a run's principal directions; ``missing`` says why there is none."""
    if landscape is None:
        return Answer(PATH, _QUESTION, f"not known: {missing}", known=False)
    found, unit = landscape.checkpoints, unit_of(landscape)
    if found is None or not found.paths:
        return Answer(PATH, _QUESTION, "not known: the landscape has no path", known=False)
    evidence, rows = Evidence.of_landscape(landscape), found.paths[0]
    first, last = int(rows[0]), int(rows[-1])
    label = {row: f"{unit} {found.number[row]}" for row in rows.tolist()}
    shares = evidence.exact("ratio.sum()", ratio="directions/explained_variance_ratio")
    far = int(rows[np.argmax(found.residual[rows])])
    statements = [
        _statement(
            f"The weights of {label[first]} are {{}} away from those of {label[last]}, in Euclidean length.",
            evidence.exact(f"norm[{first}]", norm="checkpoints/norm"),
        ),
        *_change_of_loss(evidence, landscape, first, last, label),
        _statement(
            f"The plane holds {100 * shares.value:.3g} % of the variance of the {len(rows)} checkpoints of the path.",
            shares,
        ),
        _statement(
            f"The checkpoint that is furthest from the plane is {label[far]}: {{}} away, in Euclidean length.",
            evidence.exact(f"residual[{far}]", residual="checkpoints/residual"),
        ),
        *_lowest(evidence, landscape),
    ]
    share = f"{100 * shares.value:.3g} % of its variance"
    verdict = f"the plane does not show the path: it holds {share}"
    if shares.value >= _HIDDEN:
        part = "the path" if shares.value >= _SHOWN else "a part of the path"
        verdict = f"the plane shows {part}: it holds {share}"
    return Answer(PATH, _QUESTION, verdict, known=True, statements=tuple(statements))


def _change_of_loss(
    evidence: Evidence, landscape: LandscapeData, first: int, last: int, label: dict[int, str]
) -> list[Statement]:
    found = landscape.checkpoints
    if found is None or not np.isfinite(found.metrics["loss"][[first, last]]).all():
        return []
    # Of independent samples; the samples are the same, so that the true interval is usually shorter.
    error, places = f"hypot(stderr[{last}], stderr[{first}])", {"stderr": "checkpoints/loss_stderr"}
    change = evidence.mean(f"loss[{last}] - loss[{first}]", error, loss="checkpoints/loss", **places)
    ends = " to ".join(f"{found.metrics['loss'][row]:.4g}" for row in (first, last))
    text = f"From {label[first]} to {label[last]} the loss went from {ends}, a change of {{}}."
    return [_statement(text, change)]


def _lowest(evidence: Evidence, landscape: LandscapeData) -> list[Statement]:
    """Returns how far the lowest measured point of the plane is below the end."""
    measured = (landscape.status == PointStatus.MEASURED) & np.isfinite(landscape.loss)
    if not measured.any() or not np.isfinite(landscape.origin.metrics["loss"]):
        return []
    row, column = (
        int(place) for place in np.unravel_index(np.argmin(np.where(measured, landscape.loss, np.inf)), landscape.shape)
    )
    number = evidence.mean(
        f"loss[{row}, {column}] - end", f"hypot(stderr[{row}, {column}], end_stderr)", loss="loss", end="origin/loss",
        stderr="loss_stderr", end_stderr="origin/loss_stderr",
    )  # fmt: skip
    where = f"at x = {landscape.x[column]:.3g}, y = {landscape.y[row]:.3g}" if landscape.y is not None else ""
    if number.value >= 0:
        text = "No measured point of the plane is lower than the end of the path: the lowest one differs by {}."
        return [_statement(text, number)]
    sure = ", which these samples cannot tell from none" if number.high >= 0 else ""
    text = f"The lowest measured point of the plane, {where}, differs from the end of the path by {{}}{sure}."
    return [_statement(text, number)]


def _statement(text: str, number: Number) -> Statement:
    return Statement(text.format(plus_minus(number)), number, PATH)
