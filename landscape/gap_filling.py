"""Fills the gaps between measured points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .grid_levels import GridLevels
from .interpolation import linear
from .loss_scale import LossScale
from .refinement import Prediction

if TYPE_CHECKING:
    from jaxtyping import Bool, Float64


def predicted_loss(
    prediction: Prediction, scale: LossScale, measured: Float64[np.ndarray, "rows columns"]
) -> Float64[np.ndarray, "rows columns"]:
    """Returns the predicted losses; in holes, the nearest measured value that is NaN or infinite."""
    loss = scale.loss(np.where(prediction.holes, 0.0, prediction.values))
    finite = measured[prediction.known & np.isfinite(measured)]
    if len(finite) and finite.min() > 0:
        # A spline may dip below zero beside a steep wall, where a positive loss cannot be and a log plot breaks.
        loss = np.maximum(loss, 0.5 * finite.min())
    if not prediction.holes.any():
        return loss
    from scipy.ndimage import distance_transform_edt

    sources = prediction.known & ~np.isfinite(measured)
    nearest = distance_transform_edt(~sources, return_distances=False, return_indices=True)
    return np.where(prediction.holes, measured[tuple(nearest)], loss)


def linear_metric(
    measured: Float64[np.ndarray, "rows columns"], known: Bool[np.ndarray, "rows columns"], levels: GridLevels
) -> Float64[np.ndarray, "rows columns"]:
    """Returns a metric between its measured values, linear from grid to grid; NaN beside one that is not finite."""
    if not levels.steps:
        return measured
    measured = np.where(np.isfinite(measured), measured, np.nan)
    guess: Float64[np.ndarray, "_ _"] = measured[np.ix_(*levels.steps[0].coarse)]
    for step in levels.steps:
        grid = np.ix_(*step.fine)
        guess = np.where(known[grid], measured[grid], linear(guess, step))
    return guess
