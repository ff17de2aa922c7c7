"""How fast a worker is, as far as its last chunks tell."""

from __future__ import annotations

import statistics
from collections import deque

_REMEMBERED = 3
_GROWTH = 4


class MeasuredSpeed:
    """The median over a worker's last three chunks, so that one outlier changes nothing."""

    def __init__(self) -> None:
        self._chunks: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)

    @property
    def is_known(self) -> bool:
        """Whether anything was measured yet."""
        return bool(self._chunks)

    @property
    def seconds_per_point(self) -> float | None:
        """How long one point takes, or None while nothing was measured."""
        if not self._chunks:
            return None
        return statistics.median_high(seconds / points for points, seconds in self._chunks)

    def add(self, points: int, seconds: float) -> None:
        """Notes that ``points`` points took ``seconds`` seconds."""
        self._chunks.append((points, max(seconds, 1e-6)))

    def points_in(self, seconds: float) -> int:
        """Returns how many points make a chunk of that length, at least one.

        It is at most four times the longest of the last chunks: points that fail at once look fast, and are no reason
        to give one worker everything.
        """
        pace = self.seconds_per_point
        if pace is None:
            return 1
        longest = max(points for points, _ in self._chunks)
        return max(1, min(int(seconds / pace), _GROWTH * longest))
