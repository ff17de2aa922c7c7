"""Grids: nested ones, coarse to fine, which are measured and whose cells pictures show; and axes that share points."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from collectors.shapes import Bool, Float64, Int64, UInt8

from ..record.checks import PointStatus

# A first grid of 13 x 13 shows the shape of every trained network's surface that was tried, and leaves most of the
# points to where they are needed. Of a smooth surface the next coarser grid suffices; so many others test that.
SMOOTHNESS_TESTS = 24
_FIRST_INTERVALS = 12
_FIRST_INTERVALS_OF_A_LINE = 32
_COARSER_LEVELS = 2
# From the middle of a square cell to its corner, with room for rounding.
_CORNER = math.sqrt(0.5) + 1e-9
# Of the axis' width. The last bits of projected checkpoints may differ between machines.
_CLOSENESS = 1e-9


@dataclass(frozen=True)
class Step:
    """From one grid to the next finer one, which holds all its points."""

    coarse: tuple[Int64[np.ndarray, " _"], ...]  # rows and columns of the coarser grid
    fine: tuple[Int64[np.ndarray, " _"], ...]  # rows and columns of the finer grid
    before: tuple[Int64[np.ndarray, " _"], ...]  # the coarse one at or before each fine one: index into ``coarse``
    after: tuple[Int64[np.ndarray, " _"], ...]  # the coarse one at or after it
    inside: tuple[Int64[np.ndarray, " _"], ...]  # the coarse rows and columns as indices into ``fine``


@dataclass(frozen=True)
class GridLevels:
    shape: tuple[int, int]  # (rows, columns); a line has one row
    first: tuple[Int64[np.ndarray, " _"], ...]  # rows and columns of the grid that is measured first
    grids: list[tuple[Int64[np.ndarray, " _"], ...]]  # the same of all grids, from the coarsest one to all points
    steps: tuple[Step, ...]  # between these grids; before ``first`` they only tell how errors shrink
    coarser: int  # how many of the grids are coarser than ``first``

    @classmethod
    @functools.lru_cache(maxsize=16)  # adaptive sampling and progress ask for the same one again and again
    def of(cls, grid: tuple[int, ...]) -> GridLevels:
        """Returns the nested grids of a shape (ny, nx), or (nx,) for a line."""
        shape = (1, grid[0]) if len(grid) == 1 else (grid[0], grid[1])
        most = _FIRST_INTERVALS_OF_A_LINE if 1 in shape else _FIRST_INTERVALS
        first = tuple(_first_nodes(length, most) for length in shape)
        coarser = [_coarser(nodes) for nodes in first]
        finer = [_finer(nodes) for nodes in first]
        down, up = max(map(len, coarser)), max(map(len, finer))
        levels = []
        for before, nodes, after in zip(coarser, first, finer, strict=True):
            # An axis that is done, or has nothing coarser, waits for the other.
            axis = [*before, nodes, *after]
            levels.append([axis[0]] * (down - len(before)) + axis + [axis[-1]] * (up - len(after)))
        grids = list(zip(*levels, strict=True))
        return cls(shape, first, grids, tuple(_step(coarse, fine) for coarse, fine in pairwise(grids)), down)

    @property
    def is_first(self) -> Bool[np.ndarray, "ny nx"]:
        """Which points are on the grid that is measured first."""
        return self._points(self.first)

    @property
    def start(self) -> Bool[np.ndarray, "ny nx"]:
        """Which points predict a smooth surface; none where the first grid has too few others to test that."""
        start = self._points(self.grids[max(self.coarser - 1, 0)])
        others = int((self.is_first & ~start).sum())
        return start if others >= 2 * SMOOTHNESS_TESTS else np.zeros_like(start)

    def _points(self, grid: tuple[Int64[np.ndarray, " _"], ...]) -> Bool[np.ndarray, "ny nx"]:
        points = np.zeros(self.shape, bool)
        points[np.ix_(*grid)] = True
        return points

    def around(self, row: int, column: int) -> Bool[np.ndarray, "ny nx"]:
        """Returns the points of every grid in the cells around a point, denser towards it."""
        near = np.zeros(self.shape, bool)
        for step in self.steps:
            spans = []
            for coarse, fine, index in zip(step.coarse, step.fine, (row, column), strict=True):
                low = coarse[max(int(np.searchsorted(coarse, index)) - 1, 0)]
                high = coarse[min(int(np.searchsorted(coarse, index, side="right")), len(coarse) - 1)]
                spans.append(fine[(fine >= low) & (fine <= high)])
            near[np.ix_(*spans)] = True
        return near


def _first_nodes(length: int, most: int) -> Int64[np.ndarray, " _"]:
    intervals = min(length - 1, most, max(-(-(length - 1) // 4), 8 if most == _FIRST_INTERVALS else most))
    return np.round(np.linspace(0, length - 1, intervals + 1)).astype(np.int64)


def _coarser(nodes: Int64[np.ndarray, " _"]) -> list[Int64[np.ndarray, " _"]]:
    levels: list[Int64[np.ndarray, " _"]] = []
    while len(levels) < _COARSER_LEVELS and len(nodes) >= 5:
        nodes = nodes[::2] if len(nodes) % 2 else np.append(nodes[::2], nodes[-1])
        levels.insert(0, nodes)
    return levels


def _finer(nodes: Int64[np.ndarray, " _"]) -> list[Int64[np.ndarray, " _"]]:
    levels: list[Int64[np.ndarray, " _"]] = []
    while len(nodes) <= nodes[-1]:
        nodes = np.union1d(nodes, (nodes[:-1] + nodes[1:]) // 2)
        levels.append(nodes)
    return levels


def _step(coarse: tuple[Int64[np.ndarray, " _"], ...], fine: tuple[Int64[np.ndarray, " _"], ...]) -> Step:
    pairs = list(zip(coarse, fine, strict=True))
    return Step(
        coarse,
        fine,
        tuple(np.searchsorted(few, many, side="right") - 1 for few, many in pairs),
        tuple(np.searchsorted(few, many) for few, many in pairs),
        tuple(np.searchsorted(many, few) for few, many in pairs),
    )


def covering_points(status: UInt8[np.ndarray, "*grid"]) -> Int64[np.ndarray, "*grid"]:
    """Returns, for each pending point, the flat index of the measured point whose coarse cell covers it; else -1."""
    # That is the nearest point that is measured or failed. Distances count coarse cells: those of the coarsest grid,
    # which is measured first. What is further away than the corner of such a cell from its middle is not covered; nor
    # is what lies nearest to a failed point. Once a grid of the coarse-to-fine order is whole, every point of it covers
    # exactly the cell around it, and the cells shrink from grid to grid.
    status = np.asarray(status)
    pending = status == PointStatus.PENDING
    settled = (status == PointStatus.MEASURED) | (status == PointStatus.FAILED)
    if not pending.any() or not settled.any():
        return np.full(status.shape, -1, np.int64)
    from scipy.ndimage import distance_transform_edt

    levels = GridLevels.of(status.shape)
    cell = [float(np.diff(nodes).max(initial=1)) for nodes in levels.grids[0]]
    distance, nearest = distance_transform_edt(
        ~settled.reshape(levels.shape), sampling=[1 / length for length in cell], return_indices=True
    )
    near = distance <= _CORNER
    flat = np.ravel_multi_index(tuple(nearest), levels.shape).reshape(status.shape)
    covered = pending & near.reshape(status.shape) & (status.reshape(-1)[flat] == PointStatus.MEASURED)
    return np.where(covered, flat, -1).astype(np.int64)


def coarse_values(
    values: Float64[np.ndarray, "*grid"], status: UInt8[np.ndarray, "*grid"]
) -> Float64[np.ndarray, "*grid"]:
    """Returns at each pending point the finite value of the point whose coarse cell covers it, and NaN elsewhere."""
    points = covering_points(status)
    shown = np.where(points >= 0, np.asarray(values, np.float64).reshape(-1)[points], np.nan)
    return np.where(np.isfinite(shown), shown, np.nan)


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
