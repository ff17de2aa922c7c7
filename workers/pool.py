"""The contract between a survey and the places where points are measured (contract 3)."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from collectors.networks.weight_space import State
from collectors.shapes import Float32, Float64

from .curvature.measuring import CurvatureSettings, CurvatureValues
from .curves.curve import CurveTask, Fitting
from .evaluator import EvaluatorDescription, OriginMeasurement

ReadWeights: TypeAlias = Callable[[], tuple[State, State | None]]
T = TypeVar("T")


class TasksInTime(Iterator[T]):
    """Tasks until their time is over: who takes several ahead asks once more before it begins one of them."""

    def __init__(self, tasks: Iterable[T], is_over: Callable[[], bool]) -> None:
        self._tasks, self.is_over = iter(tasks), is_over

    def __next__(self) -> T:
        task = next(self._tasks)
        if self.is_over():
            raise StopIteration
        return task

    @classmethod
    def clock_of(cls, tasks: Iterable[Any]) -> Callable[[], bool]:
        """Returns what says whether the time of tasks is over; of others, it never is."""
        return tasks.is_over if isinstance(tasks, cls) else lambda: False


@dataclass(frozen=True)
class PointTask:
    """One point of the loaded plane: its coordinates are in units of the directions, one for each axis."""

    key: Hashable
    coordinates: tuple[float, ...]


@dataclass(frozen=True)
class StateTask:
    """One full set of weights, such as a checkpoint.

    Attributes:
        read: returns (parameters, buffers), as ``Evaluator.measure_state`` takes them. Called when a worker is free,
            so that memory never holds more than a few sets.
        source: returns exactly the same in another process, which need not be of this machine, or raises where that one
            does not reach the weights; can be pickled. None where only this process can read them.
    """

    key: Hashable
    read: ReadWeights
    source: ReadWeights | None = None


@dataclass(frozen=True)
class CurvatureTask:
    """The curvature at one full set of weights, measured whole by one worker."""

    key: Hashable
    read: ReadWeights
    settings: CurvatureSettings  # what is measured; the same for all tasks of one run
    source: ReadWeights | None = None

    def beside(self, neighbours: int) -> CurvatureTask:
        """Returns the same where so many workers share a machine's memory."""
        products = replace(self.settings.products, neighbours=neighbours)
        return replace(self, settings=replace(self.settings, products=products))


Task: TypeAlias = PointTask | StateTask
WeightsTask: TypeAlias = StateTask | CurvatureTask


@dataclass(frozen=True)
class Result:
    """The result of a task."""

    key: Hashable
    values: dict[str, float] | None  # by metric name; None where the task failed
    error: str | None = None  # the traceback of what went wrong
    samples: dict[str, Float32[np.ndarray, " samples"]] | None = None  # each sample's loss, if kept, by data set


@dataclass(frozen=True)
class CurvatureResult:
    """The result of a task: the curvature, or the traceback of what went wrong."""

    key: Hashable
    values: CurvatureValues | None
    error: str | None = None


@dataclass(frozen=True, eq=False)
class SampleLosses:
    """The losses of single samples at a few points, from which the loss is made: a mean is the sum over the sum."""

    numerators: Float64[np.ndarray, "points samples"]
    denominators: Float64[np.ndarray, " samples"] | None  # how much each counts, at all points; None for a sum


@dataclass(frozen=True)
class OriginValues:
    """The origin, measured by one worker (its name in errors) on a type of device, such as "cpu"."""

    worker: str
    device: str
    measured: OriginMeasurement


class Pool(contextlib.AbstractContextManager["Pool"]):
    """Takes tasks and yields results as they complete, in any order."""

    @property
    @abstractmethod
    def description(self) -> EvaluatorDescription:
        """What the workers measure; all of them agree on it."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """How many workers there are."""

    @property
    def copies_of_planes(self) -> int:
        """How many copies of a loaded plane lie in this machine's memory; 0 where nobody knows, as on clusters."""
        return 0

    @abstractmethod
    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        far_points: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Puts a plane on every worker, and finds out there how the loss is added up; ``description`` says it.

        The arguments are those of ``Evaluator.load``; without far_points, these are 1 along each direction.
        """

    @abstractmethod
    def measure_origin(self) -> list[OriginValues]:
        """Returns the loaded plane's origin as each worker measured it, a part of it again, and the first far point."""

    @abstractmethod
    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks, each exactly once.

        Yields:
            A result for every task, in any order; a task that raises yields its traceback.

        Raises:
            PoolError: no worker is left; what was yielded before is valid.
        """

    @abstractmethod
    def sample_losses(self, points: Sequence[Sequence[float]]) -> SampleLosses | None:
        """Measures the loss of each sample at a few points of the loaded plane, on one worker.

        Returns:
            None where samples have no losses of their own, or nobody keeps them.
        """

    @abstractmethod
    def run_curvature(self, tasks: Iterable[CurvatureTask]) -> Iterator[CurvatureResult]:
        """Measures the curvature at sets of weights, one worker for each; a plane that is loaded stays.

        Yields:
            A result for every task, in any order; a task that raises yields its traceback.

        Raises:
            CurvatureError: the workers' evaluators cannot differentiate.
            PoolError: no worker is left; what was yielded before is valid.
        """

    @abstractmethod
    def fit_curve(self, task: CurveTask, begun: Fitting | None = None, seconds: float = 5.0) -> Iterator[Fitting]:
        """Fits a curve on one worker; the loaded plane must hold both ends, and stays.

        Args:
            task: the curve.
            begun: how far an earlier run came; None begins.
            seconds: after how long the caller gets what there is.

        Yields:
            How far it is, each from the one before; the last one is the end.

        Raises:
            CurveError: the loss is not finite on the curve, or the evaluators have no gradients.
            PoolError: no worker is left.
        """

    def measure_curvature(self, task: CurvatureTask) -> CurvatureResult:
        """Measures the curvature at one set of weights, the samples shared among all workers.

        The result has the same bits as that of ``run_curvature`` under the same plan.

        Raises:
            CurvatureError: the workers' evaluators cannot differentiate.
            PoolError: no worker is left.
        """
        return next(iter(self.run_curvature([task])))

    @abstractmethod
    def close(self) -> None:
        """Frees everything the pool started, and leaves the user's network as it was found."""

    def __exit__(self, *_: object) -> None:
        self.close()
