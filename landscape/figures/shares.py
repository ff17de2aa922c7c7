"""Metrics that are shares of a whole, such as an accuracy: they are looked at on a linear scale."""

from __future__ import annotations

# Of metrics that fall like a loss, whatever they are bounded by: their small values matter.
_LOSS_LIKE = ("loss", "error", "mse", "mae", "entropy", "nll", "divergence", "distance", "norm")
# Below that, values between 0 and 1 are just small numbers; a mean of ones in float32 may round above 1.
_SMALLEST, _LARGEST = 0.1, 1 + 1e-6


def is_share(metric: str, low: float, high: float) -> bool:
    """Returns whether values, or the sizes of differences, are shares; a loss is none, whatever its values.

    Args:
        metric: its name.
        low: the smallest finite value.
        high: the largest finite value.
    """
    name = metric.lower()
    return low >= 0 and _SMALLEST <= high <= _LARGEST and not any(word in name for word in _LOSS_LIKE)
