"""Samples that memory does not hold: read anew in each pass, and compared with those of the first one."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import ChangedSamplesError
from .batches import Batch, SampleDigest, map_batch, quick_mark
from .random_state import OwnRandomState
from .samples import Samples, no_samples
from .store import SampleWriter

_HEAD_BYTES = 1 << 26
_HEAD_BATCHES = 2
# Smaller batches are joined, so that a pass does not take one forward pass for each sample.
_SMALL = 32
_JOINED = 256


@dataclass(frozen=True)
class PassFacts:
    """What the first pass found."""

    sizes: tuple[int, ...]  # of each batch, how many samples
    marks: tuple[int, ...]  # of each batch, its ``quick_mark``
    digest: str  # the SHA-256 of all samples


class SampleStream:
    """Samples that are read anew in each pass, at most ``block_size`` bytes of them in memory at once."""

    def __init__(
        self, read: Callable[[], Iterator[Batch]], facts: PassFacts, block_size: float, *, copied: bool
    ) -> None:
        # Batches are copied where a stream may fill the same arrays again.
        self._read, self.facts, self._block_size, self._copied = read, facts, block_size, copied
        self._changes: tuple[Callable[[Batch], Batch], ...] = ()
        self._random_state = OwnRandomState()
        # What reading took in the last whole pass.
        self.seconds = 0.0

    @property
    def count(self) -> int:
        return sum(self.facts.sizes)

    def sha256(self, *, with_batches: bool) -> str:
        """Returns the SHA-256 of all samples, the same as if they were in memory in these batches."""
        sizes = repr(list(self.facts.sizes)) if with_batches else ""
        return hashlib.sha256(f"{self.facts.digest}{sizes}".encode()).hexdigest()

    def changed(self, function: Callable[[Batch], Batch]) -> SampleStream:
        changed = copy.copy(self)
        changed._changes = (*self._changes, function)
        return changed

    def in_blocks_of(self, size: float) -> SampleStream:
        changed = copy.copy(self)
        changed._block_size = min(size, self._block_size)
        return changed

    def blocks(self) -> Iterator[list[Samples]]:
        """Yields all samples, as many as memory may hold at once, in parts; ChangedSamplesError where they changed."""
        return self._random_state.iterate(self._blocks())

    def _blocks(self) -> Iterator[list[Samples]]:
        parts: list[Samples] = []
        size = 0
        clock = _Clock(self._parts())
        for part in clock:
            if parts and size + part.nbytes > self._block_size:
                yield parts
                parts, size = [], 0  # gone before the next ones are read
            size += part.nbytes
            parts.append(self._change(part))
        yield parts
        self.seconds = clock.seconds

    def _parts(self) -> Iterator[Samples]:
        small: list[Batch] = []
        number = -1
        for number, batch in enumerate(self._read()):
            self._check(number, batch)
            if batch.size < _SMALL:
                small.append(_copied(batch))
                if sum(item.size for item in small) < _JOINED:
                    continue
            elif not small:
                kept = _copied(batch) if self._copied else batch
                yield Samples([kept], kept)
                continue
            else:
                small.append(_copied(batch))
            yield _join(small)
            small = []
        if small:
            yield _join(small)
        if number + 1 != len(self.facts.sizes):
            raise _changed(f"gave {number + 1} batches after {len(self.facts.sizes)}")

    def _change(self, part: Samples) -> Samples:
        for change in self._changes:
            part = part.map_batches(change)
        return part

    def _check(self, number: int, batch: Batch) -> None:
        facts = self.facts
        if number >= len(facts.sizes):
            raise _changed(f"gave more than {len(facts.sizes)} batches")
        if batch.size != facts.sizes[number] or quick_mark(batch) != facts.marks[number]:
            first = sum(facts.sizes[:number])
            raise _changed(f"batch {number} (samples {first} to {first + facts.sizes[number] - 1}) is another one now")


def first_pass(
    read: Callable[[], Iterator[Batch]],
    head_size: float,
    *,
    without_batches: bool,
    facts: PassFacts | None = None,
) -> tuple[Samples, PassFacts]:
    """Reads all samples once; returns the head (two batches at least), which stays in memory, and the facts of all."""
    digest, head = SampleDigest(), SampleWriter()
    sizes: list[int] = []
    marks: list[int] = []
    for batch in read():
        in_head = len(sizes) < _HEAD_BATCHES or head.size < min(head_size, _HEAD_BYTES)
        if in_head:
            head.add(batch)
        elif facts is not None:
            # Another worker's pass has found the rest.
            break
        digest.add(batch)
        sizes.append(batch.size)
        marks.append(quick_mark(batch))
    if not sizes:
        raise no_samples()
    if facts is None:
        facts = PassFacts(tuple(sizes), tuple(marks), digest.hexdigest())
    return head.finish(without_batches=without_batches).without_store(), facts


class _Clock:
    """Iterates, and adds up the seconds that this took."""

    def __init__(self, items: Iterator[Samples]) -> None:
        self._items, self.seconds = items, 0.0

    def __iter__(self) -> _Clock:
        return self

    def __next__(self) -> Samples:
        start = time.perf_counter()
        try:
            return next(self._items)
        finally:
            self.seconds += time.perf_counter() - start


def _copied(batch: Batch) -> Batch:
    """Returns a batch that stays what it is when the data set fills the same arrays again for its next one."""
    return map_batch(copy.deepcopy, batch)


def _join(batches: Sequence[Batch]) -> Samples:
    writer = SampleWriter()
    for batch in batches:
        writer.add(batch)
    return writer.finish(without_batches=False).without_store()


def _changed(what: str) -> ChangedSamplesError:
    return ChangedSamplesError(
        f"dataset must give the same samples in every pass, but {what}. The samples exceed sample_memory, so that the "
        "data set is read again for each group of points: switch shuffling and random augmentation off for the "
        "landscape, or let all samples be kept in memory (fewer with num_samples, or a larger sample_memory)."
    )
