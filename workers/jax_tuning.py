"""How many points one call of a compiled function measures (JAX)."""

from __future__ import annotations

from typing import Any

POINTS_AT_ONCE = 8
_MOST_OPERATIONS = 64e6


def points_at_once(lowered: Any) -> int:
    """Returns how many points one call measures, by what the function for one point does; no clock is asked.

    A call for one point of a small network spends its time on everything but arithmetic: eight points at once by
    ``jax.vmap`` were 1.2 to 1.7 times as fast for multilayer perceptrons of up to 26,000 parameters at 1,024 samples
    (five times at 64), but three times slower for those of 300,000 parameters, and nearly six times for a small
    convolutional network, whose kernels then become groups (two CPU cores).

    Args:
        lowered: the function for one point and one batch (``jax.stages.Lowered``).
    """
    operations = (lowered.cost_analysis() or {}).get("flops", float("inf"))
    if operations > _MOST_OPERATIONS or "stablehlo.convolution" in lowered.as_text():
        return 1
    return POINTS_AT_ONCE
