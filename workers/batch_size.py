"""How many samples one call takes, for frameworks that compile a function anew for each batch size."""

from __future__ import annotations

import time
from collections.abc import Callable

_BATCH_SIZES = (1024, 256, 4096)
_BUDGET_SECONDS = 2.0
_CLEARLY_FASTER = 1.1


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


def _samples_per_second(run: Callable[[int], int], size: int) -> float:
    start = time.perf_counter()
    return run(size) / (time.perf_counter() - start)
