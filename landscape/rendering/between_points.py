"""What is drawn between the points of a grid: a smooth surface through every point, or a straight one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_choice

if TYPE_CHECKING:
    from jaxtyping import Float64


INTERPOLATIONS = ("smooth", "linear")


def refine_axis(axis: Float64[np.ndarray, " n"], factor: int) -> Float64[np.ndarray, " m"]:
    """Returns coordinates with ``factor`` equal steps in place of each step, shape ((n - 1) factor + 1,)."""
    number = np.arange(len(axis))
    return np.asarray(np.interp(np.arange((len(axis) - 1) * factor + 1) / factor, number, axis))


def refine(
    x: Float64[np.ndarray, " nx"],
    y: Float64[np.ndarray, " ny"],
    heights: Float64[np.ndarray, "ny nx"],
    factor: int,
    interpolation: str = "smooth",
) -> Float64[np.ndarray, "my mx"]:
    """Returns heights on a grid with ``factor`` steps in place of each step; a cell with a NaN corner is NaN.

    "smooth" is the mean of monotone cubics along x then y and along y then x (Fritsch and Butland 1984), "linear" is
    bilinear. Both stay between the lowest and the highest of the four points around.
    """
    linear = check_choice("interpolation", interpolation, INTERPOLATIONS) == "linear"
    rows_first = _refine_columns(y, _refine_columns(x, heights.T, factor, linear=linear).T, factor, linear=linear)
    if linear:
        return rows_first
    columns_first = _refine_columns(x, _refine_columns(y, heights, factor, linear=linear).T, factor, linear=linear).T
    found = 0.5 * (rows_first + columns_first)
    found[::factor, ::factor] = heights
    return np.asarray(found)


def _refine_columns(axis: NDArray[Any], values: NDArray[Any], factor: int, *, linear: bool) -> NDArray[Any]:
    """Returns values between those along the first axis; values at the points stay as they are."""
    found = np.empty(((len(axis) - 1) * factor + 1, values.shape[1]))
    found[::factor] = values
    if len(axis) < 2:
        return found
    steps = np.diff(axis)[:, None]
    secants = np.diff(values, axis=0) / steps
    slopes = None if linear else _monotone_slopes(steps, secants)
    for part in range(1, factor):
        share = part / factor
        between = values[:-1] + share * steps * secants
        if slopes is not None:
            # Hermite's cubic, as what it adds to the straight line.
            ahead, behind = slopes[:-1] - secants, slopes[1:] - secants
            between += share * (1 - share) * steps * ((1 - share) * ahead - share * behind)
        found[part::factor] = between
    return found


def _monotone_slopes(steps: NDArray[Any], secants: NDArray[Any]) -> NDArray[Any]:
    """Returns slopes at the points with which a cubic never leaves the values at its two ends."""
    if len(steps) == 1:
        return np.asarray(np.nan_to_num(secants[[0, 0]]))
    slopes = np.zeros((len(steps) + 1, secants.shape[1]))
    before, after = secants[:-1], secants[1:]
    longer, shorter = 2 * steps[1:] + steps[:-1], steps[1:] + 2 * steps[:-1]
    same = before * after > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        harmonic = (longer + shorter) / (longer / before + shorter / after)
    slopes[1:-1] = np.where(same, harmonic, 0.0)
    # Beside a hole and at the edge the surface ends straight.
    slopes[1:-1] = np.where(np.isnan(before), after, np.where(np.isnan(after), before, slopes[1:-1]))
    slopes[[0, -1]] = secants[[0, -1]]
    return np.asarray(np.nan_to_num(slopes))
