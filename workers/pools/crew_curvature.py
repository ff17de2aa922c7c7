"""Curvature on a pool of several workers: a set of weights whole on one, or its samples shared by all."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.files.system import free_memory
from collectors.networks.weight_space import State

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
from ..errors import CurvatureError
from ..pool import CurvatureResult, CurvatureTask, WeightsTask
from .actors import ActorError, ActorTaskError
from .chunks import KILLS_BEFORE_SPLIT, MeasuredSpeed
from .crew import DEATHS_BEFORE_DROP, Crew, LateNodes
from .crew_run import CrewRun
from .crew_worker import CrewWorker, raise_failures

if TYPE_CHECKING:
    from jaxtyping import Float64

_WAIT_SECONDS = 1.0
_SETS_OF_WEIGHTS = itertools.count()


class CurvatureRun(CrewRun):
    """Measures the curvature at sets of weights, each whole on one worker, which has one at a time."""

    _result = CurvatureResult
    _in_flight = 1

    def __init__(self, crew: Crew, tasks: Iterable[CurvatureTask], late_nodes: LateNodes | None = None) -> None:
        super().__init__(crew, tasks, late_nodes)
        self._neighbours = most_on_one_node(crew)

    def __iter__(self) -> Iterator[Any]:
        """Yields one result for every task."""
        self._forget_speeds()
        try:
            yield from super().__iter__()
        finally:
            self._forget_speeds()

    def _forget_speeds(self) -> None:
        for worker in self._crew.workers:
            worker.speed = MeasuredSpeed()  # of points, or of sets of weights, which take a thousand times as long

    def _method_of_source(self, task: WeightsTask, source: bytes) -> tuple[str, tuple[Any, ...]]:
        return "measure_curvature_source", (self._settings_of(task), source)

    def _method_of_weights(self, task: WeightsTask, weights: tuple[Any, Any]) -> tuple[str, tuple[Any, ...]]:
        return "measure_curvature", (self._settings_of(task), *weights)

    def _settings_of(self, task: WeightsTask) -> Any:
        assert isinstance(task, CurvatureTask)
        return replace(task.settings, products=replace(task.settings.products, neighbours=self._neighbours))


class CrewShares(ShareProducts):
    """Products of all shares by a crew, whose networks stay moved until it closes; those of the dead go to others."""

    def __init__(self, crew: Crew, settings: ProductSettings) -> None:
        self._crew, self._put = crew, crew.actors.put
        self._settings = replace(settings, neighbours=most_on_one_node(crew))
        self._notes: dict[str, None] = {}
        self._deaths = 0
        self._layout: Layout
        self._sizes: list[int]
        try:
            self._layout, self._sizes = raise_failures(crew.ask_all("open_shares", self._settings))[0]
        except BaseException:
            self.close()
            raise

    @property
    def layout(self) -> Layout:
        """How vectors are made."""
        return self._layout

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know; known when this is closed."""
        return tuple(self._notes)

    @property
    def memory_for_vectors(self) -> float:
        """Bytes that eigenvectors may take in this process."""
        return SHARE_FOR_VECTORS * free_memory()

    def samples_in(self, share: int) -> int:
        """Returns how many samples a share holds."""
        return self._sizes[share]

    def move(self, parameters: State, buffers: State | None) -> None:
        """Puts the network of every worker at a set of weights."""
        weights = [self._put(dict(parameters)), self._put(None if buffers is None else dict(buffers))]
        self._where = next(_SETS_OF_WEIGHTS), self._settings, weights

    def loss(self, share: int) -> tuple[float, float | None]:
        """Returns a share's sum of losses and its weight."""
        found: tuple[float, float | None] = self._ask_one("loss", share)
        return found

    def gradient(self, share: int) -> Float64[np.ndarray, " weights"]:
        """Returns the gradient of a share's sum of losses."""
        found: Float64[np.ndarray, " weights"] = self._ask_one("gradient", share)
        return found

    def product(self, vector: Vector, share: int, *, few: int = 0) -> Float64[np.ndarray, " weights"]:
        """Returns the matrix of a share's sum of losses times a vector."""
        found: Float64[np.ndarray, " weights"] = self._ask_one("product", share, self._put(vector), few=few)
        return found

    def total_losses(self) -> list[tuple[float, float | None]]:
        """Returns what ``loss`` gives for each share, in order."""
        found = self._ask("loss", [[range(share, share + 1) for share in shares] for shares in self._dealt()])
        return [found[range(share, share + 1)] for share in range(SHARES)]

    def total_gradient(self) -> Float64[np.ndarray, " weights"]:
        """Returns the gradients of all shares, added up."""
        return self._total_of("gradient")

    def total_product(self, vector: Vector) -> Float64[np.ndarray, " weights"]:
        """Returns the products of all shares with a vector, added up."""
        return self._total_of("product", self._put(vector))

    def close(self) -> None:
        """Leaves the network of every worker as it was found."""
        for notes in self._crew.ask_all("close_shares"):
            self._notes |= dict.fromkeys(notes)

    def _dealt(self) -> list[range]:
        """Returns the shares of each worker."""
        count = len(self._crew.workers)
        return [range(SHARES * number // count, SHARES * (number + 1) // count) for number in range(count)]

    def _total_of(self, method: str, *arguments: Any) -> Float64[np.ndarray, " weights"]:
        found = self._ask(method, [whole_halves(shares) for shares in self._dealt()], *arguments)
        total: Float64[np.ndarray, " weights"] = add_shares(range(SHARES), found.get)
        return total

    def _ask_one(self, method: str, share: int, *arguments: Any, **options: Any) -> Any:
        part = range(share, share + 1)
        return self._ask(method, [[part]], *arguments, **options)[part]

    def _ask(self, method: str, parts: Sequence[list[range]], *arguments: Any, **options: Any) -> dict[range, Any]:
        """Returns a ``ShareProducts`` method's sum for each part; the first list is for the first ready worker."""
        found: dict[range, Any] = {}
        while any(parts):
            calls = [
                (worker, those, worker.call("add_shares", self._where, method, those, options, *arguments))
                for worker, those in self._given(parts)
            ]
            lost: list[list[range]] = []
            for worker, those, call in calls:
                try:
                    (sums,) = self._crew.actors.get([call])
                except ActorTaskError:
                    raise
                except ActorError as error:
                    lost += [[part] for part in those]
                    self._bury(worker, error)
                else:
                    worker.deaths = worker.failed_starts = 0
                    found |= zip(those, sums, strict=True)
            if not lost:
                self._deaths = 0
            parts = lost
        return found

    def _given(self, parts: Sequence[list[range]]) -> list[tuple[CrewWorker, list[range]]]:
        """Returns which worker makes what: its own shares where it is ready, for what it keeps of them."""
        ready = self._ready_workers()
        workers = self._crew.workers
        of_worker: dict[CrewWorker, list[range]] = {}
        for number, those in enumerate(parts):
            own = workers[number] if number < len(workers) else None
            of_worker.setdefault(own if own in ready else ready[number % len(ready)], []).extend(those)
        return [(worker, those) for worker, those in of_worker.items() if those]

    def _bury(self, worker: CrewWorker, error: Exception) -> None:
        self._deaths += 1
        self._crew.replace(worker, error, DEATHS_BEFORE_DROP)
        if self._deaths >= KILLS_BEFORE_SPLIT:
            raise CurvatureError(
                f"workers died {self._deaths} times while they measured the curvature at these weights: {error}"
            ) from error

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


def most_on_one_node(crew: Crew) -> int:
    """Returns how many of a crew's workers share a machine's memory, where most do, or will when late ones join."""
    return max(Counter(node for node, *_ in crew.ask_all("place")).values()) + len(crew.late)
