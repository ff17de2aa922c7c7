"""Chooses how to compute by timing real forward passes for a second or two: a whole plan, or a batch size alone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ..evaluator import MeasurementSetup
from ..measurement_plan import MeasurementPlan
from ..samples.batches import Batch
from ..samples.samples import Samples
from .memory_shortage import is_memory_shortage

_Run: TypeAlias = Callable[[MeasurementPlan, Sequence[Batch]], None]
_Clock: TypeAlias = Callable[[], float]
_BATCH_SIZES = (64, 128, 256, 512, 1024, 4096)
# Of a GPU, after one batch of all samples.
_LARGE_BATCH_SIZES = (65536, 16384, 4096, 1024, 256)
# Where each size is compiled separately, or each call has a cost of its own; the first is the likeliest.
_FEW_BATCH_SIZES = (1024, 256, 4096)
_BUDGET_SECONDS = 1.0
_BUDGET_SECONDS_WITH_COMPILATION = 2.0
# Of a pass over all samples: where that takes minutes, so may tuning take some seconds more.
_BUDGET_SHARE = 0.05
# Of all samples; of few samples, more often than once. A pass over them may take a minute.
_SHARE_OF_SAMPLES, _FEW_SAMPLES = 1 / 8, 8192
_SHARE_WITH_COMPILATION = 1 / 2
_FEWEST_BATCHES = 3
# So often batches of few samples are computed, within a twelfth of the budget: beside others, few are undisturbed.
_FEWEST_TIMES, _MOST_TIMES = 8, 12
_PASSES = 2
# What a later candidate must be, so that noise rarely changes the choice.
_CLEARLY_FASTER = 1.1
# Several threads wait for the slowest of them, and where other programs run that may be ten times as long.
_WORTH_SEVERAL_THREADS = 1.3
# So much longer than the fastest of its batches their mean takes where threads wait for other programs. They are timed
# twice then: what disturbs them for a moment does not do so again.
_WAITING = 1.5
# So many times its budget one thread may last that waits for other programs.
_MOST_WAITING = 8


def tune(
    run: _Run,
    threads: int,
    samples: Samples,
    *,
    fixed_batches: bool,
    ran_out_of_memory: Callable[[Exception], bool],
    channels_last: Callable[[], Samples] | None = None,
    largest_first: bool = False,
    clock: _Clock = time.perf_counter,
    busy: _Clock = time.process_time,
) -> tuple[MeasurementPlan, float]:
    """Returns the fastest of a few plans, and its samples per second; ``ran_out_of_memory`` frees what a batch took."""

    def watch_of(threads: int) -> _Watch:
        return _Watch(clock, clock if threads > 1 or largest_first else busy)

    watch = watch_of(threads)
    largest = min(samples.count, _BATCH_SIZES[-1])
    sizes = [None] if fixed_batches else [*(size for size in _BATCH_SIZES if size < largest), largest]
    if largest_first and not fixed_batches:
        sizes = list(dict.fromkeys(min(size, samples.count) for size in (samples.count, *_LARGE_BATCH_SIZES)))
    # A GPU that holds all samples at once is through with them in no time; elsewhere a pass may take a minute.
    left = math.inf if largest_first else max(_SHARE_OF_SAMPLES * samples.count, _FEW_SAMPLES)
    best, best_rate, budget = MeasurementPlan(sizes[0], threads), 0.0, _BUDGET_SECONDS
    for size in sizes:
        plan = MeasurementPlan(size, threads)
        count = _FEWEST_BATCHES * (plan.batch_size or 0)
        if best_rate and watch.spent() + count / best_rate > budget / 2:
            break  # layout and threads matter more, and must have their turn
        if best_rate and count > left:
            break
        left -= count
        try:
            plan, rate = _fitting_threads(run, plan, samples, watch_of)
        except Exception as error:
            if not ran_out_of_memory(error) or not (best_rate or (largest_first and size != sizes[-1])):
                raise
            if best_rate:
                break
            continue
        if plan.threads < threads:
            # What several threads measured until then was waiting, and so is what is left of the time.
            threads, best_rate, watch = plan.threads, 0.0, watch_of(plan.threads)
        if rate > best_rate * _CLEARLY_FASTER:
            best, best_rate = plan, rate
        budget = max(budget, _BUDGET_SHARE * samples.count / best_rate)
    alternatives = [MeasurementPlan(best.batch_size, best.threads, channels_last=True)] if channels_last else []
    if threads > 1:
        alternatives += [replace(item, threads=1) for item in (best, *alternatives)]
    for plan in alternatives:
        if watch.spent() > budget:
            break
        try:
            laid_out = channels_last() if plan.channels_last and channels_last is not None else samples
            rate, _ = _timed(run, plan, laid_out, watch_of)
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            continue
        fewer_threads = plan.threads < best.threads
        if rate > best_rate * (1 / _WORTH_SEVERAL_THREADS if fewer_threads else _CLEARLY_FASTER):
            best, best_rate = plan, rate
    return best, best_rate


class _Watch:
    """Says how much of a budget is spent: of one thread, the time in which it ran, whatever others take beside it."""

    def __init__(self, clock: _Clock, busy: _Clock) -> None:
        self.clock, self._busy = clock, busy
        self._begin = clock(), busy()

    def spent(self) -> float:
        passed, ran = (now() - begin for now, begin in zip((self.clock, self._busy), self._begin, strict=True))
        return max(ran, passed / _MOST_WAITING)


def _fitting_threads(
    run: _Run, plan: MeasurementPlan, samples: Samples, watch_of: Callable[[int], _Watch]
) -> tuple[MeasurementPlan, float]:
    """Returns a plan and its samples per second; with one thread, where several wait for other programs."""
    rate, waiting = _timed(run, plan, samples, watch_of)
    if plan.threads == 1 or waiting < _WAITING:
        return plan, rate
    alone = replace(plan, threads=1)
    alone_rate, _ = _timed(run, alone, samples, watch_of)
    return (alone, alone_rate) if rate < alone_rate * _WORTH_SEVERAL_THREADS else (plan, rate)


def _timed(
    run: _Run, plan: MeasurementPlan, samples: Samples, watch_of: Callable[[int], _Watch]
) -> tuple[float, float]:
    """Returns what ``_timed_once`` does; of several threads that wait, the samples per second of the better time."""
    rate, waiting = _timed_once(run, plan, samples, watch_of(plan.threads))
    if plan.threads > 1 and waiting >= _WAITING:
        rate = max(rate, _timed_once(run, plan, samples, watch_of(plan.threads))[0])
    return rate, waiting


def _timed_once(run: _Run, plan: MeasurementPlan, samples: Samples, watch: _Watch) -> tuple[float, float]:
    """Returns the samples per second of a plan, and how much longer than the fastest its batches take."""
    # Of one thread the fastest batch tells what it costs. Several threads also cost what they wait for each other while
    # other programs run, which only some of their batches show.
    batches = samples.batches(plan.batch_size)[:_FEWEST_BATCHES]
    share = _FEW_SAMPLES / (2 * len(_BATCH_SIZES))
    fewest = _FEWEST_TIMES if samples.count <= _FEW_SAMPLES else _FEWEST_BATCHES
    times = min(max(int(share / batches[0].size), fewest), _MOST_TIMES)
    rates = []
    for index in range(times):
        batch = batches[index % len(batches)]
        start = watch.clock()
        run(plan, [batch])
        rates.append(batch.size / (watch.clock() - start))
        if watch.spent() > _BUDGET_SECONDS / 12:
            break
    if len(rates) == 1:
        return rates[0], math.inf  # it took all the time, whatever for
    # The first batch makes ready what the others use.
    mean = (len(rates) - 1) / sum(1 / rate for rate in rates[1:])
    fastest = max(rates)
    return (mean if plan.threads > 1 else fastest), fastest / mean


def chosen_plan(plan: MeasurementPlan, setup: MeasurementSetup) -> MeasurementPlan:
    """Returns a plan with the batch size that was asked for, where its own is None because batches are kept."""
    if plan.batch_size is None and setup.plan is not None:
        return replace(plan, batch_size=setup.plan.batch_size)
    return plan


def choose_batch_size(run: Callable[[int], int], available: int) -> int:
    """Returns the fastest of a few sizes, compiling not counted; ``run`` measures a batch and returns its samples."""
    deadline = time.perf_counter() + _BUDGET_SECONDS_WITH_COMPILATION
    best, best_rate = min(available, *_FEW_BATCH_SIZES), 0.0
    left = max(_SHARE_WITH_COMPILATION * available, _FEW_SAMPLES)
    for size in dict.fromkeys(min(size, available) for size in _FEW_BATCH_SIZES):
        if best_rate and (time.perf_counter() > deadline or (1 + _PASSES) * size > left):
            break
        try:
            count = run(size)  # compiles
            seconds = []
            for _ in range(_PASSES):
                start = time.perf_counter()
                run(size)
                seconds.append(time.perf_counter() - start)
            rate = count / min(seconds)
        except Exception as error:
            if not is_memory_shortage(error):
                raise
            continue
        left -= (1 + _PASSES) * size
        if rate > best_rate * _CLEARLY_FASTER:
            best, best_rate = size, rate
    return best
