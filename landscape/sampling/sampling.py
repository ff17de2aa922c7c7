"""Which points of a grid to measure, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..file.checks import PointStatus
from .grid_levels import GridLevels

if TYPE_CHECKING:
    from jaxtyping import Float64, UInt8


def pending_points(_loss: Float64[np.ndarray, "*grid"], status: UInt8[np.ndarray, "*grid"]) -> list[int]:
    """Returns, for full sampling, what ``AdaptiveSampling.next_points`` does: all pending points, coarse to fine."""
    pending = (status == PointStatus.PENDING).reshape(-1)
    return [flat for flat in full_grid(status.shape) if pending[flat]]


def full_grid(shape: tuple[int, ...]) -> Iterator[int]:
    """Yields every point of a grid once, coarse to fine, so that an unfinished landscape shows its whole extent.

    The grids are those of adaptive sampling, which can fill the gaps of what is unfinished.

    Args:
        shape: (ny, nx), or (nx,) for a line.

    Yields:
        Flat indices in C order.
    """
    levels = GridLevels.of(shape)
    grids = [levels.steps[0].coarse, *(step.fine for step in levels.steps)] if levels.steps else [levels.first]
    done = np.zeros(levels.shape, bool)
    indices = np.arange(done.size).reshape(done.shape)
    for grid in grids:
        points = np.ix_(*grid)
        yield from (int(index) for index in indices[points][~done[points]])
        done[points] = True
