"""Grids that share points with another one: where two axes coincide, and axes that are finer or wider."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from collectors.shapes import Float64, Int64

# Of the axis' width. The last bits of projected checkpoints may differ between machines.
_CLOSENESS = 1e-9


def coinciding(
    axis: Float64[np.ndarray, " n"], other: Float64[np.ndarray, " m"]
) -> tuple[Int64[np.ndarray, " both"], Int64[np.ndarray, " both"]]:
    """Returns increasing indices into two increasing axes of the coordinates that agree to 1e-9 of the axes' width."""
    width = max(float(np.ptp(axis)), float(np.ptp(other))) or float(abs(axis[0]))
    gap = min((float(np.diff(item).min()) for item in (axis, other) if len(item) > 1), default=math.inf)
    # Less than half a gap, so that no coordinate has two partners.
    near = min(_CLOSENESS * width, gap / 4)
    after = np.searchsorted(other, axis - near)
    found = (after < len(other)) & (other[np.minimum(after, len(other) - 1)] <= axis + near)
    return np.flatnonzero(found), after[found].astype(np.int64)


def is_even(axis: Float64[np.ndarray, " n"]) -> bool:
    return len(coinciding(axis, np.linspace(axis[0], axis[-1], len(axis)))[0]) == len(axis)


def finer_axis(axis: Float64[np.ndarray, " n"], factor: int) -> Float64[np.ndarray, " finer"]:
    """Returns an axis that divides each cell into ``factor`` equal ones, and holds all coordinates as they are."""
    if is_even(axis):
        return axis_of_size(axis, (len(axis) - 1) * factor + 1)
    inside = [np.linspace(low, high, factor, endpoint=False) for low, high in pairwise(axis)]
    return np.append(np.concatenate(inside), axis[-1])


def axis_of_size(axis: Float64[np.ndarray, " n"], size: int) -> Float64[np.ndarray, " size"]:
    """Returns an evenly spaced axis with the same ends; what coincides with the given axis has its very bits."""
    return _like(axis, np.linspace(axis[0], axis[-1], size))


def nested_size(count: int, size: int) -> int:
    """Returns the number of points nearest to ``size`` with which an axis of ``count`` points keeps all of them."""
    return max(1, math.floor((size - 1) / (count - 1) + 0.5)) * (count - 1) + 1


def wider_axis(axis: Float64[np.ndarray, " n"], low: float, high: float) -> Float64[np.ndarray, " wider"]:
    """Returns an axis with whole cells added at the ends, until it reaches from ``low`` to ``high``, none removed."""
    if is_even(axis):
        step = float(axis[-1] - axis[0]) / (len(axis) - 1)
        steps = (step, step)
    else:
        steps = (float(axis[1] - axis[0]), float(axis[-1] - axis[-2]))
    missing = (float(axis[0]) - low, high - float(axis[-1]))
    # A cell that would be wider than needed by rounding alone is not added.
    before, after = (max(0, math.ceil(length / step - _CLOSENESS)) for length, step in zip(missing, steps, strict=True))
    low_cells = axis[0] - steps[0] * np.arange(before, 0, -1, dtype=np.float64)
    high_cells = axis[-1] + steps[1] * np.arange(1, after + 1, dtype=np.float64)
    return _like(axis, np.concatenate([low_cells, axis, high_cells]))


def _like(axis: Float64[np.ndarray, " n"], wanted: Float64[np.ndarray, " m"]) -> Float64[np.ndarray, " m"]:
    """Returns the wanted axis, exactly symmetric if both are so, with the given axis' bits where they coincide."""
    if (axis == -axis[::-1]).all():
        mirrored = (wanted - wanted[::-1]) / 2
        if len(coinciding(mirrored, wanted)[0]) == len(wanted):
            wanted = mirrored
    result = wanted.copy()
    places, kept = coinciding(wanted, axis)
    result[places] = axis[kept]
    return result
