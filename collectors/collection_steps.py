"""At which steps a SummaryCollector records."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache

TENSOR_RECORDS = 20


@dataclass(frozen=True)
class CollectionSteps:
    """Which steps are recorded; the first step of a run always is.

    Attributes:
        every: the multiples of this are recorded.
        tensors_every: the multiples of this have their tensors recorded; None chooses, so that a run has about twenty.
    """

    every: int
    tensors_every: int | None = None

    def collects(self, step: int) -> bool:
        """Returns whether everything but tensors is recorded."""
        return step % self.every == 0

    def collects_tensors(self, step: int, total: int | None) -> bool:
        """Returns whether tensors are recorded.

        Args:
            step: its number, 1 for the first.
            total: how many steps the training has, None while that is not known.
        """
        if self.tensors_every is not None:
            return step % self.tensors_every == 0
        return self.collects(step) if total is None else step in tensor_steps(self.every, total)


@lru_cache(maxsize=16)
def tensor_steps(every: int, total: int) -> Container[int]:
    """Returns the multiples of ``every`` up to ``total``, or twenty steps over the whole run where these are more.

    The 0 counts as one of them: it stands for the first step, which is recorded whatever its number.
    """
    if total // every + 1 <= TENSOR_RECORDS:
        return range(0, total + 1, every)
    stride = total // (TENSOR_RECORDS - 1)
    if stride > 1:
        return range(0, total + 1, stride)[:TENSOR_RECORDS]
    # A stride of 1 would spend them all on the beginning of a run of 20 to 37 steps.
    return frozenset(index * total // (TENSOR_RECORDS - 1) for index in range(TENSOR_RECORDS))
