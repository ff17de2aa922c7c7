"""Measures what a record lacks with a pool, keeps it in the record's file, continues where a run stopped."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from collectors.errors import LandscapeError
from collectors.progress_bar import progress_bar
from workers.measuring.memory_shortage import shortage_text
from workers.pool import Pool

from .checks import PointStatus
from .record import Record
from .record_file import record_bytes
from .run import MeasurementReport, Run, budget_text, duration_text
from .store import StoredRecord
from .writer import FileWriter

R = TypeVar("R", bound=Record)

# A result may have cost minutes.
_FLUSH_SECONDS = 0.5


class Experiment(Protocol[R]):
    """What differs between a curvature, a comparison and whatever else a pool measures task by task.

    Attributes:
        unit: what a value of the record's ``status`` is about, such as "epoch" or "line".
    """

    unit: str

    def begin(self, pool: Pool) -> R:
        """Returns the record of which nothing is measured, with its identity; the pool finds out how losses add up."""

    def resume(self, record: R) -> NDArray[np.bool_]:
        """Makes what failed pending again, and returns which tasks this run measures; of the shape of ``status``."""

    def forecast(self, record: R, todo: NDArray[np.bool_], pool: Pool) -> str:
        """Returns in words what measuring would cost, after measuring something small; it changes nothing."""

    def results(self, record: R, todo: NDArray[np.bool_], pool: Pool, run: Run) -> Iterator[Any]:
        """Yields what was measured of the tasks until all is or the time is up; a text is shown to the user.

        Each result is kept before the next one is asked for.
        """

    def keep(self, record: R, result: Any) -> int:
        """Writes a result to its place, and returns how many tasks it ends."""

    def warn(self, record: R, run: Run) -> None:
        """Warns of what a reader of the record should know; raises an error where nothing could be measured."""


def measure(experiment: Experiment[R], stored: StoredRecord[R], pool: Pool, run: Run) -> tuple[R, MeasurementReport]:
    """Measures what an experiment's file lacks, and returns the record; a PoolError where no worker is left."""
    start = time.perf_counter()
    record = stored.joined(experiment.begin(pool))
    todo = experiment.resume(record)
    before = int((record.status[~todo] == PointStatus.MEASURED).sum())
    kind = record.schema.kind
    writer = FileWriter(stored.path, record, record_bytes, kind, _FLUSH_SECONDS)
    done = int(todo.size - todo.sum())
    bar = progress_bar(todo.size, experiment.unit, shown=run.progress, done=done, name=kind.word)
    plan = pool.description.plan
    try:
        with writer, bar:
            for result in experiment.results(record, todo, pool, run):
                if isinstance(result, str):
                    if run.progress:
                        bar.write(f"{bar.desc}: {result}", file=bar.fp)
                    continue
                bar.update(writer.update(functools.partial(experiment.keep, record, result)))
                if pool.description.plan != plan:
                    warnings.warn(shortage_text(plan.batch_size, pool.description.plan.batch_size), stacklevel=4)
                    plan = pool.description.plan
                    writer.update(functools.partial(record.attributes.update, measurement_plan=plan.to_json()))
    except LandscapeError:
        holds_something = stored.record is not None or record.errors or (record.status == PointStatus.MEASURED).any()
        if isinstance(stored.path, Path) and not holds_something:
            stored.path.unlink(missing_ok=True)
        raise
    experiment.warn(record, run)
    measured = record.status_counts[PointStatus.MEASURED]
    if run.is_late and (record.status[todo] == PointStatus.PENDING).any():
        ended = f"the measurement after {measured} of {record.status.size} {experiment.unit}s"
        warnings.warn(budget_text(run.budget, ended, kept=stored.path is not None), stacklevel=4)
    return record, MeasurementReport(measured - before, before, time.perf_counter() - start, pool.workers)


def forecast(experiment: Experiment[R], stored: StoredRecord[R], pool: Pool) -> str:
    """Returns in words what ``measure`` would cost; measures something small, and writes nothing."""
    record = stored.joined(experiment.begin(pool))
    return experiment.forecast(record, experiment.resume(record), pool)


def forecast_text(tasks: str, known: int, steps: int, step: str, seconds: float, workers: int) -> str:
    """Returns in words how long ``steps`` of ``seconds`` take; ``known`` of ``tasks``, as "4 epochs", are measured."""
    text = f"{tasks}, {known} of them measured before" if known else tasks
    if not steps:
        return f"{text}; nothing is left to measure"
    duration = duration_text(steps * seconds / workers)
    counted = f"{workers} worker{'' if workers == 1 else 's'}"
    return f"{text}: {steps:,} {step}s x {duration_text(seconds)} on {counted}: about {duration}"
