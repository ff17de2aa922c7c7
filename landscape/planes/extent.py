"""How far a grid reaches: what a user may say of it, and the axes around checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from collectors.shapes import Float64
from collectors.validation import check_float, check_int, wrong_type, wrong_value
from workers.users_code import warn_user

MARGIN = 0.2
"""On each side of a path, as a share of its range."""
# More points than asked for, at most, so that a grid goes on to networks that were added.
_MOST_LONGER = 4
_EXPECTED = "two numbers (lowest, highest) for all axes, or four: (x0, x1, y0, y1)"


def check_extent(limits: object, margin: object) -> tuple[tuple[float, ...] | None, float | None]:
    if limits is not None and margin is not None:
        raise ValueError("limits= and margin= both say where the grid ends; give one of them.")
    return check_limits("limits", limits), check_margin("margin", margin)


def check_limits(name: str, limits: object) -> tuple[float, ...] | None:
    if limits is None:
        return None
    if isinstance(limits, str | bytes) or not isinstance(limits, Sequence | np.ndarray):
        raise wrong_type(name, _EXPECTED, limits)
    if len(limits) not in (2, 4):
        raise wrong_value(name, _EXPECTED, list(limits))
    values = tuple(check_float(f"{name}[{index}]", value) for index, value in enumerate(limits))
    for low, high in zip(values[::2], values[1::2], strict=True):
        if not low < high:
            raise wrong_value(name, "coordinates that increase from each lowest to its highest", list(values))
    return values


def check_margin(name: str, margin: object) -> float | None:
    return None if margin is None else check_float(name, margin, minimum=0.0)


def spans(limits: tuple[float, ...], dimension: int) -> list[tuple[float, float]]:
    """Returns lowest and highest coordinate of each axis, x first; two limits are those of every axis."""
    pairs = list(zip(limits[::2], limits[1::2], strict=True))
    if len(pairs) > dimension:
        raise wrong_value("limits", "two numbers for a line, which has no y", list(limits))
    return pairs * dimension if len(pairs) == 1 else pairs


def check_sizes(size: int | tuple[int, int], dimension: int) -> list[int]:
    if isinstance(size, tuple | list):
        if len(size) != dimension:
            raise wrong_value("size", f"an int, or {dimension} ints, one for each direction", size)
        return [check_int(f"size[{index}]", count, minimum=3) for index, count in enumerate(size)]
    return [check_int("size", size, minimum=3)] * dimension


def axes_around(
    coordinates: Sequence[Float64[np.ndarray, " n"]],
    sizes: Sequence[int],
    margin: float,
    norms: Float64[np.ndarray, " dimension"],
    longest: float,
) -> list[Float64[np.ndarray, " size"]]:
    """Returns axes around networks and a margin on each side; one along which they have no range gets a width."""
    axes = [axis_around(values, count, margin) for values, count in zip(coordinates, sizes, strict=True)]
    lengths = [(axis[-1] - axis[0]) * length for axis, length in zip(axes, norms, strict=True) if axis is not None]
    for index, (axis, values) in enumerate(zip(axes, coordinates, strict=True)):
        if axis is None:
            width = max(lengths, default=0.2 * longest) / norms[index]
            axes[index] = np.linspace(values[0] - width / 2, values[0] + width / 2, sizes[index])
            warn_user(f"the checkpoints have no range along {'xy'[index]}; that axis was given the width {width:.4g}.")
    return [axis for axis in axes if axis is not None]


def symmetric_axis(count: int, end: float) -> Float64[np.ndarray, " size"]:
    """Returns an axis to ``end`` on both sides that is exactly symmetric."""
    axis = np.linspace(-1.0, 1.0, count)
    return (axis - axis[::-1]) / 2 * end


def ends_holding(
    axis: Float64[np.ndarray, " own"], values: Float64[np.ndarray, " n"], margin: float
) -> tuple[float, float]:
    """Returns where an axis ends that holds the values too, with a margin beyond those that lie outside of it."""
    low, high = float(values.min(initial=axis[0])), float(values.max(initial=axis[-1]))
    room = margin * (high - low)
    return low - room if low < axis[0] else low, high + room if high > axis[-1] else high


def axis_reaching(axis: Float64[np.ndarray, " own"], first: float, last: float) -> Float64[np.ndarray, " size"]:
    """Returns an axis that is longer by whole steps, or spread anew from first to last where that takes too many."""
    step = float(axis[-1] - axis[0]) / (len(axis) - 1)
    before, after = (math.ceil(way / step - 1e-9) for way in (axis[0] - first, last - axis[-1]))
    if before + after > (_MOST_LONGER - 1) * len(axis):
        return np.linspace(first, last, len(axis))
    return np.concatenate([axis[0] - step * np.arange(before, 0, -1), axis, axis[-1] + step * np.arange(1, after + 1)])


def axis_around(values: Float64[np.ndarray, " n"], count: int, margin: float) -> Float64[np.ndarray, " size"] | None:
    """Returns an axis around the values and a margin on each side; None where they are all the same."""
    low, high = float(values.min()), float(values.max())
    width = high - low
    axis = np.linspace(low - margin * width, high + margin * width, count)
    return axis if np.all(np.diff(axis) > 0) else None
