"""Chooses a measurement plan by timing real forward passes for about a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from .measurement_plan import MeasurementPlan
from .torch_batches import Batch
from .torch_samples import Samples

_BATCH_SIZES = (64, 128, 256, 512, 1024, 4096)
_BUDGET_SECONDS = 1.0
_CLEARLY_FASTER = 1.1


def tune(
    run: Callable[[MeasurementPlan, Sequence[Batch]], None],
    threads: int,
    samples: Samples,
    *,
    fixed_batches: bool,
    has_images: bool,
) -> MeasurementPlan:
    """Returns the fastest of a few plans.

    A later candidate must be clearly faster than the best so far, so that noise rarely changes the choice.

    Args:
        run: evaluates batches under a plan.
        threads: CPU threads that may be used.
        samples: what is measured.
        fixed_batches: whether the data set's own batches must be kept.
        has_images: whether another memory layout is worth a try.
    """
    deadline = time.perf_counter() + _BUDGET_SECONDS
    largest = min(samples.count, _BATCH_SIZES[-1])
    sizes = [None] if fixed_batches else [*(size for size in _BATCH_SIZES if size < largest), largest]
    plans = [MeasurementPlan(size, threads) for size in sizes]
    best, best_rate = plans[0], 0.0
    for plan in plans:
        if best_rate and time.perf_counter() > deadline:
            break
        try:
            rate = _samples_per_second(run, plan, samples)
        except torch.cuda.OutOfMemoryError:
            if not best_rate:
                raise
            torch.cuda.empty_cache()
            break
        if rate > best_rate * _CLEARLY_FASTER:
            best, best_rate = plan, rate
    alternatives = [MeasurementPlan(best.batch_size, 1)] if threads > 1 else []
    if has_images:
        alternatives += [
            MeasurementPlan(best.batch_size, item.threads, channels_last=True) for item in [best, *alternatives]
        ]
    for plan in alternatives:
        if time.perf_counter() > deadline:
            break
        rate = _samples_per_second(run, plan, samples)
        if rate > best_rate * _CLEARLY_FASTER:
            best, best_rate = plan, rate
    return best


def _samples_per_second(
    run: Callable[[MeasurementPlan, Sequence[Batch]], None], plan: MeasurementPlan, samples: Samples
) -> float:
    own = samples.own_batches
    first = own[0]
    device = first.inputs.device if hasattr(first.inputs, "device") else None
    if plan.channels_last and device is not None:
        samples = samples.on(device, channels_last=True)
    batches = samples.batches(plan.batch_size)[:4]
    count = sum(batch.size for batch in batches)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        run(plan, batches)
        seconds.append(time.perf_counter() - start)
        if sum(seconds) > _BUDGET_SECONDS / 4:
            break
    return count / min(seconds)
