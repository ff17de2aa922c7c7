"""Samples read from whatever yields batches, whichever framework made it."""

from __future__ import annotations

import hashlib
import itertools
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

    Args:
        batches: the loader's own batches.
        whole: all samples as one batch, or None where batches do not fit together (padded to their own lengths).
    """

    def __init__(self, batches: list[Batch], whole: Batch | None) -> None:
        self.count = sum(batch.size for batch in batches)
        self._whole = whole
        self.own_batches = batches if whole is None else _cut_like(whole, [batch.size for batch in batches])

    @property
    def can_be_cut(self) -> bool:
        """Whether batches of another size can be made."""
        return self._whole is not None

    def batches(self, batch_size: int | None) -> list[Batch]:
        """Returns the samples in batches of that size (views, no copies); None or ragged: the loader's own."""
        if batch_size is None or self._whole is None:
            return self.own_batches
        return [cut(self._whole, start, start + batch_size) for start in range(0, self.count, batch_size)]

    def other_batches(self) -> list[Batch]:
        """Returns the samples in other batches than the loader's own, of unequal sizes where that is possible."""
        if self._whole is None:
            return [piece for batch in self.own_batches for piece in _two_pieces(batch)]
        largest = max(batch.size for batch in self.own_batches)
        if largest > 2:
            return self.batches((2 * largest + 2) // 3)
        # Batches of one or two samples can only be joined, unless there is no other.
        return self.batches(largest + 1 if len(self.own_batches) > 1 else 1)

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
        if self._whole is None:
            return Samples([map_batch(function, batch) for batch in self.own_batches], None)
        return Samples(self.own_batches, map_batch(function, self._whole))

    def map_targets(self, function: Callable[[Any], Any]) -> Samples:
        """Returns the samples with the targets of each batch replaced by others of the same lengths."""

        def changed(batch: Batch) -> Batch:
            return replace(batch, targets=function(batch.targets))

        own_batches = [changed(batch) for batch in self.own_batches] if self._whole is None else self.own_batches
        return Samples(own_batches, None if self._whole is None else changed(self._whole))


@dataclass(frozen=True)
class Stream:
    """Batches that can be read again: each time one asks for them, from the start."""

    read: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.read()


def collect_samples(
    raw: Sequence[Any], options: MeasurementOptions, make_batch: Callable[[object], Batch] = as_batch
) -> Samples:
    """Returns the samples of batches, at most as many as asked.

    Args:
        raw: the batches, of (inputs, targets) unless ``make_batch`` takes others.
        options: how many samples.
        make_batch: checks a batch.

    Raises:
        SamplesError: a batch is not a pair of inputs and targets.
    """
    batches = [make_batch(item) for item in raw]
    if options.num_samples is not None:
        batches = _first(batches, options.num_samples)
    return Samples(batches, join(batches))


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


def _two_pieces(batch: Batch) -> list[Batch]:
    if batch.size < 2:
        return [batch]
    middle = min((2 * batch.size + 2) // 3, batch.size - 1)
    return [cut(batch, 0, middle), cut(batch, middle, batch.size)]
