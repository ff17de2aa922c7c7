"""Which points of a grid to measure, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..file.checks import PointStatus
from .grid_levels import GridLevels

if TYPE_CHECKING:
    from jaxtyping import Float64, UInt8


class Sampling(Protocol):
    """Says round by round which points to measure."""

    def next_points(self, loss: Float64[np.ndarray, "*grid"], status: UInt8[np.ndarray, "*grid"]) -> list[int]:
        """Returns the points of the next round.

        Args:
            loss: what is measured so far, shape (ny, nx), or (nx,) for a line.
            status: ``PointStatus`` of each point; none of an earlier round is pending.

        Returns:
            Flat indices in C order, the most wanted first; empty when nothing more is wanted.
        """


class FullSampling:
    """Every point, in one round, coarse to fine."""

    def next_points(self, loss: Float64[np.ndarray, "*grid"], status: UInt8[np.ndarray, "*grid"]) -> list[int]:
        """Returns all points that are pending."""
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
    levels = GridLevels.of((1, shape[0]) if len(shape) == 1 else (shape[0], shape[1]))
    grids = [levels.steps[0].coarse, *(step.fine for step in levels.steps)] if levels.steps else [levels.first]
    done = np.zeros(levels.shape, bool)
    indices = np.arange(done.size).reshape(done.shape)
    for grid in grids:
        points = np.ix_(*grid)
        yield from (int(index) for index in indices[points][~done[points]])
        done[points] = True
