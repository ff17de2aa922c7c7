"""The contract between a survey and the places where points are measured (contract 3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from collectors.networks.weight_space import State

from .evaluator import EvaluatorDescription, PassCost

ORIGIN_MEASUREMENTS = 3
"""How many points ``measure_origin`` measures on every worker."""


@dataclass(frozen=True)
class PointTask:
    """One point of the loaded plane.

    Attributes:
        key: identifies its result.
        coordinates: in units of the directions, one per axis.
    """

    key: Hashable
    coordinates: tuple[float, ...]


@dataclass(frozen=True)
class StateTask:
    """One full set of weights, such as a checkpoint.

    Attributes:
        key: identifies its result.
        read: returns (parameters, buffers), as ``Evaluator.measure_state`` takes them. Called when a worker is free,
            so that memory never holds more than a few sets.
    """

    key: Hashable
    read: Callable[[], tuple[State, State | None]]


Task: TypeAlias = PointTask | StateTask


@dataclass(frozen=True)
class Result:
    """The result of a task: values by metric name, or the traceback of what went wrong."""

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
        elsewhere: one of a point far from it.
        pass_cost: what a pass costs where samples are read anew in each.
    """

    worker: str
    device: str
    values: tuple[dict[str, float], dict[str, float]]
    elsewhere: dict[str, float] = field(default_factory=dict)
    pass_cost: PassCost | None = None


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
    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        far_points: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Puts a plane on every worker, and finds out there how the loss is added up; ``description`` says it.

        Args:
            origin: as for ``Evaluator.load``.
            directions: the same.
            buffers: the same.
            end_buffers: the same.
            far_points: as for ``Evaluator.settle``; None means 1 along each direction.
        """

    @abstractmethod
    def measure_origin(self) -> list[OriginValues]:
        """Measures the loaded plane's origin twice on every worker, and the first far point in between."""

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

    def __exit__(self, *_: object) -> None:
        self.close()
