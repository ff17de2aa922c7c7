"""Which points of a grid to measure, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..record.checks import PointStatus
from .grid_levels import GridLevels

if TYPE_CHECKING:
    from jaxtyping import Bool, Float64, UInt8


def pending_points(_loss: Float64[np.ndarray, "*grid"], status: UInt8[np.ndarray, "*grid"]) -> list[int]:
    """Returns, for full sampling, what ``AdaptiveSampling.next_points`` does: all pending points, coarse to fine."""
    pending = (status == PointStatus.PENDING).reshape(-1)
    return [flat for flat in full_grid(status.shape) if pending[flat]]


def full_grid(shape: tuple[int, ...]) -> Iterator[int]:
    """Yields the flat index, in C order, of every point of a grid once, coarse to fine as in adaptive sampling."""
    # So an unfinished landscape shows its whole extent, and adaptive sampling can fill its gaps.
    levels = GridLevels.of(shape)
    grids = [levels.steps[0].coarse, *(step.fine for step in levels.steps)] if levels.steps else [levels.first]
    done = np.zeros(levels.shape, bool)
    indices = np.arange(done.size).reshape(done.shape)
    for grid in grids:
        points = np.ix_(*grid)
        yield from (int(index) for index in indices[points][~done[points]])
        done[points] = True


def coarse_and_fine(shape: tuple[int, ...], points: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns those of the flat points, in their order, on adaptive sampling's first grid, and the others."""
    # From the first grid on, an unfinished landscape is a picture: what lies between its points can be interpolated.
    is_first = _first_grid(shape).reshape(-1)
    return [flat for flat in points if is_first[flat]], [flat for flat in points if not is_first[flat]]


def first_grid_counts(status: UInt8[np.ndarray, "*grid"]) -> tuple[int, int]:
    """Returns how many points of the first grid have a result, and how many it has; only if all do, gaps are filled."""
    first = status.reshape(-1)[_first_grid(status.shape).reshape(-1)]
    return int(np.isin(first, (PointStatus.MEASURED, PointStatus.FAILED)).sum()), first.size


def _first_grid(shape: tuple[int, ...]) -> Bool[np.ndarray, "rows columns"]:
    levels = GridLevels.of(shape)
    first = np.zeros(levels.shape, bool)
    first[np.ix_(*levels.first)] = True
    return first
