"""How errors of the loss are compared with the tolerance: on which scale, and at points held out for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from collectors.shapes import Bool, Float64

from .refinement import Prediction

HELD_OUT_SHARE = 0.02
# The largest error of a sample is smaller than that of all: held-out points must keep this share of the tolerance.
_ALLOWED = 0.75
# A correction reaches so far, as a share of the largest gap, and is smaller where few held-out points are near. Both
# were chosen on the surfaces of test_calibration.py.
_REACH = 0.2
_DAMPING = 1.0
# Below this, differences are rounding.
_ROUNDING = 64 * float(np.finfo(np.float64).eps)
_FLOOR_QUANTILE = 0.01


@dataclass(frozen=True)
class LossScale:
    """Losses as numbers around one."""

    unit: float  # of an absolute scale the largest magnitude; of a relative one the magnitude below which it is linear
    relative: bool  # whether equal steps are equal ratios
    tolerance: float  # the largest error allowed, on this scale

    @classmethod
    def of(
        cls, first: Float64[np.ndarray, " n"], loss: Float64[np.ndarray, " m"], tolerance: float, *, relative: bool
    ) -> LossScale:
        """Returns the scale of all finite losses; a relative one needs the first grid's, ``first``."""
        largest = float(np.abs(loss).max(initial=0.0)) or 1.0
        if relative:
            small = float(np.quantile(np.abs(first), _FLOOR_QUANTILE)) if len(first) else 0.0
            return cls(max(small, 1e-12 * largest, 1e-300), True, tolerance)
        range_ = float(np.ptp(loss / largest)) if len(loss) else 0.0
        return cls(largest, False, max(tolerance * range_, _ROUNDING))

    def scaled(self, loss: Float64[np.ndarray, "*grid"]) -> Float64[np.ndarray, "*grid"]:
        scaled: Float64[np.ndarray, "*grid"] = loss / self.unit
        return np.arcsinh(scaled) if self.relative else scaled

    def loss(self, scaled: Float64[np.ndarray, "*grid"]) -> Float64[np.ndarray, "*grid"]:
        with np.errstate(over="ignore"):
            return np.asarray((np.sinh(scaled) if self.relative else scaled) * self.unit)

    def loss_error(
        self, error: Float64[np.ndarray, "*grid"], loss: Float64[np.ndarray, "*grid"]
    ) -> Float64[np.ndarray, "*grid"]:
        """Returns errors as differences of losses, from errors on this scale."""
        return error * (np.hypot(loss, self.unit) if self.relative else self.unit)


@dataclass(frozen=True)
class HeldOutCheck:
    """Held-out points, bool[rows, columns], and the prediction without them, on a scale of losses."""

    points: Bool[np.ndarray, "ny nx"]
    prediction: Prediction
    scale: LossScale

    @classmethod
    def drawn(cls, prediction: Prediction, scale: LossScale, generator: np.random.Generator) -> HeldOutCheck:
        """Draws two percent of the points that are not measured, at least one."""
        points = np.zeros_like(prediction.known)
        left = np.flatnonzero(~prediction.known)
        points.flat[generator.choice(left, math.ceil(HELD_OUT_SHARE * len(left)), replace=False)] = True
        return cls(points, prediction, scale)

    def errors(self, loss: Float64[np.ndarray, "ny nx"]) -> Float64[np.ndarray, "ny nx"]:
        """Returns errors at held-out points on the check's scale, infinite where one of both is finite; elsewhere 0."""
        finite, predicted = np.isfinite(loss), ~self.prediction.holes
        both = self.points & finite & predicted
        errors = np.abs(self.scale.scaled(np.where(both, loss, 0.0)) - np.where(both, self.prediction.values, 0.0))
        return np.where(both, errors, np.where(self.points & (finite != predicted), np.inf, 0.0))

    def corrected(self, loss: Float64[np.ndarray, "ny nx"]) -> Prediction:
        """Returns the prediction corrected by the errors at the held-out points; estimates stay as they were."""
        # An error is taken to be proportional to the distance from the measured points, by a factor that changes
        # slowly: the mean of the factors at the held-out points around, each weighted by a Gaussian and its distance
        # squared. On 129 x 129 points this makes errors a fifth smaller. A spline through the held-out points would
        # not: they lie singly between points of its grids.
        from scipy.ndimage import distance_transform_edt, gaussian_filter

        known, values = self.prediction.known, self.prediction.values
        there = self.points & np.isfinite(loss) & ~self.prediction.holes
        if not there.any():
            return self.prediction
        error = np.where(there, self.scale.scaled(np.where(there, loss, 0.0)) - np.where(there, values, 0.0), 0.0)
        away = distance_transform_edt(~known)
        reach = [_REACH * largest_gap(~known) if length > 1 else 0.0 for length in known.shape]
        found = gaussian_filter(away * error, reach, mode="constant")
        weight = gaussian_filter(np.where(there, away**2, 0.0), reach, mode="constant")
        usual = float((away[there] ** 2).mean() * there.mean())
        return replace(self.prediction, values=values + away * found / (weight + _DAMPING * usual))

    def failed(self, loss: Float64[np.ndarray, "ny nx"]) -> Bool[np.ndarray, "ny nx"]:
        return self.errors(loss) > _ALLOWED * self.scale.tolerance


def largest_share(beyond: int, points: int, confidence: float = 0.95) -> float:
    """Returns the exact one-sided upper bound of a share, NaN for an empty sample (Clopper and Pearson 1934)."""
    from scipy.stats import beta

    if not points:
        return math.nan
    return float(beta.ppf(confidence, beyond + 1, points - beyond)) if beyond < points else 1.0


def largest_gap(gaps: Bool[np.ndarray, "ny nx"]) -> int:
    """Returns one more than the side, in cells, of the largest square of gaps, which may reach beyond the grid."""
    total = np.pad(gaps.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    longest = max(int(length) for length in gaps.shape)
    for side in range(1, longest + 1):
        rows, columns = (min(side, length) for length in gaps.shape)
        inside = total[rows:, columns:] - total[:-rows, columns:] - total[rows:, :-columns] + total[:-rows, :-columns]
        if inside.max() < rows * columns:
            return side
    return longest + 1
