"""How something is measured, beside what: for how long, over what is there, with a bar."""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from collectors.validation import wrong_type, wrong_value
from workers.pool import TasksInTime

T = TypeVar("T")

# Of a dry run, which says after how long something began.
_NOTABLE = 0.1
_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")
_JOB_END = "SLURM_JOB_END_TIME"
_LAST_SECONDS = 120.0  # of a job, in which points under way are finished and the file is written
_DURATION_EXPECTED = 'a number of seconds above 0, or text such as "90s", "30min", "1.5h"'
_kept: ContextVar[list[str] | None] = ContextVar("forecast", default=None)
_costs: ContextVar[list[Cost] | None] = ContextVar("costs", default=None)


class Cost(str):
    """What measuring something would cost, in words; ``least`` and ``most`` are its seconds."""

    least: float
    most: float

    @classmethod
    def of(cls, text: str, least: float, most: float) -> Cost:
        cost = cls(text)
        cost.least, cost.most = least, most
        return cost


@dataclass
class Run:
    """How something is measured; no value depends on it."""

    budget: float | None = None  # seconds that the whole call may take
    began: float = 0.0  # when it began, as ``time.perf_counter`` says
    overwrite: bool = False  # whether a file of another identity is replaced
    progress: bool = True  # whether a bar is shown
    rehearsal: bool = False  # whether only a forecast is wanted
    of_job: bool = False  # whether the budget is what a batch job leaves, and not the user's
    share: float | None = None  # seconds of the budget that one of several measurements may take; None means all
    stopped: bool = field(default=False, init=False)  # whether the time was up before all was measured

    @property
    def limit(self) -> float | None:
        """How many seconds after it began the time is up, or None."""
        return self.budget if self.share is None else self.share

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    @property
    def is_late(self) -> bool:
        return self.limit is not None and self.spent > self.limit

    @property
    def left(self) -> float | None:
        return None if self.limit is None else max(self.limit - self.spent, 1e-9)

    def part(self, count: int) -> Run:
        """Returns the run of the next one of ``count`` measurements, which share what is left of the budget."""
        left = self.left
        return replace(self, began=time.perf_counter(), share=None if left is None else left / count)

    def is_over(self) -> bool:
        """Ends the run where its time is up; returns whether it has ended."""
        self.stopped |= self.is_late
        return self.stopped

    def in_time(self, tasks: Iterable[T]) -> TasksInTime[T]:
        return TasksInTime(tasks, self.is_over)

    @classmethod
    def checked(cls, options: Mapping[str, Any]) -> Run:
        """Returns a run of checked options, whose clock begins to run."""
        overwrite, rehearsal = options.get("overwrite", False), options.get("dry_run", False)
        of_job = job_seconds(os.environ, datetime.now(UTC).timestamp()) if options["budget"] is None else None
        budget = of_job if options["budget"] is None else options["budget"]
        return cls(budget, time.perf_counter(), overwrite, options["progress"], rehearsal, of_job is not None)

    def say_cost(self, cost: Cost, name: str = "") -> None:
        """Prints in a dry run what measuring a file of that name would cost."""
        self.say(f"{name}: {cost}" if name else cost, timed=False)
        if (costs := _costs.get()) is not None:
            costs.append(cost)

    def say(self, text: str, *, timed: bool = True) -> None:
        """Prints a line of a dry run at once: what it begins to do and after how long, or what it found."""
        if self.rehearsal:
            after = f"after {duration_text(self.spent)}: " if self.spent > _NOTABLE else ""
            line, kept = f"  {after}{text} ..." if timed else text, _kept.get()
            if kept is None:
                print(line, flush=True)  # noqa: T201
            else:
                kept += line.splitlines()


def forecast_kept() -> contextlib.AbstractContextManager[list[str]]:
    """Gives the lines that dry runs would print meanwhile."""
    return _gathered(_kept)


def costs_kept() -> contextlib.AbstractContextManager[list[Cost]]:
    """Gives what dry runs forecast meanwhile, which they print as well."""
    return _gathered(_costs)


@contextlib.contextmanager
def _gathered(variable: ContextVar[list[T] | None]) -> Iterator[list[T]]:
    found: list[T] = []
    token = variable.set(found)
    try:
        yield found
    finally:
        variable.reset(token)


@dataclass(frozen=True)
class MeasurementReport:
    """What measuring cost.

    Attributes:
        measured: tasks measured in this run: points, sets of weights of a curvature, lines of a comparison.
        resumed: those that were measured before.
        seconds: wall time, without the pool's start.
        workers: how many measured.
    """

    measured: int
    resumed: int
    seconds: float
    workers: int


def job_seconds(environment: Mapping[str, str], now: float) -> float | None:
    """Returns the seconds that a batch job leaves for measuring; None outside one, or where the queue has no end."""
    end = environment.get(_JOB_END, "")
    if not (end.isdecimal() and environment.get("SLURM_JOB_ID")):
        return None
    left = float(end) - now
    return max(left - min(_LAST_SECONDS, left / 10), 1.0)


def duration_seconds(name: str, value: object) -> float:
    """Returns a positive duration in seconds, given as such or as text: "90s", "30min", "1.5h" or "2d" (days)."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_type(name, _DURATION_EXPECTED, value)
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.lower())
        if match is None or (match[2] or "s") not in _UNITS:
            raise wrong_value(name, _DURATION_EXPECTED, value)
        value = float(match[1]) * _UNITS[match[2] or "s"]
    if not math.isfinite(value) or value <= 0:
        raise wrong_value(name, _DURATION_EXPECTED, value)
    return float(value)


def duration_text(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    for unit in ("s", "min"):
        if (count := seconds / _UNITS[unit]) < 100:
            return f"{count:.2g} {unit}" if count < 10 else f"{count:.0f} {unit}"
    return f"{seconds / 3600:.3g} h" if seconds < 48 * 3600 else f"{seconds / 86400:.3g} days"
