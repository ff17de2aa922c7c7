"""Samples, in memory or read anew in each pass, whichever framework made the batches that they come in."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collectors.networks.batches import leaves

from ..errors import ChangedSamplesError, SamplesError
from ..users_code import warn_and_note
from .batches import Batch, cut, map_batch, picked, quick_mark
from .random_state import OwnRandomState

Regrouped: TypeAlias = Sequence[tuple[Sequence[Batch], Sequence[Batch]]]
"""Groups of samples, each in the loader's own batches and in other ones."""
_FEW_GROUPS, _FEW_SAMPLES = 3, 64
# Smaller batches are joined, so that a pass does not take one forward pass for each sample.
_SMALL = 32
_JOINED = 256


class Samples:
    """Samples in the loader's own batches or in batches of another size."""

    def __init__(
        self,
        batches: list[Batch],
        whole: Batch | None,
        *,
        without_batches: bool = False,
        digest: str = "",
        store: object = None,
    ) -> None:
        self.count = sum(batch.size for batch in batches)
        # The digest is the SHA-256 of a data set's samples as it gave them.
        self.store, self._digest = store, digest
        self._on_use: tuple[Callable[[Batch], Batch], ...] = ()
        self.moved_on_use = False
        """Whether they stay on the host, and batches go to their device each time they are used."""
        self.passes: SampleStream | None = None  # all samples, where those in memory are only the first of them
        # None where batches do not fit together (padded to their own lengths).
        self._whole = whole
        # Without batches no size but all means anything; such samples are read and tried out in smaller ones.
        self._at_once = without_batches and whole is not None
        self.read_batches = batches if whole is None else _cut_like(whole, batches)
        self.without_batches = without_batches

    @property
    def own_batches(self) -> Sequence[Batch]:
        """The loader's own batches; one of all samples where they came without."""
        return _on_use(self._kept_batches, self._on_use)

    @property
    def _kept_batches(self) -> list[Batch]:
        return [self._whole] if self._at_once and self._whole is not None else self.read_batches

    @property
    def total(self) -> int:
        return self.count if self.passes is None else self.passes.count

    @property
    def nbytes(self) -> int:
        return self.nbytes_where(lambda _leaf: True)

    def nbytes_where(self, is_meant: Callable[[Any], bool]) -> int:
        batches = self.read_batches if self._whole is None else [self._whole]
        found = [leaf for batch in batches for leaf in leaves((batch.inputs, batch.targets)) if is_meant(leaf)]
        return sum(getattr(leaf, "nbytes", 0) for leaf in found)

    @property
    def is_changed_on_use(self) -> bool:
        """Whether batches are other tensors each time they are used."""
        return bool(self._on_use)

    @property
    def can_be_cut(self) -> bool:
        return self._whole is not None

    def all_at_once(self, at_once: bool) -> Samples:
        """Returns the same samples; those without batches as one batch, or as they were read, to save memory."""
        return self._with(_at_once=at_once and self.without_batches and self.can_be_cut)

    def head_of(self, passes: SampleStream) -> Samples:
        """Returns the same samples, which are the first of all those."""
        return self._with(passes=passes)

    def without_store(self) -> Samples:
        """Returns the same samples, kept for nobody else; on another device they take no memory of the host's."""
        return self._with(store=None)

    def without_own_batches(self) -> Samples:
        """Returns the same samples, whose batches so far are not the user's choice."""
        return self._with(without_batches=True).all_at_once(True)

    def _with(self, **changes: Any) -> Samples:
        changed = copy.copy(self)
        vars(changed).update(changes)
        return changed

    def is_one_batch(self, at_once: bool) -> bool:
        """Returns whether a loss that belongs to its batches is that of all samples together."""
        return len(self.own_batches) < 2 or (self.without_batches and at_once and self.can_be_cut)

    def kept_text(self, at_once: bool) -> str:
        """Returns the end of a sentence on what a loss that belongs to its batches is measured in."""
        if not self.without_batches:
            return "the data set's own batches are kept"
        size = max(batch.size for batch in self.read_batches)
        if at_once and self.can_be_cut:
            return f"all {self.count} samples are one batch (the data set gives no batch size)"
        return f"batches of {size}, which are our choice, are kept (memory does not hold all samples at once)"

    def regrouped(self, *, few: bool = False) -> Regrouped:
        """Returns all groups, or a few from the first to the last, because data may change on the way."""
        own = self.read_batches
        largest = max(batch.size for batch in own)
        if self._whole is None or largest > 2 or len(own) == 1:
            # A smaller last batch stays as it is: each new shape may have to be compiled.
            shapes = {batch.size for batch in own} if self._whole is None else {largest}
            groups = [([batch], _pieces(batch) if batch.size in shapes else [batch]) for batch in own]
        else:
            # Batches of one or two samples are rather joined, because some losses need more than one.
            starts = range(0, len(own) - len(own) % 2 or 1, 2)
            pairs = [own[start : start + 2] for start in starts]
            pairs[-1] = own[starts[-1] :]
            ends = list(itertools.accumulate(sum(batch.size for batch in pair) for pair in pairs))
            joined = [cut(self._whole, start, end) for start, end in zip([0, *ends], ends, strict=False)]
            groups = [(pair, [batch]) for pair, batch in zip(pairs, joined, strict=True)]
        if few:
            last = len(groups) - 1
            sizes = [sum(batch.size for batch in batches) for batches, _ in groups]
            count = max(_FEW_GROUPS, math.ceil(_FEW_SAMPLES / max(sizes)))
            chosen = range(last + 1) if count > last else [last * index // (count - 1) for index in range(count)]
            groups = [groups[index] for index in chosen]
        return [(_on_use(batches, self._on_use), _on_use(others, self._on_use)) for batches, others in groups]

    def batches(self, batch_size: int | None) -> Sequence[Batch]:
        """Returns the samples in batches of that size (views, no copies); None or ragged: the loader's own."""
        if batch_size is None or self._whole is None:
            batches = self._kept_batches
        else:
            batches = [cut(self._whole, start, start + batch_size) for start in range(0, self.count, batch_size)]
        return _on_use(batches, self._on_use)

    def chosen(self, rows: NDArray[np.int64]) -> Batch:
        """Returns a batch of the samples with these numbers, of which ``can_be_cut`` says that it can be made."""
        assert self._whole is not None
        return _on_use([picked(self._whole, rows, len(rows))], self._on_use)[0]

    def changed_on_use(
        self, function: Callable[[Batch], Batch], *, moves: bool = False, copies: bool = False
    ) -> Samples:
        """Returns the samples with batches changed on each use, as a changed copy of all takes as much memory again.

        Of samples that are read in passes, what is read is changed once for several points; copies are made for each.
        """
        return self._with(
            _on_use=(*self._on_use, function),
            moved_on_use=self.moved_on_use or moves,
            passes=None if self.passes is None else self.passes.changed(function, on_each_use=copies),
        )

    def sha256(self, *, with_batches: bool) -> str:
        """Returns the SHA-256 of all samples and, with batches, of the sizes of the loader's own batches."""
        if self.passes is not None:
            digest, sizes = self.passes.facts.digest, list(self.passes.facts.sizes)
        else:
            digest, sizes = self._digest, [batch.size for batch in self._kept_batches]
        return hashlib.sha256(f"{digest}{sizes if with_batches else ''}".encode()).hexdigest()

    def map(self, function: Callable[[Any], Any]) -> Samples:
        """Returns the samples with every array replaced; their number and batches stay."""
        return self.map_batches(lambda batch: map_batch(function, batch))

    def map_batches(self, function: Callable[[Batch], Batch]) -> Samples:
        """Returns the samples with inputs and targets replaced; their number and batches stay."""
        passes = None if self.passes is None else self.passes.changed(function)
        if self._whole is None:
            return self._with(read_batches=[function(batch) for batch in self.read_batches], passes=passes)
        whole = function(self._whole)
        return self._with(_whole=whole, read_batches=_cut_like(whole, self.read_batches), passes=passes)

    def map_targets(self, function: Callable[[Any], Any]) -> Samples:
        """Returns the samples with the targets of each batch replaced by others of the same lengths."""
        return self.map_batches(lambda batch: replace(batch, targets=function(batch.targets)))


@dataclass(frozen=True)
class PassFacts:
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
    join: Callable[[Sequence[Batch]], Samples] = field(kw_only=True)  # makes samples of a few small batches
    changes: tuple[Callable[[Batch], Batch], ...] = ()
    changes_on_use: tuple[Callable[[Batch], Batch], ...] = ()  # a batch is read once for several points
    random_state: OwnRandomState = field(default_factory=OwnRandomState)
    seconds: float = 0.0  # what reading took in the last whole pass

    @property
    def count(self) -> int:
        return sum(self.facts.sizes)

    def changed(self, function: Callable[[Batch], Batch], *, on_each_use: bool = False) -> SampleStream:
        if on_each_use:
            return replace(self, changes_on_use=(*self.changes_on_use, function))
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
            for change in self.changes_on_use:
                part = part.changed_on_use(change)
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
                yield self.join(small)
                small = []
        if small:
            yield self.join(small)
        if number + 1 != len(self.facts.sizes):
            raise _changed(f"gave {number + 1} batches after {len(self.facts.sizes)}")

    def _check(self, number: int, batch: Batch) -> None:
        facts = self.facts
        if number >= len(facts.sizes):
            raise _changed(f"gave more than {len(facts.sizes)} batches")
        if batch.size != facts.sizes[number] or quick_mark(batch) != facts.marks[number]:
            first = sum(facts.sizes[:number])
            raise _changed(f"batch {number} (samples {first} to {first + facts.sizes[number] - 1}) is another one now")


class _ChangedOnUse(Sequence[Batch]):
    def __init__(self, batches: Sequence[Batch], changes: Sequence[Callable[[Batch], Batch]]) -> None:
        self._batches, self._changes = batches, changes

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return _ChangedOnUse(self._batches[index], self._changes)
        batch = self._batches[index]
        for change in self._changes:
            batch = change(batch)
        return batch


def _on_use(batches: Sequence[Batch], changes: Sequence[Callable[[Batch], Batch]]) -> Sequence[Batch]:
    return _ChangedOnUse(batches, changes) if changes else batches


def count_samples(available: int, asked: int | None, notes: list[str]) -> int:
    """Returns how many samples are used; fewer than asked is a warning and a note."""
    if asked is not None and asked > available:
        warn_and_note(notes, f"num_samples is {asked}, but the data set has {available}; all of them are used.")
    return available if asked is None else min(asked, available)


def no_samples() -> SamplesError:
    return SamplesError("dataset must hold at least one sample, but it is empty.")


def _cut_like(whole: Batch, batches: Sequence[Batch]) -> list[Batch]:
    starts = itertools.accumulate((batch.size for batch in batches), initial=0)
    return [cut(whole, start, start + batch.size) for start, batch in zip(starts, batches)]  # noqa: B905


def _pieces(batch: Batch) -> list[Batch]:
    """Returns a batch in two pieces, about two thirds and one third, or as it is."""
    if batch.size < 2 or not batch.can_be_cut:
        return [batch]
    # Without a common divisor of their sizes, nothing regular (every third target counts nothing) is in both alike.
    aim = 2 * batch.size / 3
    middle = min(
        (size for size in range(1, batch.size) if math.gcd(size, batch.size) == 1), key=lambda size: abs(size - aim)
    )
    return [cut(batch, 0, middle), cut(batch, middle, batch.size)]


def _copied(batch: Batch) -> Batch:
    """Returns a batch that stays what it is when the data set fills the same arrays again for its next one."""
    return map_batch(copy.deepcopy, batch)


def _changed(what: str) -> ChangedSamplesError:
    return ChangedSamplesError(
        f"dataset must give the same samples in every pass, but {what}. The samples exceed sample_memory, so that the "
        "data set is read again for each group of points: switch shuffling and random augmentation off for the "
        "landscape, or let all samples be kept in memory (fewer with num_samples, or a larger sample_memory)."
    )
