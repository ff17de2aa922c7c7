"""A pool of actors, one on each device, whatever it is that runs them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, cast

import numpy as np

from collectors.networks.weight_space import State
from collectors.shapes import Float64

from ..curvature.products import (
    SHARE_FOR_VECTORS,
    SHARES,
    Layout,
    ProductSettings,
    ShareProducts,
    Vector,
    add_shares,
    whole_halves,
)
from ..curves.curve import CurveTask, Fitting
from ..errors import CurvatureError, closing_on_failure
from ..evaluator import EvaluatorDescription
from ..hardware import free_memory
from ..pool import CurvatureResult, CurvatureTask, OriginValues, Pool, Result, SampleLosses, Task, TasksInTime
from .actors import ActorDeathError
from .chunks import KILLS_BEFORE_SPLIT
from .crew import DEATHS_BEFORE_DROP, Crew
from .crew_run import CrewRun
from .crew_worker import CrewWorker
from .in_process import fit_in_parts, measure_curvature_at

_WAIT_SECONDS = 1.0
_SETS_OF_WEIGHTS = itertools.count()


class ActorPool(Pool):
    """Measures with a crew of actors, which is not started yet; the session ends with the pool."""

    def __init__(self, session: AbstractContextManager[Any], crew: Crew) -> None:
        self._session, self._crew = session, crew

    @property
    def description(self) -> EvaluatorDescription:
        return self._crew.description

    @property
    def workers(self) -> int:
        return len(self._crew.workers)

    @property
    def process_ids(self) -> list[int]:
        return [process for _, _, process in self._crew.ask_all("place")]

    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        far_points: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Puts a plane on every worker, where its vectors travel once to each node; the workers settle on it."""
        several = [[dict(item) for item in states] for states in (directions, end_buffers)]
        values = dict(origin), several[0], dict(buffers), several[1]
        self._crew.load([self._crew.actors.put(value) for value in values], far_points)

    def measure_origin(self) -> list[OriginValues]:
        answers = self._crew.ask_all("ask", "measure_origin")
        self._crew.pass_cost = answers[0][1].pass_cost
        return [
            OriginValues(worker.label, device, measured)
            for worker, (device, measured) in zip(self._crew.workers, answers, strict=True)
        ]

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks, each exactly once; what a dead or slow worker has is measured elsewhere."""
        yield from CrewRun(self._crew, tasks)

    def sample_losses(self, points: Sequence[Sequence[float]]) -> SampleLosses | None:
        return cast("SampleLosses | None", self._crew.ask_one("ask", "sample_losses", points))

    def run_curvature(self, tasks: Iterable[CurvatureTask]) -> Iterator[CurvatureResult]:
        """Measures the curvature at sets of weights, one worker for each; that of a dead one is measured again."""
        crew, neighbours = self._crew, self._crew.most_on_one_node()
        crew.forget_speeds()
        try:
            found = TasksInTime((task.beside(neighbours) for task in tasks), TasksInTime.clock_of(tasks))
            yield from CrewRun(crew, found, in_flight=1, result=CurvatureResult)
        finally:
            crew.forget_speeds()

    def measure_curvature(self, task: CurvatureTask) -> CurvatureResult:
        """Measures the curvature at one set of weights, of whose samples each worker has a part."""
        with SharedProducts(self._crew, task.settings.products) as shares:
            values, error = measure_curvature_at(shares, task.read, task.settings, check=True)
        if values is not None:
            values = replace(values, notes=tuple(dict.fromkeys((*shares.notes, *values.notes))))
        return CurvatureResult(task.key, values, error)

    def fit_curve(self, task: CurveTask, begun: Fitting | None = None, seconds: float = 5.0) -> Iterator[Fitting]:
        """Fits a curve on the first worker; where that one dies, another goes on from what was yielded last."""
        stored = self._crew.actors.put(task)
        return fit_in_parts(task, begun, lambda so_far: self._crew.ask_one("ask", "fit_curve", stored, so_far, seconds))

    def close(self) -> None:
        self._crew.end()
        self._session.__exit__(None, None, None)


class SharedProducts(ShareProducts):
    """Products of all shares by a crew, whose networks stay moved until it closes; those of the dead go to others."""

    def __init__(self, crew: Crew, settings: ProductSettings) -> None:
        self._crew, self._put = crew, crew.actors.put
        self._settings = replace(settings, neighbours=crew.most_on_one_node())
        self._notes: dict[str, None] = {}
        self._deaths = 0
        self._layout: Layout
        self._sizes: list[int]
        with closing_on_failure(self):
            self._layout, self._sizes, self.are_differences = crew.ask_all("ask", "open_shares", self._settings)[0]

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know; known when this is closed."""
        return tuple(self._notes)

    @property
    def memory_for_vectors(self) -> float:
        return SHARE_FOR_VECTORS * free_memory()

    def samples_in(self, share: int) -> int:
        return self._sizes[share]

    def move(self, parameters: State, buffers: State | None) -> None:
        weights = [self._put(dict(parameters)), self._put(None if buffers is None else dict(buffers))]
        self._where = next(_SETS_OF_WEIGHTS), self._settings, weights

    def loss(self, share: int) -> tuple[float, float | None]:
        return cast("tuple[float, float | None]", self._ask_one("loss", share))

    def gradient(self, share: int) -> Float64[np.ndarray, " weights"]:
        return cast(np.ndarray, self._ask_one("gradient", share))

    def product(self, vector: Vector, share: int, *, few: int = 0) -> Float64[np.ndarray, " weights"]:
        return cast(np.ndarray, self._ask_one("product", share, self._put(vector), few=few))

    def total_losses(self) -> list[tuple[float, float | None]]:
        found = self._ask("loss", [[range(share, share + 1) for share in shares] for shares in self._dealt()])
        return [found[range(share, share + 1)] for share in range(SHARES)]

    def total(self, method: str, *arguments: Vector) -> Float64[np.ndarray, " weights"]:
        found = self._ask(method, [whole_halves(shares) for shares in self._dealt()], *map(self._put, arguments))
        return cast(np.ndarray, add_shares(range(SHARES), found.get))

    def close(self) -> None:
        for notes in self._crew.ask_all("ask", "close_shares"):
            self._notes |= dict.fromkeys(notes)

    def _dealt(self) -> list[range]:
        count = len(self._crew.workers)
        return [range(SHARES * number // count, SHARES * (number + 1) // count) for number in range(count)]

    def _ask_one(self, method: str, share: int, *arguments: Any, **options: Any) -> Any:
        part = range(share, share + 1)
        return self._ask(method, [[part]], *arguments, **options)[part]

    def _ask(self, method: str, parts: Sequence[list[range]], *arguments: Any, **options: Any) -> dict[range, Any]:
        """Returns a ``ShareProducts`` method's sum for each part; the first list is for the first ready worker."""
        found: dict[range, Any] = {}
        while any(parts):
            ready, workers = self._ready_workers(), self._crew.workers
            given: dict[CrewWorker, list[range]] = {}
            for number, those in enumerate(parts):
                # A worker that is ready gets the shares of which it keeps something.
                own = workers[number] if number < len(workers) else None
                given.setdefault(own if own in ready else ready[number % len(ready)], []).extend(those)
            calls = [
                (worker, those, worker.call("add_shares", self._where, method, those, options, *arguments))
                for worker, those in given.items()
                if those
            ]
            lost: list[list[range]] = []
            for worker, those, call in calls:
                try:
                    (sums,) = self._crew.actors.get([call])
                except ActorDeathError as error:
                    lost += [[part] for part in those]
                    self._deaths += 1
                    self._crew.replace(worker, error, DEATHS_BEFORE_DROP)
                    if self._deaths >= KILLS_BEFORE_SPLIT:
                        raise CurvatureError(
                            f"workers died {self._deaths} times while they measured the curvature at these weights: "
                            f"{error}"
                        ) from error
                else:
                    worker.deaths = worker.failed_starts = 0
                    found |= zip(those, sums, strict=True)
            if not lost:
                self._deaths = 0
            parts = lost
        return found

    def _ready_workers(self) -> list[CrewWorker]:
        """Returns the workers that are not starting, in order; waits where there are none."""
        while True:
            self._crew.admit_late()
            for worker in [worker for worker in self._crew.workers if worker.starting]:
                self._crew.finish_start(worker)
            workers = self._crew.workers
            if ready := [worker for worker in workers if not worker.starting]:
                return ready
            self._crew.actors.wait([worker.starting[-1] for worker in workers], seconds=_WAIT_SECONDS)
