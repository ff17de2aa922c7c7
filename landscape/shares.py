"""Shares of a path's variance: how they are written, and when one is so small that it means nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float64

ALMOST_NOTHING = 1e-3
"""Below this share of the path's variance, what lies across the path is hardly the course of the training."""

_MOST_DIGITS = 10
# What float64 leaves between 1 and shares that add up to it.
_ROUNDING = 1e-13


def percentages(shares: Iterable[float], digits: int = 1) -> list[str]:
    """Returns shares as per cent, in as many digits as it takes that none reads as 0 or as 100 without being it."""
    values = [float(share) for share in shares]
    distances = [distance for value in values for distance in (value, 1 - value) if _ROUNDING < distance < 1]
    smallest = 100 * min(distances, default=1.0)
    needed = next((count for count in range(digits, _MOST_DIGITS) if 10**count * smallest > 0.95), _MOST_DIGITS)
    return [f"{100 * value:.{needed}f} %" for value in values]


def is_almost_nothing(ratio: Sequence[float] | Float64[np.ndarray, " d"]) -> bool:
    """Returns whether the second direction explains so little of the path that shapes across it are about noise."""
    return len(ratio) > 1 and float(ratio[1]) < ALMOST_NOTHING
