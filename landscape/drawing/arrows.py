"""Which way a path goes: arrowheads at equal lengths along it, as the reader sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Float64


HEAD = 11.0
"""Length of an arrowhead on a screen, in points of 1/72 inch."""
# An arrowhead that points to the right: its tip, its wings, and the notch behind.
SHAPE = ((0.5, 0.0), (-0.5, 0.42), (-0.22, 0.0), (-0.5, -0.42), (0.5, 0.0))
_BETWEEN = 75.0
_FEWEST, _MOST = 3, 8


def arrow_places(points: Float64[np.ndarray, "n 2"], head: float = HEAD) -> NDArray[np.float64]:
    """Returns a path's arrowheads, in 1/72 inch: place (0 to n - 1), middle x and y, angle in radians; shape (k, 4)."""
    # The noise of single steps says nothing about the direction, and no head lies on a stretch shorter than itself.
    kept = _coarse(points, 1.5 * head)
    if len(kept) < 2:
        return np.empty((0, 4))
    start, end = points[kept[:-1]], points[kept[1:]]
    lengths = np.hypot(*(end - start).T)
    whole = float(lengths.sum())
    until = np.concatenate([[0.0], np.cumsum(lengths)])
    count = int(np.clip(round(whole / (_BETWEEN * head / HEAD)), min(_FEWEST, len(lengths)), _MOST))
    found = []
    for wanted in (np.arange(count) + 0.5) / count * whole:
        at = int(np.clip(np.searchsorted(until, wanted, side="right") - 1, 0, len(lengths) - 1))
        first, last = int(kept[at]), int(kept[at + 1])
        # Between two neighbours, clear of the dots at both ends; in the middle where they are near.
        room = min(head, lengths[at] / 2) if last == first + 1 else 0.0
        share = float(np.clip(wanted - until[at], room, lengths[at] - room) / lengths[at])
        place = first + share * (last - first)
        middle = np.array([np.interp(place, np.arange(len(points)), column) for column in points.T])
        way = end[at] - start[at]
        found.append([place, *middle, np.arctan2(way[1], way[0])])
    return np.array(found)


def _coarse(points: NDArray[Any], least: float) -> NDArray[np.intp]:
    """Returns which points to keep so that each is at least so far from the one before it."""
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    if not len(known):
        return known
    kept = [int(known[0])]
    for row in known[1:].tolist():
        if np.hypot(*(points[row] - points[kept[-1]])) >= least:
            kept.append(row)
    return np.array(kept, np.intp)
