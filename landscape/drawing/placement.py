"""What has room in a picture: labels beside points, arrowheads along a path, marks that do not touch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Bool, Float64

# Where a label may lie beside its point: the usual places, the best one first, and then any.
_DIRECTIONS = ((0, 1), (1, 0), (-1, 0), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_AROUND = [np.array([math.cos(angle), math.sin(angle)]) for angle in np.linspace(0, 2 * math.pi, 24, endpoint=False)]
HEAD = 11.0
"""Length of an arrowhead on a screen, in points of 1/72 inch."""
# Between two arrowheads on a screen, and how many a path has.
_BETWEEN = 75.0
_FEWEST, _MOST = 3, 8


def free(boxes: NDArray[Any], occupied: NDArray[Any]) -> list[int]:
    """Returns which boxes to keep so that none covers another kept one or a taken one, earlier ones first."""
    kept: list[int] = []
    for index, box in enumerate(boxes):
        if not overlaps(box, np.vstack([occupied.reshape(-1, 4), boxes[kept].reshape(-1, 4)])).any():
            kept.append(index)
    return kept


def place_labels(
    points: Float64[np.ndarray, "n 2"],
    sizes: Float64[np.ndarray, "n 2"],
    order: Sequence[int],
    frame: Float64[np.ndarray, " 4"],
    occupied: Float64[np.ndarray, "m 4"],
    gap: float,
    clear: Float64[np.ndarray, "k 2"],
) -> dict[int, tuple[float, float]]:
    """Returns the centres of labels that find room, by index, earlier in ``order`` first; all lengths in 1/72 inch."""
    boxes, rivals = np.array(occupied, np.float64).reshape(-1, 4), points[np.isfinite(points).all(axis=1)]
    placed: dict[int, tuple[float, float]] = {}
    for index in order:
        size, point = sizes[index], points[index]
        offsets = [np.array(way) * (gap + size / 2) for way in _DIRECTIONS]
        offsets += [way * (gap + np.abs(way) @ size / 2) for way in _AROUND]
        for offset in offsets:
            middle = point + offset
            box = np.concatenate([middle - size / 2, middle + size / 2])
            inside = (box[:2] >= frame[:2]).all() and (box[2:] <= frame[2:]).all()
            covers = ((clear > box[:2]) & (clear < box[2:])).all(axis=1).any()
            # What is nearest to a label is its point, or a rival beside that.
            distances = np.hypot(*(rivals - middle).T)
            stands = not (distances < np.hypot(*(point - middle))).any()
            stands = stands or np.hypot(*(rivals[distances.argmin()] - point)) <= gap / 2
            if inside and not covers and stands and not overlaps(box, boxes).any():
                boxes = np.vstack([boxes, box])
                placed[index] = (float(middle[0]), float(middle[1]))
                break
    return placed


def overlaps(box: Float64[np.ndarray, " 4"], boxes: Float64[np.ndarray, "m 4"]) -> Bool[np.ndarray, " m"]:
    """Returns which of the boxes (left, bottom, right, top) share room with one."""
    return np.asarray((box[:2] < boxes[:, 2:]).all(axis=1) & (box[2:] > boxes[:, :2]).all(axis=1))


def most_telling(count: int) -> list[int]:
    """Returns 0 to count - 1 with the ends first, then what halves the rest, again and again."""
    order = [0, count - 1]
    stride = count
    while stride > 1:
        stride = (stride + 1) // 2
        order += range(0, count, stride)
    return list(dict.fromkeys(index for index in order if 0 <= index < count))


def along(points: NDArray[Any], step: float) -> NDArray[Any]:
    """Returns points at most ``step`` apart on the line that joins points in their order, shape (k, 2)."""
    if len(points) < 2:
        return points
    pieces = []
    for start, end in itertools.pairwise(points):
        count = int(min(np.hypot(*(end - start)) // step + 1, 200))
        pieces.append(start + (end - start) * np.linspace(0, 1, count, endpoint=False)[:, None])
    return np.vstack([*pieces, points[-1:]])


def interpolated(values: NDArray[Any], places: Any) -> NDArray[np.float64]:
    """Returns rows of ``values`` at fractional places from 0 to n - 1, of shape (*places, columns)."""
    number = np.arange(len(values))
    return np.stack([np.interp(places, number, column) for column in values.T], axis=-1)


def arrow_places(points: Float64[np.ndarray, "n 2"], head: float = HEAD) -> NDArray[np.float64]:
    """Returns a path's arrowheads, in 1/72 inch: place (0 to n - 1), middle x and y, angle in radians; shape (k, 4)."""
    # The noise of single steps says nothing about the direction, and no head lies on a stretch shorter than itself.
    kept: list[int] = []
    for row in np.flatnonzero(np.isfinite(points).all(axis=1)).tolist():
        if not kept or np.hypot(*(points[row] - points[kept[-1]])) >= 1.5 * head:
            kept.append(row)
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
        first, last = kept[at], kept[at + 1]
        # Between two neighbours, clear of the dots at both ends; in the middle where they are near.
        room = min(head, lengths[at] / 2) if last == first + 1 else 0.0
        share = float(np.clip(wanted - until[at], room, lengths[at] - room) / lengths[at])
        place = first + share * (last - first)
        way = end[at] - start[at]
        found.append([place, *interpolated(points, place), np.arctan2(way[1], way[0])])
    return np.array(found)


def apart(points: NDArray[Any], order: Sequence[int], least: float) -> NDArray[np.intp]:
    """Returns which points to keep, earlier ones of the order first, so that no two are nearer than that; ascending."""
    kept: list[int] = []
    for row in order:
        near = np.hypot(*(points[kept] - points[row]).T) < least
        if np.isfinite(points[row]).all() and not near.any():
            kept.append(row)
    return np.sort(np.array(kept, np.intp))
