"""The contract between a survey and the places where points are measured (contract 3)."""

from __future__ import annotations

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from collectors.network_state import State

from .devices import available_cores, gpu_ids
from .errors import NondeterministicLossError
from .evaluator import Evaluator, EvaluatorDescription, MeasurementOptions, build_evaluator
from .measurement_plan import MeasurementPlan, Workload
from .memory_shortage import within_memory

# What an interruption may cost in this process, and how many points an evaluator may need at once to be fast.
_CHUNK_SECONDS = 0.1
_LONGEST_CHUNK = 64

ORIGIN_MEASUREMENTS = 3
"""How many points ``measure_origin`` measures on every worker."""


@dataclass(frozen=True)
class PointTask:
    """One point of the loaded plane.

    Attributes:
        key: by which its result is recognized.
        coordinates: in units of the directions, one per axis.
    """

    key: Hashable
    coordinates: tuple[float, ...]


@dataclass(frozen=True)
class StateTask:
    """One full set of weights, such as a checkpoint.

    Attributes:
        key: by which its result is recognized.
        read: returns (parameters, buffers); buffers None means as on the plane. Called when a worker is free, so
            that memory never holds more than a few sets.
    """

    key: Hashable
    read: Callable[[], tuple[State, State | None]]


Task: TypeAlias = PointTask | StateTask


@dataclass(frozen=True)
class Result:
    """What came of a task: values by metric name, or the traceback of what went wrong."""

    key: Hashable
    values: dict[str, float] | None
    error: str | None = None


@dataclass(frozen=True)
class OriginValues:
    """The origin, measured by one worker.

    Attributes:
        worker: which one, for an error's text.
        device: its device type, such as "cpu".
        values: two measurements.
    """

    worker: str
    device: str
    values: tuple[dict[str, float], dict[str, float]]


class Pool(ABC):
    """Takes tasks and yields results as they complete, in any order."""

    @property
    @abstractmethod
    def description(self) -> EvaluatorDescription:
        """What the workers measure; all of them agree on it."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many workers there are."""

    @abstractmethod
    def load(self, origin: State, directions: Sequence[State], buffers: State) -> None:
        """Puts a plane on every worker; see ``Evaluator.load``."""

    @abstractmethod
    def measure_origin(self) -> list[OriginValues]:
        """Measures the loaded plane's origin twice on every worker."""

    @abstractmethod
    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks, each exactly once.

        Yields:
            A result for every task, in any order; a task that raises yields its traceback.

        Raises:
            PoolError: no worker is left; what was yielded before is valid.
        """

    @abstractmethod
    def close(self) -> None:
        """Frees everything the pool started, and leaves the user's network as it was found."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class InProcessPool(Pool):
    """Measures in this process: nothing to start, nothing open.

    Args:
        callback_fn: see ``build_evaluator``.
        options: what is measured.
        device_id: which GPU, where there are GPUs.
        plan: how to compute; None tunes one.
        workload: for how much work it is tuned.
    """

    def __init__(
        self,
        callback_fn: Callable[[], Any],
        options: MeasurementOptions,
        *,
        device_id: int = 0,
        plan: MeasurementPlan | None = None,
        workload: Workload | None = None,
    ) -> None:
        device = f"cuda:{device_id}" if gpu_ids() else "cpu"
        self._evaluator = build_evaluator(
            callback_fn, options, threads=len(available_cores()), device=device, plan=plan, workload=workload
        )
        self._chunk_length = 1

    @property
    def description(self) -> EvaluatorDescription:
        """What is measured."""
        return self._evaluator.description

    @property
    def workers(self) -> int:
        """One: this process."""
        return 1

    def load(self, origin: State, directions: Sequence[State], buffers: State) -> None:
        """Puts a plane on the device."""
        self._evaluator.load(origin, directions, buffers)
        self._axes = len(directions)

    def measure_origin(self) -> list[OriginValues]:
        """Measures the loaded plane's origin twice."""
        return [
            OriginValues("this process", self.description.device, measure_origin_twice(self._evaluator, self._axes))
        ]

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks in order, points a few at a time where they are fast."""
        chunk: list[PointTask] = []
        for task in tasks:
            if isinstance(task, PointTask):
                chunk.append(task)
                if len(chunk) < self._chunk_length:
                    continue
            yield from self._measure_chunk(chunk)
            chunk = []
            if not isinstance(task, PointTask):
                yield Result(task.key, *self._measure_state(task))
        yield from self._measure_chunk(chunk)

    def close(self) -> None:
        """Leaves the user's network as it was found."""
        self._evaluator.close()

    def _measure_chunk(self, chunk: Sequence[PointTask]) -> list[Result]:
        if not chunk:
            return []
        start = time.perf_counter()
        outcomes = measure_points(self._evaluator, [task.coordinates for task in chunk])
        seconds = (time.perf_counter() - start) / len(chunk)
        self._chunk_length = max(1, min(int(_CHUNK_SECONDS / max(seconds, 1e-9)), _LONGEST_CHUNK))
        return [Result(task.key, *outcome) for task, outcome in zip(chunk, outcomes, strict=True)]

    def _measure_state(self, task: StateTask) -> Outcome:
        try:
            parameters, buffers = task.read()
        except Exception:
            return None, traceback.format_exc()
        return measure_task_state(self._evaluator, parameters, buffers)


Outcome: TypeAlias = tuple[dict[str, float] | None, str | None]


def measure_points(evaluator: Evaluator, points: Sequence[tuple[float, ...]]) -> list[Outcome]:
    """Measures points; one that raises costs nothing but itself."""
    try:
        values = within_memory(evaluator, lambda: evaluator.measure(np.array(points, np.float64)))
        return [({name: float(column[row]) for name, column in values.items()}, None) for row in range(len(points))]
    except Exception:
        if len(points) == 1:
            return [(None, traceback.format_exc())]
    return [measure_points(evaluator, [point])[0] for point in points]


def measure_task_state(evaluator: Evaluator, parameters: State, buffers: State | None) -> Outcome:
    """Measures one set of weights; an exception becomes its traceback."""
    try:
        return within_memory(evaluator, lambda: evaluator.measure_state(parameters, buffers)), None
    except Exception:
        return None, traceback.format_exc()


def measure_origin_twice(evaluator: Evaluator, axes: int) -> tuple[dict[str, float], dict[str, float]]:
    """Measures the loaded plane's origin twice, with a move away in between."""
    origin, elsewhere = np.zeros((1, axes)), np.full((1, axes), 1e-3)
    first = within_memory(evaluator, lambda: evaluator.measure(origin))
    within_memory(evaluator, lambda: evaluator.measure(elsewhere))
    second = within_memory(evaluator, lambda: evaluator.measure(origin))
    return tuple({name: float(value[0]) for name, value in item.items()} for item in (first, second))  # type: ignore[return-value]


def check_determinism(origins: Sequence[OriginValues]) -> dict[str, float]:
    """Compares the origin's measurements within and between workers; NaN equals NaN.

    Returns:
        The first worker's first measurement.

    Raises:
        NondeterministicLossError: two of them differ by more than rtol=1e-5, atol=1e-7 (1e-4 between device types).
    """
    first = origins[0]
    for origin in origins:
        tolerance = 1e-5 if origin.device == first.device else 1e-4
        for values in origin.values:
            check_same_values("the origin", first.values[0], values, f"on {origin.worker}", tolerance)
    return first.values[0]


def check_same_values(
    what: str, expected: dict[str, float], found: dict[str, float], where: str, tolerance: float = 1e-5
) -> None:
    """Raises NondeterministicLossError when two measurements of the same weights differ."""
    for name, value in expected.items():
        other = found[name]
        # A standard error is a difference of nearly equal sums, so it is looser than the values it comes from.
        allowed = tolerance if name != "loss_stderr" else 100 * tolerance
        if not np.isclose(value, other, rtol=allowed, atol=1e-7, equal_nan=True):
            raise NondeterministicLossError(
                f"{what} was measured twice with the same weights and samples, but {name} is {value!r} and then "
                f"{other!r} "
                f"{where}. Likely causes: a forward pass that draws random numbers in eval mode, a callback_fn that "
                "builds another data set or loss each time (set its seeds), a network that changes its own state while "
                "it is evaluated, or other hardware with other kernels. Make the evaluation deterministic and run "
                "again."
            )
