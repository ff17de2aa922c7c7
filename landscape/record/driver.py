"""Measures what a record lacks with a pool, keeps it in the record's file, continues where a run stopped."""

from __future__ import annotations

import contextlib
import functools
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath
from collectors.progress_bar import progress_bar
from workers.measurement_plan import ONE_THREAD, MeasurementPlan
from workers.measuring.memory_shortage import shortage_text
from workers.pool import Pool
from workers.users_code import warn_user

from ..errors import LandscapeNotFoundError
from .checks import PointStatus
from .hdf5 import KINDS
from .identity import REMEDY, check_identity
from .run import Cost, MeasurementReport, Run, duration_text
from .workers import Workers, continued_plan
from .writer import FileFormat, FileWriter, clean_temporaries, lock_landscape


class Measured(Protocol):
    """What the driver knows of measurements, be they a ``Record`` or a landscape."""

    errors: dict[str, str]
    attributes: dict[str, Any]
    path: AnyPath | None

    @property
    def statuses(self) -> Sequence[Any]:
        """``PointStatus`` of every task, in as many arrays as there are kinds of tasks."""


R = TypeVar("R", bound=Measured)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Stored(Generic[R]):
    """The file of an experiment, and what it holds before anything is measured."""

    format: FileFormat[R]
    path: AnyPath | None  # of the file; None keeps the experiment in memory
    record: R | None  # what the file holds; None where there is no file, or it is replaced

    @property
    def plan(self) -> MeasurementPlan | None:
        """The plan that goes on with the same bits, or None; a LandscapeError where this version cannot use it."""
        plan = None if self.record is None else self.record.attributes.get("measurement_plan")
        return None if plan is None or self.path is None else continued_plan(plan, self.path)

    def check(self, fresh: R, remedy: str = REMEDY) -> None:
        """Raises a LandscapeIdentityError if the file holds another experiment than ``fresh``."""
        if self.record is not None and self.path is not None:
            before, now = (record.attributes.get("identity", {}) for record in (self.record, fresh))
            check_identity(before, now, self.path, remedy, self.format.kind)


@contextlib.contextmanager
def open_record(format: FileFormat[R], path: AnyPath | None, run: Run) -> Iterator[Stored[R]]:
    """Gives what a file holds, nothing where it is overwritten, and locks it, unless a dry run writes nothing."""
    with contextlib.ExitStack() as stack:
        record = None
        if path is not None and not run.rehearsal:
            stack.enter_context(lock_landscape(path, format.kind))
            clean_temporaries(path)
        if path is not None and run.overwrite:
            format.check(path, format.kind)
        elif path is not None:
            with contextlib.suppress(LandscapeNotFoundError):
                record = format.read(path)
        yield Stored(format, path, record)


class Experiment(ABC, Generic[R]):
    """What differs between a grid, a curvature, a comparison and whatever else a pool measures task by task."""

    unit: str  # what a task is, such as "point", "epoch" or "line"
    name: str = ""  # what the progress bar calls it; that of its kind of file where it is empty
    trial: str = "measuring a point"  # what a forecast does, in words
    left_out: int = 0  # how many tasks, once resumed, have the values of others or are other jobs', so are not measured
    # What to do after a budget ended it, where nothing is written.
    again: str = "Give output= a path, and a later call can continue; without it, the next one starts anew."

    def check(self, stored: Stored[R], pool: Pool) -> None:
        """Raises an error where the file holds another experiment, or the workers have another network."""

    def beside(self, stored: Stored[R], run: Run) -> contextlib.AbstractContextManager[None]:
        """Writes what lies beside the file: before the first result, or after the last one."""
        return contextlib.nullcontext()

    @abstractmethod
    def begin(self, stored: Stored[R], pool: Pool) -> R:
        """Returns the record with its identity and what the file has of it; the pool finds out how losses add up."""

    @abstractmethod
    def resume(self, record: R, pool: Pool) -> NDArray[np.bool_]:
        """Makes what failed pending again, and returns which tasks this run measures, in the order of ``statuses``."""

    @abstractmethod
    def forecast(self, record: R, todo: NDArray[np.bool_], pool: Pool, run: Run) -> Cost:
        """Returns in words what measuring would cost, after measuring something small; it changes nothing."""

    @abstractmethod
    def results(self, record: R, todo: NDArray[np.bool_], pool: Pool, run: Run) -> Iterator[Any]:
        """Yields what was measured of the tasks until all is or the time is up; a text is shown to the user.

        Each result is kept before the next one is asked for.
        """

    @abstractmethod
    def keep(self, record: R, result: Any) -> int:
        """Writes a result to its place, and returns how many tasks it ends."""

    @abstractmethod
    def warn(self, record: R, run: Run) -> None:
        """Warns of what a reader of the record should know; raises an error where nothing could be measured."""

    def report(self, report: MeasurementReport) -> MeasurementReport:
        """Returns what measuring cost, with what this experiment knows beside."""
        return report

    def like(self, measured: Experiment[R]) -> None:
        """Takes over for its forecast what ``measured``, another experiment of the same call, found for its own."""

    def ended(self, record: R) -> str:
        """Returns in words what a budget has ended."""
        statuses = _all(record)
        measured = int((statuses == PointStatus.MEASURED).sum())
        return f"the measurement after {measured} of {statuses.size} {self.unit}s"


def measure(experiment: Experiment[R], stored: Stored[R], pool: Pool, run: Run) -> tuple[R, Any]:
    """Measures what an experiment's file lacks; returns the record and the report; a PoolError without workers."""
    start = time.perf_counter()
    with experiment.beside(stored, run):
        record = experiment.begin(stored, pool)
        record.path = stored.path
        plan = pool.description.plan
        todo = experiment.resume(record, pool)
        before = int((_all(record)[~todo.reshape(-1)] == PointStatus.MEASURED).sum())
        format = stored.format
        writer = FileWriter(stored.path, record, format)
        name, total = experiment.name or format.kind.word, todo.size - experiment.left_out
        bar = progress_bar(total, experiment.unit, shown=run.progress, done=total - int(todo.sum()), name=name)
        is_replaced, done = False, 0
        try:
            with writer, bar:
                is_replaced = stored.record is None
                if run.progress and isinstance(stored.path, Path) and format.kind in KINDS:
                    bar.write(
                        f"{bar.desc}: watch it: landscape plot --watch {shlex.quote(str(stored.path))}", file=bar.fp
                    )
                for result in experiment.results(record, todo, pool, run):
                    if isinstance(result, str):
                        if run.progress:
                            bar.write(f"{bar.desc}: {result}", file=bar.fp)
                        continue
                    ended = writer.update(functools.partial(experiment.keep, record, result))
                    done += ended
                    bar.update(ended)
                    if pool.description.plan != plan:
                        last, plan = plan, pool.description.plan
                        fewer = plan.threads < last.threads
                        warn_user(ONE_THREAD if fewer else shortage_text(last.batch_size, plan.batch_size))
                        writer.update(functools.partial(record.attributes.update, measurement_plan=plan.to_json()))
                if not run.stopped:
                    bar.total = bar.n  # adaptive sampling needs fewer points
        except LandscapeError:
            holds_something = record.errors or (_all(record) == PointStatus.MEASURED).any()
            if isinstance(stored.path, Path) and is_replaced and not holds_something:
                stored.path.resolve().unlink(missing_ok=True)
            raise
        experiment.warn(record, run)
        unfinished = (PointStatus.PENDING, PointStatus.INTERPOLATED)
        if run.stopped and np.isin(_all(record)[todo.reshape(-1)], unfinished).any():
            again = experiment.again if stored.path is None else "The same call continues from here."
            whose = ", which the SLURM job leaves," if run.of_job else ""
            budget = duration_text(run.budget or 0)
            if not done:
                again += " No time was left to measure anything new: if that stays so, give a larger budget."
            warn_user(f"the budget of {budget}{whose} ended {experiment.ended(record)}. {again}")
        measured = int((_all(record) == PointStatus.MEASURED).sum())
        report = MeasurementReport(measured - before, before, time.perf_counter() - start, pool.workers)
    return record, experiment.report(report)


def measuring(function: Callable[P, T | None]) -> Callable[P, T]:
    """Shows type checkers what a function returns where it measures: None comes of a dry run alone."""
    return cast("Callable[P, T]", function)


def carry_out(
    # Makes the experiment of each file; once more where the workers have another network than was described before.
    experiments_for: Callable[[Workers], Sequence[Experiment[R]]],
    stored: Sequence[Stored[R]],  # their files; the first one that has a plan gives the workers'
    callback_fn: Callable[[], Any],
    options: Mapping[str, Any],  # of the workers and of what they measure
    run: Run,  # what is left of its budget is shared by those that are not measured yet
    *,
    points: int = 0,  # about how many are measured in all
    plans: Sequence[Stored[Any]] = (),  # further files whose plan the workers take, after those of ``stored``
) -> list[tuple[R, Any]]:
    """Returns the records and reports of experiments, measured one after another on the same workers.

    A dry run prints what each would cost, and returns nothing.
    """
    run.say("dry run: reads the data set and measures a little; compiles nothing, and writes nothing", timed=False)
    run.say("building the network, reading the samples, timing a few batches")
    continued = next((plan for item in (*stored, *plans) if (plan := item.plan) is not None), None)
    with Workers(callback_fn, options, run, continued=continued, points=points) as workers:
        experiments = experiments_for(workers)
        pool = workers.pool
        if workers.differ:
            experiments = experiments_for(workers)
        for experiment, file in zip(experiments, stored, strict=True):
            # A night may pass before the last one's turn.
            experiment.check(file, pool)
        run.say(f"{experiments[0].trial}, over {pool.description.num_samples:,} samples")
        measured = []
        for index, (experiment, file) in enumerate(zip(experiments, stored, strict=True)):
            # In a rehearsal those before spend nothing of the budget.
            part = run if len(stored) == 1 else run.part(len(stored) - (0 if run.rehearsal else index))
            if not run.rehearsal:
                measured.append(measure(experiment, file, pool, part))
                continue
            experiment.like(experiments[0])
            cost = forecast(experiment, file, pool, part)
            run.say_cost(cost, "" if file.path is None else file.path.name)
        return measured


def forecast(experiment: Experiment[R], stored: Stored[R], pool: Pool, run: Run) -> Cost:
    """Returns in words what ``measure`` would cost; measures something small, and writes nothing."""
    record = experiment.begin(stored, pool)
    record.path = stored.path
    return experiment.forecast(record, experiment.resume(record, pool), pool, run)


def cost_text(steps: int, step: str, seconds: float, workers: int, duration: str | None = None) -> str:
    """Returns in words how long ``steps`` of ``seconds`` take, which is ``duration`` if that is known better."""
    counted = f"{workers} worker{'' if workers == 1 else 's'}"
    duration = f"about {duration_text(steps * seconds / workers)}" if duration is None else duration
    return f"{steps:,} {step}s x {duration_text(seconds)} on {counted}: {duration}"


def forecast_text(tasks: str, known: int, steps: int, step: str, seconds: float, workers: int) -> Cost:
    """Returns in words what ``tasks``, as "4 epochs", cost, of which ``known`` are measured."""
    text = f"{tasks}, {known} of them measured before" if known else tasks
    left = f": {cost_text(steps, step, seconds, workers)}" if steps else "; nothing is left to measure"
    whole = steps * seconds / workers
    return Cost.of(f"{text}{left}", whole, whole)


def _all(record: Measured) -> NDArray[np.uint8]:
    return np.concatenate([status.reshape(-1) for status in record.statuses])
