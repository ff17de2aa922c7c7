"""Samples that memory does not hold: read anew in each pass, and compared with those of the first one."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..errors import ChangedSamplesError
from .batches import Batch, SampleDigest, map_batch, quick_mark, sha256_of
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


@dataclass(eq=False)
class SampleStream:
    """Samples that are read anew in each pass, at most ``block_size`` bytes of them in memory at once."""

    read: Callable[[], Iterator[Batch]]
    facts: PassFacts
    block_size: float
    copied: bool = field(kw_only=True)  # whether batches are copied, where a stream may fill the same arrays again
    changes: tuple[Callable[[Batch], Batch], ...] = ()
    random_state: OwnRandomState = field(default_factory=OwnRandomState)
    seconds: float = 0.0  # what reading took in the last whole pass

    @property
    def count(self) -> int:
        return sum(self.facts.sizes)

    def sha256(self, *, with_batches: bool) -> str:
        """Returns the SHA-256 of all samples, the same as if they were in memory in these batches."""
        return sha256_of(self.facts.digest, self.facts.sizes if with_batches else None)

    def changed(self, function: Callable[[Batch], Batch]) -> SampleStream:
        return replace(self, changes=(*self.changes, function))

    def in_blocks_of(self, size: float) -> SampleStream:
        return replace(self, block_size=min(size, self.block_size))

    def blocks(self) -> Iterator[list[Samples]]:
        """Yields all samples, as many as memory may hold at once, in parts; ChangedSamplesError where they changed."""
        return self.random_state.iterate(self._blocks())

    def _blocks(self) -> Iterator[list[Samples]]:
        parts: list[Samples] = []
        size, seconds, found = 0, 0.0, self._parts()
        while True:
            start = time.perf_counter()
            part = next(found, None)
            seconds += time.perf_counter() - start
            if part is None:
                break
            if parts and size + part.nbytes > self.block_size:
                yield parts
                parts, size = [], 0  # gone before the next ones are read
            size += part.nbytes
            for change in self.changes:
                part = part.map_batches(change)
            parts.append(part)
        yield parts
        self.seconds = seconds

    def _parts(self) -> Iterator[Samples]:
        small: list[Batch] = []
        number = -1
        for number, batch in enumerate(self.read()):
            self._check(number, batch)
            if batch.size >= _SMALL and not small:
                kept = _copied(batch) if self.copied else batch
                yield Samples([kept], kept)
                continue
            small.append(_copied(batch))
            if batch.size >= _SMALL or sum(item.size for item in small) >= _JOINED:
                yield _join(small)
                small = []
        if small:
            yield _join(small)
        if number + 1 != len(self.facts.sizes):
            raise _changed(f"gave {number + 1} batches after {len(self.facts.sizes)}")

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
