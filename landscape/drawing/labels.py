"""Which labels beside points of a picture have room."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Bool, Float64


# Where a label may lie beside its point, the best place first.
_DIRECTIONS = ((0, 1), (1, 0), (-1, 0), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))


def free(boxes: NDArray[Any], taken: NDArray[Any]) -> list[int]:
    """Returns which boxes to keep so that none covers another kept one or a taken one, earlier ones first."""
    kept: list[int] = []
    for index, box in enumerate(boxes):
        if not overlaps(box, np.vstack([taken.reshape(-1, 4), boxes[kept].reshape(-1, 4)])).any():
            kept.append(index)
    return kept


def place_labels(
    points: Float64[np.ndarray, "n 2"],
    sizes: Float64[np.ndarray, "n 2"],
    order: Sequence[int],
    frame: Float64[np.ndarray, " 4"],
    taken: Float64[np.ndarray, "m 4"],
    gap: float,
    clear: Float64[np.ndarray, "k 2"] | None = None,
) -> dict[int, tuple[float, float]]:
    """Chooses which points get a label, and where.

    Args:
        points: what is labelled, in points of 1/72 inch.
        sizes: width and height of each label.
        order: indices of the points to label, the most important first.
        frame: left, bottom, right, top of the room there is.
        taken: boxes (left, bottom, right, top) that must stay free.
        gap: distance between a point and its label.
        clear: points that no label may cover; None is the points, and the line that joins them in their order.

    Returns:
        Index to the label's centre, for those that found a place.
    """
    boxes = np.array(taken, np.float64).reshape(-1, 4)
    clear = along(points, step=1.5) if clear is None else clear
    placed: dict[int, tuple[float, float]] = {}
    for index in order:
        width, height = sizes[index]
        for right, up in _DIRECTIONS:
            x = points[index, 0] + right * (gap + width / 2)
            y = points[index, 1] + up * (gap + height / 2)
            box = np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
            inside = (box[:2] >= frame[:2]).all() and (box[2:] <= frame[2:]).all()
            if inside and not overlaps(box, boxes).any() and not contains(box, clear).any():
                boxes = np.vstack([boxes, box])
                placed[index] = (float(x), float(y))
                break
    return placed


def overlaps(box: Float64[np.ndarray, " 4"], boxes: Float64[np.ndarray, "m 4"]) -> Bool[np.ndarray, " m"]:
    """Returns which of the boxes (left, bottom, right, top) share room with one."""
    return np.asarray((box[:2] < boxes[:, 2:]).all(axis=1) & (box[2:] > boxes[:, :2]).all(axis=1))


def contains(box: Float64[np.ndarray, " 4"], points: Float64[np.ndarray, "n 2"]) -> Bool[np.ndarray, " n"]:
    """Returns which of the points lie in a box."""
    return np.asarray(((points > box[:2]) & (points < box[2:])).all(axis=1))


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
