"""Which points of a grid to measure, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def full_grid(shape: tuple[int, ...]) -> Iterator[int]:
    """Yields every point of a grid once, coarse to fine, so that an unfinished landscape shows its whole extent.

    Args:
        shape: (ny, nx), or (nx,) for a line.

    Yields:
        Flat indices in C order.
    """
    stride = 1
    while stride * 4 < max(shape):
        stride *= 2
    done = np.zeros(shape, bool)
    indices = np.arange(done.size).reshape(shape)
    while stride >= 1:
        coarse = tuple(slice(None, None, stride) for _ in shape)
        fresh = indices[coarse][~done[coarse]]
        yield from (int(index) for index in fresh)
        done[coarse] = True
        stride //= 2
