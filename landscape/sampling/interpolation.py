"""From the values on a grid to those on the next finer one, and what lies around a point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Bool, Float64

from .grid_levels import Step

_EXTENSION = 3


def spline(values: Float64[np.ndarray, "ny nx"], step: Step) -> Float64[np.ndarray, "ny2 nx2"]:
    """Returns the cubic spline (tensor product, not-a-knot) through finite values on the finer grid (de Boor 1978)."""
    # Of the interpolants tried on surfaces of trained networks (quintic and septic splines, Akima, monotone cubics,
    # radial functions between two orders), it has the smallest error at the same number of points: a network with ReLUs
    # has no high derivatives to exploit.
    from scipy.interpolate import make_interp_spline

    for axis, (coarse, fine) in enumerate(zip(step.coarse, step.fine, strict=True)):
        if len(coarse) < len(fine):
            values = make_interp_spline(coarse, values, k=min(3, len(coarse) - 1), axis=axis)(fine)
    return values


def linear(values: Float64[np.ndarray, "ny nx"], step: Step) -> Float64[np.ndarray, "ny2 nx2"]:
    """Returns the bilinear interpolant on the finer grid; it is NaN wherever a value that it needs is."""
    for axis, (coarse, fine) in enumerate(zip(step.coarse, step.fine, strict=True)):
        before, after = step.before[axis], step.after[axis]
        width = np.maximum(coarse[after] - coarse[before], 1)
        weight = np.expand_dims((fine - coarse[before]) / width, 1 - axis)
        low, high = np.take(values, before, axis), np.take(values, after, axis)
        values = np.where(weight == 0, low, (1 - weight) * low + weight * high)
    return values


def extend(values: Float64[np.ndarray, "ny nx"], holes: Bool[np.ndarray, "ny nx"]) -> Float64[np.ndarray, "ny nx"]:
    """Returns the values with smooth numbers in the holes, so that a spline can be fitted beside them."""
    # Nothing of this is ever shown: a point between a hole and a value is measured. The next points in a hole continue
    # the parabola of their neighbours along rows and columns; those further in take the nearest.
    if not holes.any():
        return values
    if holes.all():
        return np.zeros_like(values)
    values, holes = np.where(holes, np.nan, values), holes.copy()
    for _ in range(_EXTENSION):
        guesses = np.array([_continued(values, turns) for turns in (0, 2, 3, 1)])
        known = np.isfinite(guesses)
        count = known.sum(0)
        reached = holes & (count > 0)
        values = np.where(reached, np.where(known, guesses, 0).sum(0) / np.maximum(count, 1), values)
        holes &= ~reached
    return nearest(values, ~holes) if holes.any() else values


def nearest(values: Float64[np.ndarray, "ny nx"], sources: Bool[np.ndarray, "ny nx"]) -> Float64[np.ndarray, "ny nx"]:
    from scipy.ndimage import distance_transform_edt

    return np.asarray(values[tuple(distance_transform_edt(~sources, return_distances=False, return_indices=True))])


def _continued(values: Float64[np.ndarray, "ny nx"], turns: int) -> Float64[np.ndarray, "ny nx"]:
    """Returns how values go on down the columns, after so many quarter turns of the array."""
    turned = np.rot90(values, turns)
    first, second, third = (
        np.pad(turned, ((distance, 0), (0, 0)), constant_values=np.nan)[: len(turned)] for distance in (1, 2, 3)
    )
    straight = np.where(np.isfinite(second), 2 * first - second, first)
    bent = np.where(np.isfinite(second) & np.isfinite(third), 3 * first - 3 * second + third, straight)
    return np.rot90(bent, -turns)


def window_sum(values: Float64[np.ndarray, "ny nx"], radius: int) -> Float64[np.ndarray, "ny nx"]:
    """Returns the sum over the square window around each point; each is added up by itself, so that nothing cancels."""
    from scipy.ndimage import convolve1d

    for axis in (0, 1):
        values = convolve1d(values, np.ones(2 * radius + 1), axis, mode="constant")
    return values


def window_maximum(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the largest value among each point and its eight neighbours; of booleans, whether one is true."""
    from scipy.ndimage import maximum_filter

    return np.asarray(maximum_filter(values, 3, mode="nearest"))


def largest_parent(values: NDArray[Any], step: Step) -> NDArray[Any]:
    """Returns, for each point of the finer grid, the largest of the coarse values around it, numbers or booleans."""
    rows = np.maximum(values[step.before[0]], values[step.after[0]])
    return np.asarray(np.maximum(rows[:, step.before[1]], rows[:, step.after[1]]))
