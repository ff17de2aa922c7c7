"""One run of a pool: tasks go out in chunks, results come back, whatever dies or lags behind."""

from __future__ import annotations

import contextlib
import functools
import math
import pickle
import statistics
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..pool import CurvatureTask, Result, Task, WeightsTask
from .actors import ActorDeathError, ActorError
from .chunks import CHUNK_SECONDS, Chunk, ChunkQueue
from .crew import DEATHS_BEFORE_DROP, Crew
from .crew_worker import CrewWorker, InFlight

_WAIT_SECONDS = 1.0
_IDLE_WAIT_SECONDS = 0.1
# A turn looks at all workers, which costs as much as several answers: it waits until more have come.
_PAUSE_SECONDS_PER_WORKER = 2e-5
# Looking for what is worth stealing compares all idle workers with all chunks.
_STEAL_SECONDS_PER_WORKER = 2e-4
_WORTHWHILE_SECONDS = 0.1
# A chunk that killed a worker may cost another one, so it is left where it is unless that worker hangs.
_WORTHWHILE_RISK_SECONDS = 60.0
# How long a point is expected to take until a worker has measured one.
_UNKNOWN_SECONDS = 10.0


class CrewRun:
    """Measures tasks, read as they are needed, on a crew; iterates over their results."""

    def __init__(
        self, crew: Crew, tasks: Iterable[Task | CurvatureTask], *, in_flight: int = 2, result: type[Any] = Result
    ) -> None:
        self._crew, self._in_flight, self._result = crew, in_flight, result
        self._actors = crew.actors
        self._queue = ChunkQueue(tasks, len(crew.workers), crew.pass_cost)
        self._unsettled: set[Chunk] = set()
        self._next_theft = -math.inf

    def __iter__(self) -> Iterator[Any]:
        for worker in self._crew.workers:
            worker.cannot_read = None  # other weights may lie elsewhere
            for item in worker.in_flight:
                item.chunk.settle()  # of a run that its caller left early
        try:
            yield from self._results()
        finally:
            for chunk in self._unsettled:
                chunk.settle()

    def _results(self) -> Iterator[Any]:
        crew = self._crew
        while True:
            crew.look_for_nodes()
            crew.admit_late()
            if not self._queue.is_empty:
                for worker in list(crew.workers):
                    if len(worker.in_flight) < self._in_flight:
                        yield from self._feed(worker)
            if not self._unsettled and self._queue.is_empty:
                return
            idle = [worker for worker in crew.workers if not (worker.in_flight or worker.starting)]
            if idle:
                yield from self._steal(idle)
            came = self._wait(some_are_idle=bool(idle))
            # None of them, if there is an error among them.
            answers: dict[Any, Any] = {}
            with contextlib.suppress(ActorError):
                answers = dict(zip(came, self._actors.answers(list(came)), strict=True))
            for worker in [worker for worker in crew.workers if worker.starting]:
                crew.finish_start(worker)
            for call, worker in came.items():
                # A call of finish_start may have found out that the worker is dead.
                if worker.in_flight and worker.in_flight[0].call == call:
                    yield from self._collect(worker, answers)

    def _steal(self, idle: Sequence[CrewWorker]) -> Iterator[Any]:
        now = time.monotonic()
        if now < self._next_theft:
            return
        self._next_theft = now + _STEAL_SECONDS_PER_WORKER * len(self._crew.workers)
        for thief, chunk in chunks_to_steal(idle, self._crew.workers, now):
            if not chunk.settled:
                # The first answer counts. The slower worker keeps the chunk, even into the next run, which drops it.
                chunk.copies += 1
                yield from self._send(thief, chunk)

    def _wait(self, *, some_are_idle: bool) -> dict[Any, CrewWorker]:
        """Returns the answers that are there and whose they are: one at least, unless nothing comes for a while."""
        workers = self._crew.workers
        measuring = {worker.in_flight[0].call: worker for worker in workers if worker.in_flight}
        waiting = [*measuring, *(worker.starting[-1] for worker in workers if worker.starting)]
        self._actors.wait(waiting, seconds=_IDLE_WAIT_SECONDS if some_are_idle else _WAIT_SECONDS)
        # Nobody waits for work meanwhile: each worker has another chunk, or there is no more.
        pause = 0.0 if some_are_idle else _PAUSE_SECONDS_PER_WORKER * len(workers)
        ready, _ = self._actors.wait(waiting, count=len(waiting), seconds=pause)
        return {call: measuring[call] for call in ready if call in measuring}

    def _feed(self, worker: CrewWorker) -> Iterator[Any]:
        """Gives a worker its next chunks; yields what could not even be read."""
        while not worker.starting and len(worker.in_flight) < self._in_flight:
            if worker.in_flight and not self._may_wait(worker):
                return
            chunk = self._queue.next(worker.speed, idle=not worker.in_flight)
            if chunk is None:
                return
            yield from self._send(worker, chunk)

    def _may_wait(self, worker: CrewWorker) -> bool:
        """Whether another chunk may wait behind what a worker has."""
        chunk, speed = worker.in_flight[0].chunk, worker.speed.seconds_per_point
        if speed is None or chunk.alone:
            return False  # the speed is not known yet, or the chunk is under suspicion
        # Slow points need none, and a budget may end before it is begun; weights are read meanwhile.
        return speed <= CHUNK_SECONDS or chunk.is_state

    def _send(self, worker: CrewWorker, chunk: Chunk) -> Iterator[Any]:
        """Gives a worker a chunk; yields the failure of weights that this process must read, and cannot."""
        try:
            self._submit(worker, chunk)
        except Exception:
            text = traceback.format_exc()
            worker.cannot_read = None  # nobody can
            chunk.settle()
            self._unsettled.discard(chunk)
            for task in chunk.tasks:
                yield self._result(task.key, None, text)

    def _submit(self, worker: CrewWorker, chunk: Chunk) -> None:
        ask = functools.partial(self._actors.call, worker.actor)
        if not chunk.is_state:
            call = ask("measure_points", [task.coordinates for task in chunk.tasks])
        else:
            (task,) = chunk.tasks
            settings = task.settings if isinstance(task, CurvatureTask) else None
            if (source := _source(worker, task)) is not None:
                call = ask("measure_source", source, settings)
            else:
                if chunk.weights is None:
                    parameters, buffers = task.read()
                    chunk.weights = self._actors.put(dict(parameters)), buffers
                call = ask("measure_state", *chunk.weights, settings)
        if not worker.in_flight:
            worker.busy_since = time.monotonic()
        worker.in_flight.append(InFlight(call, chunk, worker.actor))
        self._unsettled.add(chunk)

    def _collect(self, worker: CrewWorker, answers: Mapping[Any, Any]) -> Iterator[Any]:
        item = worker.in_flight[0]
        call, chunk = item.call, item.chunk
        try:
            answer = answers[call] if call in answers else self._actors.answers([call])[0]
        except ActorDeathError as error:
            yield from self._bury(worker, error)
            return
        worker.in_flight.popleft()
        worker.busy_since = time.monotonic()
        worker.deaths = worker.failed_starts = 0
        if answer is None:
            if not chunk.settled:
                worker.cannot_read = item.actor
                yield from self._send(worker, chunk)
            return
        if isinstance(answer, Exception):
            raise answer
        outcomes, seconds, plan = answer
        self._crew.follow(plan)
        if not chunk.is_state or not worker.speed.is_known:
            worker.speed.add(len(chunk.tasks), seconds)
        if not chunk.settled:
            chunk.settle()
            self._unsettled.discard(chunk)
            for task, outcome in zip(chunk.tasks, outcomes, strict=True):
                yield self._result(task.key, *outcome)

    def _bury(self, worker: CrewWorker, error: Exception) -> Iterator[Any]:
        """Takes back what a dead worker had, and starts another one in its place."""
        dead = worker.in_flight[0].actor
        lost = list(worker.in_flight)
        worker.in_flight.clear()
        for position, item in enumerate(lost):
            shared = item.chunk.copies > 1
            hopeless = self._queue.bring_back(item.chunk, killed=position == 0)
            if item.chunk.settled or not shared:
                self._unsettled.discard(item.chunk)
            if hopeless is not None:
                text = f"The worker died {hopeless.kills} times while it measured this point: {error}"
                for task in hopeless.tasks:
                    yield self._result(task.key, None, text)
        if worker.actor is dead:  # a call in between may have noticed its death already
            self._crew.replace(worker, error, DEATHS_BEFORE_DROP)


def _source(worker: CrewWorker, task: WeightsTask) -> bytes | None:
    """Returns where a worker finds a set of weights by itself; None where this process must send them."""
    if task.source is None or worker.cannot_read is worker.actor:
        return None
    try:
        return pickle.dumps(task.source)
    except Exception:
        return None


def chunks_to_steal(
    thieves: Sequence[CrewWorker], workers: Sequence[CrewWorker], now: float
) -> list[tuple[CrewWorker, Chunk]]:
    """Returns which awaited chunk each idle worker should measure as well, where that clearly saves time."""
    paces = [pace for worker in workers if (pace := worker.speed.seconds_per_point) is not None]
    usual = statistics.median(paces) if paces else _UNKNOWN_SECONDS
    expected = _seconds_left(workers, usual, now)
    stolen = []
    for thief in thieves:
        own = thief.speed.seconds_per_point or usual
        gains = {chunk: left - _least_gain(chunk) - own * len(chunk.tasks) for chunk, left in expected.items()}
        best = max(gains, key=lambda chunk: gains[chunk], default=None)
        if best is not None and gains[best] > 0:
            stolen.append((thief, best))
            expected[best] = own * len(best.tasks)
    return stolen


def _least_gain(chunk: Chunk) -> float:
    return _WORTHWHILE_RISK_SECONDS if chunk.kills else _WORTHWHILE_SECONDS


def _seconds_left(workers: Sequence[CrewWorker], usual: float, now: float) -> dict[Chunk, float]:
    """Returns the awaited chunks that may be worth stealing, and in how many seconds they will be finished."""
    expected: dict[Chunk, float] = {}
    for worker in workers:
        pace, left = worker.speed.seconds_per_point or usual, 0.0
        for position, item in enumerate(worker.in_flight):
            seconds = pace * len(item.chunk.tasks)
            # A late chunk is expected to take as long again as it is late: nothing else is known about it.
            left += abs(seconds - (now - worker.busy_since)) if position == 0 else seconds
            expected[item.chunk] = min(left, expected.get(item.chunk, left))
    return {chunk: left for chunk, left in expected.items() if not chunk.settled and left > _least_gain(chunk)}
