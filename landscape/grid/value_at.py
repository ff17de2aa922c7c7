"""A value at any place of a measured landscape: the measurement itself, or what lies between measurements."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from collectors.shapes import Float64
from collectors.validation import check_float, wrong_value

from ..record.checks import PointStatus
from .data import LOSS_ERROR, LandscapeData

_SAME_PLACE = 1e-9
"""Of an axis' width: two coordinates that are closer are one."""


@dataclass(frozen=True)
class ValueAt:
    """A metric at one place of a landscape.

    Attributes:
        value: of the metric; NaN where a value that it needs is missing.
        measured: whether it was measured at exactly this place.
        metric: which one.
        x: first coordinate of the place.
        y: second coordinate, or None on a line.
        nearest: coordinates of the nearest point that was measured, (x, y) or (x,); distances count in shares of the
            axes' widths. None where nothing is measured yet.
        nearest_value: the metric there; NaN where nothing is measured yet.
        estimated_error: of the value: 0 where it was measured; adaptive sampling's estimate at a grid point that it
            interpolated; None where none is known, which is everywhere between the points of the grid.
    """

    value: float
    measured: bool
    metric: str
    x: float
    y: float | None
    nearest: tuple[float, ...] | None
    nearest_value: float
    estimated_error: float | None


def value_at(data: LandscapeData, x: float, y: float | None = None, metric: str = "loss") -> ValueAt:
    """Returns a metric at a place of the grid; ``Landscape.at`` explains it."""
    values = data[metric]
    place = _checked(data, x, y)
    axes = [data.x] if data.y is None else [data.x, data.y]
    # Rows are y.
    cells = [_between(axis, value) for axis, value in zip(axes, place, strict=True)][::-1]
    value, corners = 0.0, []
    for picks in itertools.product(*cells):
        share = math.prod(share for _, share in picks)
        if share:
            corner = tuple(index for index, _ in picks)
            corners.append(corner)
            value += share * float(values[corner])
    status = PointStatus(int(data.status[corners[0]])) if len(corners) == 1 else None
    measured = status == PointStatus.MEASURED
    estimates = data.metrics.get(LOSS_ERROR) if metric == "loss" else None
    error = float(estimates[corners[0]]) if status == PointStatus.INTERPOLATED and estimates is not None else None
    nearest, nearest_value = None, math.nan
    if (known := data.status == PointStatus.MEASURED).any():
        shares = [(axis - value) / (np.ptp(axis) or 1.0) for axis, value in zip(axes, place, strict=True)]
        squares = shares[0] ** 2 if len(shares) == 1 else shares[1][:, None] ** 2 + shares[0] ** 2
        point = np.unravel_index(int(np.where(known, squares, np.inf).argmin()), data.shape)
        nearest = tuple(float(axis[index]) for axis, index in zip(axes, reversed(point), strict=True))
        nearest_value = float(values[point])
    second = None if data.y is None else place[1]
    return ValueAt(value, measured, metric, place[0], second, nearest, nearest_value, 0.0 if measured else error)


def _checked(data: LandscapeData, x: object, y: object) -> list[float]:
    if (y is None) != (data.y is None):
        kind = "a line has one coordinate: at(x)" if data.y is None else "a plane has two coordinates: at(x, y)"
        raise ValueError(f"y must be {'left out' if data.y is None else 'given'}; {kind}.")
    place = []
    for name, value, axis in (("x", x, data.x), ("y", y, data.y)):
        if axis is None:
            continue
        found = check_float(name, value)
        slack = _SAME_PLACE * float(axis[-1] - axis[0])
        if not axis[0] - slack <= found <= axis[-1] + slack:
            span = f"from {axis[0]:.6g} to {axis[-1]:.6g}"
            raise wrong_value(name, f"a coordinate of the grid, {span} (measure_points measures anywhere)", value)
        place.append(found)
    return place


def _between(axis: Float64[np.ndarray, " n"], value: float) -> list[tuple[int, float]]:
    """Returns the points on both sides of a coordinate with their shares; one point alone where it lies on it."""
    nearest = int(np.abs(axis - value).argmin())
    if abs(axis[nearest] - value) <= _SAME_PLACE * (axis[-1] - axis[0]):
        return [(nearest, 1.0)]
    after = int(np.searchsorted(axis, value))
    share = float((value - axis[after - 1]) / (axis[after] - axis[after - 1]))
    return [(after - 1, 1 - share), (after, share)]
