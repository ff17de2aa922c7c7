"""What a picture, and nothing else, shows between the measured points of an unfinished landscape: coarse cells."""

from __future__ import annotations

import math

import numpy as np

from collectors.shapes import Float64, Int64, UInt8

from ..record.checks import PointStatus
from .grid_levels import GridLevels

# From the middle of a square cell to its corner, with room for rounding.
_CORNER = math.sqrt(0.5) + 1e-9


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
