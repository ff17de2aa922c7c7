"""The check at the end of adaptive sampling: a random share of what would be interpolated is measured instead."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .loss_scale import LossScale
from .refinement import Prediction

if TYPE_CHECKING:
    from jaxtyping import Bool, Float64

HELD_OUT_SHARE = 0.02
# The largest error of a sample is smaller than that of all: held-out points must keep this share of the tolerance.
_ALLOWED = 0.75


@dataclass(frozen=True)
class HeldOutCheck:
    """Held-out points, and the prediction that was made without them.

    Attributes:
        points: which points are held out.
        prediction: what was predicted before they were measured.
        scale: on which.
    """

    points: Bool[np.ndarray, "rows columns"]
    prediction: Prediction
    scale: LossScale

    @classmethod
    def drawn(cls, prediction: Prediction, scale: LossScale, generator: np.random.Generator) -> HeldOutCheck:
        """Draws two percent of the points that are not measured, at least one."""
        points = np.zeros_like(prediction.known)
        left = np.flatnonzero(~prediction.known)
        points.flat[generator.choice(left, math.ceil(HELD_OUT_SHARE * len(left)), replace=False)] = True
        return cls(points, prediction, scale)

    def errors(self, loss: Float64[np.ndarray, "rows columns"]) -> Float64[np.ndarray, "rows columns"]:
        """Returns the errors at the held-out points on the check's scale, and 0 elsewhere.

        They are infinite where only one of truth and prediction is finite, and 0 where neither is.
        """
        finite, predicted = np.isfinite(loss), ~self.prediction.holes
        both = self.points & finite & predicted
        errors = np.abs(self.scale.scaled(np.where(both, loss, 0.0)) - np.where(both, self.prediction.values, 0.0))
        return np.where(both, errors, np.where(self.points & (finite != predicted), np.inf, 0.0))

    def failed(self, loss: Float64[np.ndarray, "rows columns"]) -> Bool[np.ndarray, "rows columns"]:
        """Returns at which held-out points the prediction was not good enough."""
        return self.errors(loss) > _ALLOWED * self.scale.tolerance
