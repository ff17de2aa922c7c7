"""Which unfinished chunks idle workers measure as well, when nothing else is left to do."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from .chunks import Chunk
from .ray_worker import RayWorker

_WORTHWHILE_SECONDS = 0.1
# A chunk that killed a worker may cost another one, so it is left where it is unless that worker hangs.
_WORTHWHILE_RISK_SECONDS = 60.0
# How long a point may take as long as no worker has measured any.
_UNKNOWN_SECONDS = 10.0


def chunks_to_steal(
    thieves: Sequence[RayWorker], workers: Sequence[RayWorker], now: float
) -> list[tuple[RayWorker, Chunk]]:
    """Returns for each idle worker the chunk that it finishes earliest before those that have it, if there is one.

    Args:
        thieves: have nothing in flight.
        workers: all of the pool.
        now: the time, as in ``RayWorker.busy_since``.
    """
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


def _seconds_left(workers: Sequence[RayWorker], usual: float, now: float) -> dict[Chunk, float]:
    """Returns the chunks that somebody waits for and may be worth stealing, and when they will be finished."""
    expected: dict[Chunk, float] = {}
    for worker in workers:
        for chunk, seconds in _seconds_left_of(worker, worker.speed.seconds_per_point or usual, now):
            expected[chunk] = min(seconds, expected.get(chunk, seconds))
    return {chunk: left for chunk, left in expected.items() if not chunk.settled and left > _least_gain(chunk)}


def _seconds_left_of(worker: RayWorker, pace: float, now: float) -> Iterator[tuple[Chunk, float]]:
    left = 0.0
    for position, item in enumerate(worker.in_flight):
        seconds = pace * len(item.chunk.tasks)
        # What is late by some time will take as long again: nothing else is known of it.
        left += abs(seconds - (now - worker.busy_since)) if position == 0 else seconds
        yield item.chunk, left
