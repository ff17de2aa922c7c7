"""A pool of Ray actors, one on each device."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from collectors.network_state import State

from .chunks import Chunk, ChunkQueue
from .devices import share_cores
from .errors import CallbackFunctionError, PoolError
from .evaluator import EvaluatorDescription, MeasurementOptions
from .measurement_plan import MeasurementPlan, Workload
from .pool import OriginValues, Pool, Result, StateTask, Task
from .ray_placement import PLACEMENT_SECONDS, place_workers, private_devices
from .ray_session import RaySession
from .ray_worker import ActorRecipe, RayWorker, check_same_description, mentioned_frameworks, raise_failures

_IN_FLIGHT = 2
_DEATHS_BEFORE_DROP = 12
_FAILED_STARTS_BEFORE_DROP = 3
_WAIT_SECONDS = 1.0


class RayPool(Pool):
    """Measures on several devices at once.

    Args:
        callback_fn: see ``build_evaluator``; it may be a lambda, a closure or a notebook's function.
        options: what is measured.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        address: of a Ray cluster to join; None uses a Ray that runs already, or starts a private one.
        plan: how to compute; None lets the first worker tune one for all.
        workload: for how much work it is tuned.

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
        workload: Workload | None = None,
    ) -> None:
        ids, gpus = private_devices(device_ids, address)
        self._session = RaySession(address, slots=len(ids), gpus=ids if gpus else ())
        self._ray = self._session.ray
        self._vectors: list[Any] | None = None
        self._workers: list[RayWorker] = []
        try:
            if not self._session.private:
                gpus = self._ray.cluster_resources().get("GPU", 0) > 0
            pickled = self._pickled(callback_fn)
            frameworks = mentioned_frameworks(callback_fn, pickled)
            # Ray finds Ascend devices by itself; only MindSpore computes on them.
            npus = int(self._ray.cluster_resources().get("NPU", 0)) if "mindspore" in frameworks and not gpus else 0
            recipe = ActorRecipe(self._ray, self._ray.put(pickled), frameworks, options, gpus, npus > 0)
            if self._session.private:
                ids = tuple(range(npus)) if npus and device_ids is None else ids
                shares = share_cores(len(ids))
                self._workers = [RayWorker(recipe, number, cores) for number, cores in zip(ids, shares, strict=True)]
                place_workers(self._workers)
            else:
                place_workers(self._workers, recipe, device_ids)
            self._description = self._start_all(plan, workload)
        except BaseException:
            self.close()
            raise
        for note in self._description.notes:
            warnings.warn(note, stacklevel=3)

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
        return [process for _, _, process in self._ask_all("place")]

    def load(self, origin: State, directions: Sequence[State], buffers: State) -> None:
        """Puts a plane on every worker; its vectors travel once to each node."""
        put = self._ray.put
        self._vectors = [put(dict(origin)), put([dict(item) for item in directions]), put(dict(buffers))]
        self._ask_all("load", *self._vectors)

    def measure_origin(self) -> list[OriginValues]:
        """Measures the loaded plane's origin twice on every worker."""
        answers = self._ask_all("measure_origin")
        return [
            OriginValues(worker.label, device, values)
            for worker, (device, values) in zip(self._workers, answers, strict=True)
        ]

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks, each exactly once; a dead worker's chunk runs again elsewhere."""
        for worker in self._workers:
            worker.in_flight.clear()  # a run that its caller left early; its outcomes belong to nobody
        queue = ChunkQueue(tasks, len(self._workers))
        while True:
            for worker in list(self._workers):
                yield from self._feed(worker, queue)
            measuring = [worker.in_flight[0][0] for worker in self._workers if worker.in_flight]
            starting = [worker.starting[-1] for worker in self._workers if worker.starting]
            if not measuring and (not starting or queue.is_empty):
                return
            ready, _ = self._ray.wait(measuring + starting, num_returns=1, timeout=_WAIT_SECONDS)
            for worker in list(self._workers):
                if worker.starting:
                    self._finish_start(worker)
                elif worker.in_flight and worker.in_flight[0][0] in ready:
                    yield from self._collect(worker, queue)

    def close(self) -> None:
        """Ends the actors, and Ray where it was started for this pool."""
        for worker in self._workers:
            worker.end()
        self._workers = []
        self._vectors = None
        self._session.close()

    def _pickled(self, callback_fn: Callable[[], Any]) -> bytes:
        try:
            return bytes(self._ray.cloudpickle.dumps(callback_fn))
        except Exception as error:
            raise CallbackFunctionError(
                f"callback_fn cannot be sent to the workers ({type(error).__name__}: {error}); build the network "
                "and the data set inside the function instead of closing over open files, locks or other live objects."
            ) from error

    def _start_all(self, plan: MeasurementPlan | None, workload: Workload | None) -> EvaluatorDescription:
        workers, options = self._workers, self._workers[0].recipe.options
        first, *others = workers
        prepared = [worker.prepare() for worker in workers]
        # The first worker's call comes before the others', so that a data set is downloaded once.
        raise_failures(self._get([*prepared, first.actor.call.remote()]))
        if workload is not None:
            workload = replace(workload, points=workload.points / len(workers), workers=len(workers))
        # The first worker also fills the compile cache, which the others then find warm.
        tuning = first.actor.start.remote(options, plan, workload)
        calls = [worker.actor.call.remote() for worker in others]
        (description,) = raise_failures(self._get([tuning]))
        starts = [worker.actor.start.remote(options, description.plan) for worker in others]
        raise_failures(self._get(calls))
        for worker, found in zip(others, raise_failures(self._get(starts)), strict=True):
            check_same_description(worker.label, description, found)
            own = tuple(f"{worker.label}: {note}" for note in found.notes if note not in description.notes)
            description = replace(description, notes=description.notes + own)
        return description  # type: ignore[no-any-return]

    def _get(self, references: list[Any]) -> list[Any]:
        try:
            return list(self._ray.get(references))
        except self._ray.exceptions.RayError as error:
            raise PoolError(
                "a worker died while it started. Likely causes: memory ran out (use fewer device_ids), or callback_fn "
                f"ends its process. Ray says: {error}"
            ) from error

    def _ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """Calls a method on every worker; one that died meanwhile is started again and asked once more."""
        answers: dict[int, Any] = {}
        waiting = list(self._workers)
        while waiting:
            calls = []
            for worker in waiting:
                while worker.starting:
                    self._ray.wait(worker.starting[-1:], timeout=_WAIT_SECONDS)
                    self._finish_start(worker)
                if worker in self._workers:
                    calls.append((worker, getattr(worker.actor, method).remote(*arguments)))
            waiting = []
            for worker, reference in calls:
                try:
                    answers[id(worker)] = self._ray.get(reference)
                except self._ray.exceptions.RayTaskError:
                    raise
                except self._ray.exceptions.RayError as error:
                    self._replace(worker, error, _FAILED_STARTS_BEFORE_DROP)
                    waiting.append(worker)
                else:
                    worker.deaths = worker.failed_starts = 0
        return [answers[id(worker)] for worker in self._workers]

    def _feed(self, worker: RayWorker, queue: ChunkQueue) -> Iterator[Result]:
        """Gives a worker its next chunks; yields what could not even be read."""
        while not worker.starting and len(worker.in_flight) < _IN_FLIGHT:
            if worker.in_flight and (worker.points_per_second is None or worker.in_flight[0][1].alone):
                return  # the speed is not known yet, or the chunk is under suspicion
            chunk = queue.next(worker.points_per_second, idle=not worker.in_flight)
            if chunk is None:
                return
            try:
                worker.in_flight.append((self._submit(worker, chunk), chunk))
            except self._ray.exceptions.RayError:
                raise
            except Exception:
                text = traceback.format_exc()
                for task in chunk.tasks:
                    yield Result(task.key, None, text)

    def _submit(self, worker: RayWorker, chunk: Chunk) -> Any:
        if chunk.is_state:
            (task,) = chunk.tasks
            assert isinstance(task, StateTask)
            parameters, buffers = task.read()
            return worker.actor.measure_state.remote(self._ray.put(dict(parameters)), buffers)
        return worker.actor.measure_points.remote([task.coordinates for task in chunk.tasks])  # type: ignore[union-attr]

    def _collect(self, worker: RayWorker, queue: ChunkQueue) -> Iterator[Result]:
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
        for task, (values, problem) in zip(chunk.tasks, outcomes, strict=True):
            yield Result(task.key, values, problem)

    def _bury(self, worker: RayWorker, queue: ChunkQueue, error: Exception) -> Iterator[Result]:
        """Takes back what a dead worker had, and starts another one in its place."""
        for position, (_, chunk) in enumerate(worker.in_flight):
            hopeless = queue.bring_back(chunk, killed=position == 0)
            if hopeless is not None:
                text = f"The worker died {hopeless.kills} times while it measured this point: {error}"
                for task in hopeless.tasks:
                    yield Result(task.key, None, text)
        worker.in_flight.clear()
        self._replace(worker, error, _DEATHS_BEFORE_DROP)

    def _replace(self, worker: RayWorker, error: Exception, limit: int) -> None:
        worker.deaths += 1
        if worker.deaths >= limit:
            self._drop(worker, error)
        else:
            worker.start_again(self._description.plan, self._vectors)

    def _finish_start(self, worker: RayWorker) -> None:
        """Looks whether a worker that was started again is ready; starts it once more where that failed."""
        done, _ = self._ray.wait(worker.starting, num_returns=len(worker.starting), timeout=0)
        if len(done) < len(worker.starting):
            if not done and time.monotonic() - worker.started_at > PLACEMENT_SECONDS:
                self._drop(worker, PoolError(f"{worker.label} found no place to start again."))
            return
        try:
            # One after another: the first failure is the cause of those that follow.
            answers = [answer for call in worker.starting for answer in raise_failures([self._ray.get(call)])]
        except Exception as error:
            worker.failed_starts += 1
            if worker.failed_starts >= _FAILED_STARTS_BEFORE_DROP:
                self._drop(worker, error)
            else:
                worker.start_again(self._description.plan, self._vectors)
            return
        worker.starting = []
        (found,) = (answer for answer in answers if isinstance(answer, EvaluatorDescription))
        check_same_description(worker.label, self._description, found)

    def _drop(self, worker: RayWorker, error: Exception) -> None:
        worker.end()
        self._workers.remove(worker)
        if not self._workers:
            raise PoolError(
                "the last worker died and could not be started again. What was measured is in the file; run the same "
                f"call again to go on. The last error was: {error}"
            ) from error
        warnings.warn(f"{worker.label} keeps dying and is given up; {len(self._workers)} go on. {error}", stacklevel=2)
