"""Samples read from whatever yields batches, whichever framework made it."""

from __future__ import annotations

import copy
import hashlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collectors.networks.batches import leaves, map_leaves

from ..errors import SamplesError
from ..evaluator import MeasurementOptions
from .batches import Batch, as_batch, cut, is_tensor, join, leaf_bytes, map_batch, same_leaves


class Samples:
    """Samples in the loader's own batches or in batches of another size.

    Samples that came without batches (a pair of tensors, a Dataset) are one batch, because no other size means
    anything; they are read and tried out in smaller ones.

    Args:
        batches: the loader's own batches, or those in which samples without batches were read.
        whole: all samples as one batch, or None where batches do not fit together (padded to their own lengths).
        without_batches: whether the samples came without batches of their own.
    """

    def __init__(self, batches: list[Batch], whole: Batch | None, *, without_batches: bool = False) -> None:
        self.count = sum(batch.size for batch in batches)
        self._whole = whole
        self._at_once = without_batches and whole is not None
        self._read_batches = batches if whole is None else _cut_like(whole, [batch.size for batch in batches])
        self.without_batches = without_batches

    @property
    def own_batches(self) -> list[Batch]:
        """The loader's own batches; one of all samples where they came without."""
        return [self._whole] if self._at_once and self._whole is not None else self._read_batches

    @property
    def can_be_cut(self) -> bool:
        """Whether batches of another size can be made."""
        return self._whole is not None

    def all_at_once(self, at_once: bool) -> Samples:
        """Returns the same samples; those without batches as one batch, or as they were read, to save memory."""
        changed = copy.copy(self)
        changed._at_once = at_once and self.without_batches and self.can_be_cut
        return changed

    def without_own_batches(self) -> Samples:
        """Returns the same samples, whose batches so far are not the user's choice."""
        changed = copy.copy(self)
        changed.without_batches = True
        return changed.all_at_once(True)

    def kept_text(self, at_once: bool) -> str:
        """Returns the end of a sentence on what a loss that belongs to its batches is measured in."""
        if not self.without_batches:
            return "the data set's own batches are kept"
        size = max(batch.size for batch in self._read_batches)
        if at_once and self.can_be_cut:
            return f"all {self.count} samples are one batch (the data set gives no batch size)"
        return f"batches of {size}, which are our choice, are kept (memory does not hold all samples at once)"

    def partitions(self) -> TwoPartitions:
        """Returns the samples in the loader's own batches, or those in which they were read, and in other ones."""
        own = self._read_batches
        largest = max(batch.size for batch in own)
        if self._whole is None or largest > 2 or len(own) == 1:
            # A smaller last batch stays as it is: each new shape may have to be compiled.
            shapes = {batch.size for batch in own} if self._whole is None else {largest}
            groups = [(batch, _pieces(batch) if batch.size in shapes else [batch]) for batch in own]
            return TwoPartitions(groups, own_are_pieces=False)
        # Batches of one or two samples are rather joined, because some losses need more than one.
        starts = range(0, len(own) - len(own) % 2 or 1, 2)
        pairs = [own[start : start + 2] for start in starts]
        pairs[-1] = own[starts[-1] :]
        ends = list(itertools.accumulate(sum(batch.size for batch in pair) for pair in pairs))
        joined = [cut(self._whole, start, end) for start, end in zip([0, *ends], ends, strict=False)]
        return TwoPartitions(list(zip(joined, pairs, strict=True)), own_are_pieces=True)

    def batches(self, batch_size: int | None) -> list[Batch]:
        """Returns the samples in batches of that size (views, no copies); None or ragged: the loader's own."""
        if batch_size is None or self._whole is None:
            return self.own_batches
        return [cut(self._whole, start, start + batch_size) for start in range(0, self.count, batch_size)]

    def sha256(self, *, with_batches: bool) -> str:
        """Returns the SHA-256 of all samples.

        Args:
            with_batches: whether the sizes of the loader's own batches count too.
        """
        digest = hashlib.sha256()
        for batch in [self._whole] if self._whole is not None else self.own_batches:
            for leaf in leaves((batch.inputs, batch.targets)):
                kind, values = leaf_bytes(leaf) or (type(leaf).__name__, b"")
                digest.update(kind.encode())
                digest.update(values)
        if with_batches:
            digest.update(repr([batch.size for batch in self.own_batches]).encode())
        return digest.hexdigest()

    def map(self, function: Callable[[Any], Any]) -> Samples:
        """Returns the samples with every array replaced; their number and batches stay."""
        return self.map_batches(lambda batch: map_batch(function, batch))

    def map_batches(self, function: Callable[[Batch], Batch]) -> Samples:
        """Returns the samples with inputs and targets replaced; their number and batches stay."""
        if self._whole is None:
            return Samples(
                [function(batch) for batch in self._read_batches], None, without_batches=self.without_batches
            )
        mapped = Samples(self._read_batches, function(self._whole), without_batches=self.without_batches)
        return mapped.all_at_once(self._at_once)

    def map_targets(self, function: Callable[[Any], Any]) -> Samples:
        """Returns the samples with the targets of each batch replaced by others of the same lengths."""

        def changed(batch: Batch) -> Batch:
            return replace(batch, targets=function(batch.targets))

        return self.map_batches(changed)


@dataclass(frozen=True)
class TwoPartitions:
    """The same samples in two ways.

    Attributes:
        groups: each batch, and the same samples in pieces.
        own_are_pieces: whether the pieces are the loader's own batches, rather than the batches.
    """

    groups: Sequence[tuple[Batch, Sequence[Batch]]]
    own_are_pieces: bool

    @property
    def differ(self) -> bool:
        """Whether any batch has more than one piece."""
        return any(len(pieces) > 1 for _, pieces in self.groups)


@dataclass(frozen=True)
class Stream:
    """Batches that can be read again: each time one asks for them, from the start."""

    read: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.read()


def collect_samples(
    raw: Sequence[Any],
    options: MeasurementOptions,
    make_batch: Callable[[object], Batch] = as_batch,
    *,
    without_batches: bool = False,
) -> Samples:
    """Returns the samples of batches, at most as many as asked.

    Args:
        raw: the batches, of (inputs, targets) unless ``make_batch`` takes others.
        options: how many samples.
        make_batch: checks a batch.
        without_batches: whether the batches are ours, because the data set has none.

    Raises:
        SamplesError: a batch is not a pair of inputs and targets.
    """
    batches = [make_batch(item) for item in raw]
    if options.num_samples is not None:
        batches = _first(batches, options.num_samples)
    return Samples(batches, join(batches), without_batches=without_batches)


def read_stream(
    dataset: Any,
    options: MeasurementOptions,
    notes: list[str],
    make_batch: Callable[[object], Batch] = as_batch,
) -> list[Any]:
    """Reads as many batches of a stream as are needed, and checks that it gives the same ones again.

    Args:
        dataset: the stream.
        options: how many samples.
        notes: for the user; more may be added.
        make_batch: checks a batch.

    Raises:
        TypeError: it cannot be iterated over.
        ValueError: random samples were asked for.
        SamplesError: it is empty, or gives other samples each time.
    """
    if options.samples == "random":
        raise ValueError('samples="random" needs a data set that is read by index; use samples="first" for a stream.')
    try:
        batches: Iterator[Any] = iter(dataset)
    except TypeError as error:
        raise TypeError(
            "dataset must be a DataLoader, a Dataset, a pair of tensors or an iterable of batches, but got "
            f"{type(dataset).__name__}."
        ) from error
    result: list[Any] = []
    count = 0
    for item in batches:
        count += make_batch(item).size
        # A stream may fill the same tensors again for its next batch.
        result.append(map_leaves(_copy, item))
        if options.num_samples is not None and count >= options.num_samples:
            break
    if count == 0:
        raise no_samples()
    if batches is not dataset:
        again = next(iter(dataset), None)  # nothing where the stream can be read only once
        if again is not None and not same_leaves(again, result[0]):
            raise SamplesError(
                "dataset must give the same samples each time, but its first batch changed between two reads. Switch "
                "shuffling and random augmentation off for the landscape."
            )
    count_samples(count, options.num_samples, notes)
    return result


def count_samples(available: int, asked: int | None, notes: list[str]) -> int:
    """Returns how many samples are used; fewer than asked is a warning and a note."""
    if asked is not None and asked > available:
        text = f"num_samples is {asked}, but the data set has {available}; all of them are used."
        warnings.warn(text, stacklevel=2)
        notes.append(text)
    return available if asked is None else min(asked, available)


def no_samples() -> SamplesError:
    """Returns the error of an empty data set."""
    return SamplesError("dataset must hold at least one sample, but it is empty.")


def _first(batches: list[Batch], count: int) -> list[Batch]:
    result = []
    for batch in batches:
        if count <= 0:
            break
        result.append(cut(batch, 0, count) if batch.size > count else batch)
        count -= batch.size
    return result


def _copy(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return leaf.clone() if is_tensor(leaf) else leaf


def _cut_like(whole: Batch, sizes: Sequence[int]) -> list[Batch]:
    return [cut(whole, start, start + size) for start, size in zip(itertools.accumulate(sizes, initial=0), sizes)]  # noqa: B905


def _pieces(batch: Batch) -> list[Batch]:
    """Returns a batch in two pieces, about two thirds and one third, or as it is.

    Their sizes have no common divisor: what is regular in the data (every third target counts nothing) would otherwise
    be in both pieces alike.
    """
    if batch.size < 2:
        return [batch]
    aim = 2 * batch.size / 3
    middle = min(
        (size for size in range(1, batch.size) if math.gcd(size, batch.size) == 1), key=lambda size: abs(size - aim)
    )
    return [cut(batch, 0, middle), cut(batch, middle, batch.size)]
