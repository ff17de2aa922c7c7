"""What is said of each network of a comparison: numbers made of the losses along its lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import error_message
from ..record.checks import PointStatus
from .data import ComparisonData

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64

RISE = "rise_at_radius"
_LARGEST = 1e60  # squares of squares of it are numbers still


@dataclass(frozen=True)
class Measure:
    """A number of a network.

    Attributes:
        text: what it is; "{radius}" and "{rise}" stand for the comparison's.
        lower: what texts call a recipe for which it is lower.
        higher: what texts call one for which it is higher.
    """

    text: str
    lower: str = "flatter"
    higher: str = "sharper"


MEASURES = {
    RISE: Measure("rise of the loss at radius {radius:g}, the mean over directions"),
    "steepest_rise": Measure("rise of the loss at radius {radius:g}, along the steepest of the directions"),
    "radius_of_rise": Measure("radius at which the loss has risen by {rise:g}", lower="sharper", higher="flatter"),
    "loss": Measure("loss of the networks themselves", lower="lower in loss", higher="higher in loss"),
    "trace": Measure("trace of the loss's Hessian, by random lines"),
}


def measure_text(data: ComparisonData, measure: str) -> str:
    """Returns what a measure is."""
    return MEASURES[measure].text.format(radius=data.attributes["radius"], rise=data.attributes["rise"])


def left_out(data: ComparisonData) -> dict[int, str]:
    """Returns the rows of the networks that do not count, with the reason."""
    found = {}
    wanted = _wanted(data)
    for row in range(len(data.recipe)):
        states = data.status[row, :wanted]
        failures = [text for place, text in sorted(data.errors.items()) if f"{place}/".startswith(f"network/{row}/")]
        if failures:
            found[row] = error_message(failures[0])
        elif len(states) < wanted or (states == PointStatus.PENDING).any():
            found[row] = f"{int((states == PointStatus.MEASURED).sum())} of {wanted} lines are measured"
        elif (states == PointStatus.FAILED).any():
            found[row] = "a line failed"
        elif not (np.abs(data.loss[row, :wanted]) < _LARGEST).all():
            found[row] = "the loss is not a finite number along one of its lines"
    return found


def rows_of(data: ComparisonData, recipe: str) -> Int64[np.ndarray, " networks"]:
    """Returns the rows of the networks of a recipe that count."""
    out = left_out(data)
    return np.array([row for row, own in enumerate(data.recipe) if own == recipe and row not in out], np.int64)


def curves_of(data: ComparisonData) -> Float64[np.ndarray, "n directions points"]:
    """Returns how far the loss rises from each network, along the directions of the last call."""
    losses = data.loss[:, : _wanted(data)]
    with np.errstate(all="ignore"):  # of networks that do not count
        rises: Float64[np.ndarray, "n directions points"] = losses - losses[:, :, [len(data.t) // 2]]
    return rises


def rises_of(data: ComparisonData) -> Float64[np.ndarray, "n directions"]:
    """Returns the rise at the radius along each line, the mean of its two ends."""
    curves = curves_of(data)
    with np.errstate(all="ignore"):
        rises: Float64[np.ndarray, "n directions"] = (curves[:, :, 0] + curves[:, :, -1]) / 2
    return rises


def block_rises_of(data: ComparisonData) -> Float64[np.ndarray, "n directions blocks"]:
    """Returns the rise along each line for each block of samples; one block of all where samples have no losses."""
    if not data.block_size.size:
        return rises_of(data)[:, :, np.newaxis]
    return data.block_rise[:, : _wanted(data)]


def values_of(data: ComparisonData, measure: str) -> Float64[np.ndarray, " n"]:
    """Returns one of ``MEASURES`` of each network; NaN where it is not measured, or where a rise is not reached."""
    if measure == "trace":
        return data.trace
    middle = len(data.t) // 2
    if measure == "loss":
        losses: Float64[np.ndarray, " n"] = data.loss[:, 0, middle]
        return losses
    if measure == "radius_of_rise":
        with np.errstate(all="ignore"):
            mean = curves_of(data).mean(1)
            both = (mean[:, middle:] + mean[:, middle::-1]) / 2
        return np.array([_first_at(data.t[middle:], curve, data.attributes["rise"]) for curve in both])
    rises = rises_of(data)
    with np.errstate(all="ignore"):
        found: Float64[np.ndarray, " n"] = rises.mean(1) if measure == RISE else rises.max(1)
    return found


def _wanted(data: ComparisonData) -> int:
    return int(data.attributes["directions"])


def _first_at(radius: Float64[np.ndarray, " r"], curve: Float64[np.ndarray, " r"], rise: float) -> float:
    """Returns the first radius at which a curve has risen so far; between its places it is taken for a parabola."""
    if not np.isfinite(curve).all() or curve.max() < rise:
        return float("nan")
    after = int(np.argmax(curve >= rise))
    heights = np.sqrt(np.maximum(curve[after - 1 : after + 1], 0))
    return float(np.interp(np.sqrt(rise), heights, radius[after - 1 : after + 1]))
