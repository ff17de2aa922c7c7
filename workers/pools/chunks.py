"""Cuts tasks into chunks that take about a second at a worker's measured speed, and takes lost ones back."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..evaluator import PassCost
from ..pool import CurvatureTask, PointTask, Task

CHUNK_SECONDS = 1.0
KILLS_BEFORE_SPLIT = 3
_REMEMBERED = 3
_GROWTH = 4
# What a chunk costs the driver; the last chunks are no shorter than it takes to give every worker one.
_CALL_SECONDS = 5e-4


@dataclass(eq=False)
class Chunk:
    """Points that travel together, or one set of weights."""

    tasks: Sequence[Task | CurvatureTask]
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
        self._pass_cost = pass_cost
        self._last_pass: int | None = None
        self._tasks: Iterator[Task | CurvatureTask] = iter(tasks)
        self._ahead: deque[Task | CurvatureTask] = deque()
        self._returned: deque[Chunk] = deque()
        self._workers = workers

    def next(self, speed: MeasuredSpeed, *, idle: bool) -> Chunk | None:
        """Returns the next chunk for a worker, or None when there is none."""
        if self._pass_cost is not None:
            return self._next_pass(self._pass_cost.points, idle=idle)
        size = speed.points_in(CHUNK_SECONDS)
        self._look_ahead(2 * self._workers * size)
        if self._ahead:
            if not isinstance(first := self._ahead[0], PointTask):
                self._ahead.popleft()
                return Chunk([first])
            share = max(len(self._ahead) // (2 * self._workers), speed.points_in(self._workers * _CALL_SECONDS))
            return self._points(min(size, share))
        # Chunks that killed a worker come last, so that they hold up nothing else.
        # With two chunks in flight it would be uncertain which one killed, so only an idle worker gets one of these.
        return self._returned.popleft() if self._returned and idle else None

    def _next_pass(self, size: int, *, idle: bool) -> Chunk | None:
        """Returns the points of one pass; the last passes have the same number of points for every worker."""
        self._look_ahead(self._workers * size)
        if not self._ahead:
            return self._returned.popleft() if self._returned and idle else None
        if not idle:
            return None  # others may be faster; a pass is so long that waiting for it costs nothing
        if not isinstance(first := self._ahead[0], PointTask):
            self._ahead.popleft()
            return Chunk([first])
        if len(self._ahead) < self._workers * size and self._last_pass is None:
            self._last_pass = -(-len(self._ahead) // self._workers)
        return self._points(min(size, self._last_pass or size))

    def _points(self, count: int) -> Chunk:
        points: list[Task | CurvatureTask] = []
        while self._ahead and len(points) < count and isinstance(self._ahead[0], PointTask):
            points.append(self._ahead.popleft())
        return Chunk(points)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to give out."""
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
        while len(self._ahead) < count:
            task = next(self._tasks, None)
            if task is None:
                return
            self._ahead.append(task)


class MeasuredSpeed:
    """The median over a worker's last three chunks, so that one outlier changes nothing."""

    def __init__(self) -> None:
        self._chunks: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self._pace: float | None = None

    @property
    def is_known(self) -> bool:
        return bool(self._chunks)

    @property
    def seconds_per_point(self) -> float | None:
        """How long one point takes, or None while nothing was measured."""
        return self._pace

    def add(self, points: int, seconds: float) -> None:
        self._chunks.append((points, max(seconds, 1e-6)))
        self._pace = statistics.median_high(seconds / points for points, seconds in self._chunks)

    def points_in(self, seconds: float) -> int:
        """Returns how many points make a chunk of that length, at least one."""
        pace = self.seconds_per_point
        if pace is None:
            return 1
        # Points that fail at once look fast, but one worker should not get everything for that.
        longest = max(points for points, _ in self._chunks)
        return max(1, min(round(seconds / pace), _GROWTH * longest))
