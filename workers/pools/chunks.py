"""Cuts tasks into chunks that take about a second at a worker's measured speed, and takes lost ones back."""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..evaluator import PassCost
from ..pool import CurvatureTask, PointTask, Task, TasksInTime

CHUNK_SECONDS = 1.0
KILLS_BEFORE_SPLIT = 3
_REMEMBERED = 3
_GROWTH = 4
# What a chunk costs the driver; the last chunks are no shorter than it takes to give every worker one.
_CALL_SECONDS = 5e-4


@dataclass(eq=False)
class Chunk:
    """Points that travel together, or one set of weights."""

    tasks: Sequence[Any]  # of kind Task or CurvatureTask
    kills: int = 0  # how many workers died of it
    alone: bool = False  # whether it must not share a worker with another chunk, because its worker died before
    copies: int = 1  # how many workers have it
    settled: bool = False  # whether its outcomes are no longer awaited: they are known, or the run has ended
    weights: Any = None  # of a set of weights that was sent, where the workers find it until it is settled

    @property
    def is_state(self) -> bool:
        """Whether it is one set of weights rather than points."""
        return not isinstance(self.tasks[0], PointTask)

    def settle(self) -> None:
        self.settled = True
        self.weights = None


class ChunkQueue:
    """The tasks that no worker has yet, read as they are needed; the last chunks are small, so all end together."""

    def __init__(self, tasks: Iterable[Task | CurvatureTask], workers: int, pass_cost: PassCost | None = None) -> None:
        self._is_over = TasksInTime.clock_of(tasks)
        self._pass = 0 if pass_cost is None else pass_cost.points
        self._last_pass = 0
        self._tasks = iter(tasks)
        self._ahead: deque[Task | CurvatureTask] = deque()
        self._returned: deque[Chunk] = deque()
        self._workers = workers

    def next(self, speed: MeasuredSpeed, *, idle: bool) -> Chunk | None:
        # Each worker may have two chunks, or one that is a pass.
        size = self._pass or speed.points_in(CHUNK_SECONDS)
        for_all = self._workers * (1 if self._pass else 2)
        self._look_ahead(for_all * size)
        if self._ahead and self._is_over():
            self._ahead.clear()
            self._tasks = iter(())
        if not self._ahead:
            # Chunks that killed a worker come last, so that they hold up nothing else. Only an idle worker gets one:
            # with two chunks in flight it would be uncertain which one killed.
            return self._returned.popleft() if self._returned and idle else None
        if self._pass and not idle:
            return None  # others may be faster; a pass is so long that waiting for it costs nothing
        points = [self._ahead.popleft()]
        if not isinstance(points[0], PointTask):
            return Chunk(points)
        left = 1 + len(self._ahead)
        if self._pass:
            if left < for_all * size and not self._last_pass:
                self._last_pass = -(-left // for_all)  # the last passes have as many points for every worker
            share = self._last_pass or size
        else:
            share = max(left // for_all, speed.points_in(self._workers * _CALL_SECONDS))
        while self._ahead and len(points) < min(size, share) and isinstance(self._ahead[0], PointTask):
            points.append(self._ahead.popleft())
        return Chunk(points)

    @property
    def is_empty(self) -> bool:
        self._look_ahead(1)
        return not (self._ahead or self._returned)

    def bring_back(self, chunk: Chunk, *, killed: bool) -> Chunk | None:
        """Takes back a dead worker's chunk; returns it if it killed too often and cannot be split, else None."""
        if chunk.settled:
            return None
        # It has not killed if it was only waiting when the worker died.
        chunk.kills += killed
        chunk.alone = True
        if chunk.kills < KILLS_BEFORE_SPLIT:
            if chunk.copies > 1:
                chunk.copies -= 1
            else:
                self._returned.append(chunk)
            return None
        chunk.settle()  # should another worker have it as well, its answer comes too late
        if len(chunk.tasks) == 1:
            return chunk
        middle = len(chunk.tasks) // 2
        for part in (chunk.tasks[:middle], chunk.tasks[middle:]):
            # A half is under suspicion already: one more death splits it again.
            self._returned.append(Chunk(part, kills=KILLS_BEFORE_SPLIT - 1, alone=True))
        return None

    def _look_ahead(self, count: int) -> None:
        self._ahead.extend(itertools.islice(self._tasks, max(0, count - len(self._ahead))))


class MeasuredSpeed:
    """The median over a worker's last three chunks, so that one outlier changes nothing."""

    def __init__(self) -> None:
        self._chunks: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self.seconds_per_point: float | None = None
        """How long one point takes, or None while nothing was measured."""

    @property
    def is_known(self) -> bool:
        return bool(self._chunks)

    def add(self, points: int, seconds: float) -> None:
        self._chunks.append((points, max(seconds, 1e-6)))
        self.seconds_per_point = statistics.median_high(seconds / points for points, seconds in self._chunks)

    def points_in(self, seconds: float) -> int:
        """Returns how many points make a chunk of that length, at least one."""
        if self.seconds_per_point is None:
            return 1
        # Points that fail at once look fast, but one worker should not get everything for that.
        longest = max(points for points, _ in self._chunks)
        return max(1, min(round(seconds / self.seconds_per_point), _GROWTH * longest))
