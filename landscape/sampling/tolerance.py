"""The scale on which errors of the loss are compared with the tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float64

# Below this, differences are rounding.
_ROUNDING = 64 * float(np.finfo(np.float64).eps)
_FLOOR_QUANTILE = 0.01


@dataclass(frozen=True)
class LossScale:
    """Losses as numbers around one.

    Attributes:
        unit: of an absolute scale the largest magnitude; of a relative one the magnitude below which it is linear.
        relative: whether equal steps are equal ratios.
        tolerance: the largest error allowed, on this scale.
    """

    unit: float
    relative: bool
    tolerance: float

    @classmethod
    def of(
        cls, first: Float64[np.ndarray, " n"], loss: Float64[np.ndarray, " m"], tolerance: float, *, relative: bool
    ) -> LossScale:
        """Returns the scale of a landscape.

        Args:
            first: the finite losses of the first grid.
            loss: all finite losses so far.
            tolerance: as a share of the range of the losses, or of the loss itself.
            relative: which of both.
        """
        largest = float(np.abs(loss).max(initial=0.0)) or 1.0
        if relative:
            small = float(np.quantile(np.abs(first), _FLOOR_QUANTILE)) if len(first) else 0.0
            return cls(max(small, 1e-12 * largest, 1e-300), True, tolerance)
        range_ = float(np.ptp(loss / largest)) if len(loss) else 0.0
        return cls(largest, False, max(tolerance * range_, _ROUNDING))

    def scaled(self, loss: Float64[np.ndarray, "*grid"]) -> Float64[np.ndarray, "*grid"]:
        """Returns losses on this scale; NaN and infinities stay."""
        scaled: Float64[np.ndarray, "*grid"] = loss / self.unit
        return np.arcsinh(scaled) if self.relative else scaled

    def loss(self, scaled: Float64[np.ndarray, "*grid"]) -> Float64[np.ndarray, "*grid"]:
        """Returns losses from numbers on this scale."""
        with np.errstate(over="ignore"):
            loss: Float64[np.ndarray, "*grid"] = (np.sinh(scaled) if self.relative else scaled) * self.unit
        return loss

    def loss_error(
        self, error: Float64[np.ndarray, "*grid"], loss: Float64[np.ndarray, "*grid"]
    ) -> Float64[np.ndarray, "*grid"]:
        """Returns errors as differences of losses, from errors on this scale."""
        return error * (np.hypot(loss, self.unit) if self.relative else self.unit)
