"""A pool of Ray actors, one on each device."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from collectors.network_state import State

from .chunks import Chunk, ChunkQueue
from .devices import choose_devices, gpu_ids, share_cores
from .errors import CallbackFunctionError, NondeterministicLossError, PoolError
from .evaluator import EvaluatorDescription, MeasurementOptions
from .measurement_plan import MeasurementPlan
from .pool import OriginValues, Pool, Result, StateTask, Task
from .ray_actor import MeasurementActor
from .ray_session import RaySession

_IN_FLIGHT = 2
_DEATHS_BEFORE_DROP = 12
_FAILED_STARTS_BEFORE_DROP = 3
_PLACEMENT_SECONDS = 30.0
_WAIT_SECONDS = 1.0


@dataclass
class _Worker:
    """One device's actor, now or after it has been started again."""

    device_id: int
    cores: tuple[int, ...] | None
    device: str
    actor: Any = None
    in_flight: deque[tuple[Any, Chunk]] = field(default_factory=deque)
    starting: Any = None
    points_per_second: float | None = None
    deaths: int = 0
    failed_starts: int = 0

    @property
    def label(self) -> str:
        return f"the worker of device {self.device_id}"


class RayPool(Pool):
    """Measures on several devices at once.

    Args:
        callback_fn: see ``build_evaluator``; it may be a lambda, a closure or a notebook's function.
        options: what is measured.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        address: of a Ray cluster to join; None uses a Ray that runs already, or starts a private one.
        plan: how to compute; None lets the first worker tune one for all.

    Raises:
        PoolError: no worker could be started.
        CallbackFunctionError: callback_fn cannot be sent to the workers, or failed there.
        NondeterministicLossError: the workers were given different networks or samples by callback_fn.
    """

    def __init__(
        self,
        callback_fn: Callable[[], Any],
        options: MeasurementOptions,
        *,
        device_ids: tuple[int, ...] | None = None,
        address: str | None = None,
        plan: MeasurementPlan | None = None,
    ) -> None:
        ids = choose_devices(device_ids)
        gpus = bool(gpu_ids())
        self._session = RaySession(address, slots=len(ids), gpus=ids if gpus else ())
        self._ray = self._session.ray
        self._options = options
        self._vectors: Any = None
        self._workers: list[_Worker] = []
        try:
            self._callback = self._ray.put(self._pickled(callback_fn))
            shares = share_cores(len(ids)) if self._session.private else [None] * len(ids)
            device = "cuda:0" if gpus else "cpu"
            self._workers = [_Worker(number, cores, device) for number, cores in zip(ids, shares, strict=True)]
            self._gpus = gpus
            self._start_all(plan)
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> EvaluatorDescription:
        """What the workers measure; all of them agree on it."""
        return self._description

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self._workers)

    @property
    def process_ids(self) -> list[int]:
        """The process id of every worker."""
        return list(self._ray.get([worker.actor.process_id.remote() for worker in self._workers]))

    def load(self, origin: State, directions: Sequence[State], buffers: State) -> None:
        """Puts a plane on every worker; its vectors travel once to each node."""
        self._axes = len(directions)
        self._vectors = [self._ray.put(dict(origin)), self._ray.put([dict(item) for item in directions]), dict(buffers)]
        self._ray.get([worker.actor.load.remote(*self._vectors_for_load()) for worker in self._workers])

    def measure_origin(self) -> list[OriginValues]:
        """Measures the loaded plane's origin twice on every worker."""
        answers = self._ray.get([worker.actor.measure_origin.remote() for worker in self._workers])
        return [
            OriginValues(worker.label, device, values)
            for worker, (device, values) in zip(self._workers, answers, strict=True)
        ]

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks, each exactly once; a dead worker's chunk runs again elsewhere."""
        queue = ChunkQueue(tasks, len(self._workers))
        while True:
            for worker in self._workers:
                self._feed(worker, queue)
            waiting = [worker.in_flight[0][0] for worker in self._workers if worker.in_flight]
            starting = [worker.starting for worker in self._workers if worker.starting is not None]
            if not waiting and (not starting or queue.is_empty):
                return
            ready, _ = self._ray.wait(waiting + starting, num_returns=1, timeout=_WAIT_SECONDS)
            for worker in list(self._workers):
                if worker.starting is not None and worker.starting in ready:
                    self._finish_start(worker)
                elif worker.in_flight and worker.in_flight[0][0] in ready:
                    yield from self._collect(worker, queue)

    def close(self) -> None:
        """Ends the actors, and Ray where it was started for this pool."""
        for worker in self._workers:
            if worker.actor is not None:
                with contextlib.suppress(Exception):
                    self._ray.kill(worker.actor)
        self._workers = []
        self._vectors = None
        self._session.close()

    def _pickled(self, callback_fn: Callable[[], Any]) -> bytes:
        try:
            return bytes(self._ray.cloudpickle.dumps(callback_fn))
        except Exception as error:
            raise CallbackFunctionError(
                f"callback_fn cannot be sent to the workers ({type(error).__name__}: {error}); build the network "
                "and the data "
                "set inside the function instead of closing over open files, locks or other live objects."
            ) from error

    def _start_all(self, plan: MeasurementPlan | None) -> None:
        for worker in self._workers:
            worker.actor = self._new_actor(worker)
        # All processes start and import the user's framework at once; only tuning waits for the first of them.
        prepared = {worker.actor.prepare.remote(self._callback): worker for worker in self._workers}
        done, late = self._ray.wait(list(prepared), num_returns=len(prepared), timeout=_PLACEMENT_SECONDS)
        if late:
            self._drop_late([prepared[reference] for reference in late])
        self._raise_failure(self._get([reference for reference in prepared if reference in done]))
        first, *others = self._workers
        (self._description,) = self._raise_failure(self._get([first.actor.start.remote(self._options, plan)]))
        plan = self._description.plan
        starts = [worker.actor.start.remote(self._options, plan) for worker in others]
        for worker, description in zip(others, self._raise_failure(self._get(starts)), strict=True):
            self._check_description(worker, description)

    def _new_actor(self, worker: _Worker) -> Any:
        actor_class = self._ray.remote(MeasurementActor)
        options = {"num_cpus": 1, "num_gpus": 1 if self._gpus else 0, "max_restarts": 0, "max_task_retries": 0}
        return actor_class.options(**options).remote(worker.cores, worker.device, list(sys.path))

    def _drop_late(self, late: list[_Worker]) -> None:
        if len(late) == len(self._workers):
            raise PoolError(
                f"no worker found a place within {_PLACEMENT_SECONDS:.0f} s. The cluster has "
                f"{self._ray.cluster_resources()}, "
                f"free are {self._ray.available_resources()}; each worker needs one CPU"
                + (" and one GPU." if self._gpus else ".")
                + " Ask for fewer device_ids or free some resources."
            )
        warnings.warn(
            f"{len(late)} of {len(self._workers)} workers found no place within {_PLACEMENT_SECONDS:.0f} s; going "
            "on without.",
            stacklevel=2,
        )
        for worker in late:
            self._ray.kill(worker.actor)
            self._workers.remove(worker)

    def _get(self, references: list[Any]) -> list[Any]:
        try:
            return list(self._ray.get(references))
        except self._ray.exceptions.RayError as error:
            raise PoolError(f"a worker died while it started: {error}") from error

    @staticmethod
    def _raise_failure(answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _check_description(self, worker: _Worker, found: EvaluatorDescription) -> None:
        expected = self._description
        differences = expected.space.differences(found.space)
        if found.samples_sha256 != expected.samples_sha256:
            differences.append(f"samples {expected.samples_sha256[:12]} against {found.samples_sha256[:12]}")
        if found.metrics != expected.metrics:
            differences.append(f"metrics {expected.metrics} against {found.metrics}")
        if differences:
            raise NondeterministicLossError(
                f"callback_fn must build the same network and samples on every worker, but {worker.label} has "
                "others:\n  "
                + "\n  ".join(differences[:20])
                + "\nSet the seeds of whatever is random in it, and switch random augmentation off."
            )

    def _vectors_for_load(self) -> tuple[Any, Any, Any]:
        origin, directions, buffers = self._vectors
        return origin, directions, buffers

    def _feed(self, worker: _Worker, queue: ChunkQueue) -> None:
        while worker.starting is None and len(worker.in_flight) < _IN_FLIGHT:
            if worker.in_flight and worker.points_per_second is None:
                return  # the speed is not known yet
            chunk = queue.next(worker.points_per_second)
            if chunk is None:
                return
            if chunk.is_state:
                (task,) = chunk.tasks
                assert isinstance(task, StateTask)
                parameters, buffers = task.read()
                reference = worker.actor.measure_state.remote(self._ray.put(dict(parameters)), buffers)
            else:
                points = [task.coordinates for task in chunk.tasks]  # type: ignore[union-attr]
                reference = worker.actor.measure_points.remote(points)
            worker.in_flight.append((reference, chunk))

    def _collect(self, worker: _Worker, queue: ChunkQueue) -> Iterator[Result]:
        reference, chunk = worker.in_flight[0]
        try:
            outcomes, seconds = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError as error:
            yield from self._bury(worker, queue, error)
            return
        worker.in_flight.popleft()
        worker.deaths = worker.failed_starts = 0
        if not chunk.is_state or worker.points_per_second is None:
            worker.points_per_second = len(chunk.tasks) / max(seconds, 1e-6)
        for task, (values, error) in zip(chunk.tasks, outcomes, strict=True):
            yield Result(task.key, values, error)

    def _bury(self, worker: _Worker, queue: ChunkQueue, error: Exception) -> Iterator[Result]:
        """Takes back what a dead worker had, and starts another one in its place."""
        for position, (_, chunk) in enumerate(worker.in_flight):
            hopeless = queue.bring_back(chunk, killed=position == 0)
            if hopeless is not None:
                text = f"The worker died {hopeless.kills} times while it measured this point: {error}"
                yield from (Result(task.key, None, text) for task in hopeless.tasks)
        worker.in_flight.clear()
        worker.deaths += 1
        if worker.deaths >= _DEATHS_BEFORE_DROP:
            self._drop(worker, error)
        else:
            self._start_again(worker)

    def _start_again(self, worker: _Worker) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(worker.actor)
        worker.actor = self._new_actor(worker)
        worker.actor.prepare.remote(self._callback)
        worker.actor.start.remote(self._options, self._description.plan)
        # Calls on one actor run in order, so the last one is ready when all are.
        worker.starting = worker.actor.load.remote(*self._vectors_for_load())

    def _finish_start(self, worker: _Worker) -> None:
        reference, worker.starting = worker.starting, None
        try:
            self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            worker.failed_starts += 1
            if worker.failed_starts >= _FAILED_STARTS_BEFORE_DROP:
                self._drop(worker, error)
            else:
                time.sleep(0.5)
                self._start_again(worker)

    def _drop(self, worker: _Worker, error: Exception) -> None:
        self._workers.remove(worker)
        if not self._workers:
            raise PoolError(
                "the last worker died and could not be started again. What was measured is in the file; run the same "
                f"call again to go on. The last error was: {error}"
            ) from error
        warnings.warn(f"{worker.label} keeps dying and is given up; {len(self._workers)} go on. {error}", stacklevel=2)
