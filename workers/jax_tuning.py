"""How JAX measures: how many samples, and how many points, one call of a compiled function takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_BATCH_SIZES = (1024, 256, 4096)
_BUDGET_SECONDS = 2.0
_CLEARLY_FASTER = 1.1

POINTS_AT_ONCE = 8
_MOST_OPERATIONS = 64e6


def choose_batch_size(run: Callable[[int], int], available: int, ran_out_of_memory: Callable[[Exception], bool]) -> int:
    """Returns the batch size that was fastest of a few; compilation takes time, and does not count.

    A later candidate must be clearly faster than the best so far, so that noise rarely changes the choice.

    Args:
        run: measures a few batches of that size, and returns of how many samples.
        available: how many samples there are.
        ran_out_of_memory: says whether an exception means that a batch was too large.
    """
    deadline = time.perf_counter() + _BUDGET_SECONDS
    best, best_rate = min(available, *_BATCH_SIZES), 0.0
    for size in dict.fromkeys(min(size, available) for size in _BATCH_SIZES):
        if best_rate and time.perf_counter() > deadline:
            break
        try:
            run(size)
            rate = max(_samples_per_second(run, size) for _ in range(3))
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            continue
        if rate > best_rate * _CLEARLY_FASTER:
            best, best_rate = size, rate
    return best


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


def _samples_per_second(run: Callable[[int], int], size: int) -> float:
    start = time.perf_counter()
    return run(size) / (time.perf_counter() - start)
