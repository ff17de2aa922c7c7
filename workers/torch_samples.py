"""The fixed set of samples that every point is measured on (PyTorch)."""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from .errors import SamplesError
from .evaluator import MeasurementOptions
from .torch_batches import Batch, as_batch, cut, join, leaf_bytes, leaves, map_batch, map_leaves, same_leaves

_CHECKED_TWICE = 16
_BATCH_SIZE = 128


class Samples:
    """Samples on the device, in the loader's own batches or cut anew.

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

    def on(self, device: torch.device, channels_last: bool = False) -> Samples:
        """Returns the samples on a device, images channels-last where asked."""

        def place(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            leaf = leaf.to(device)
            return leaf.contiguous(memory_format=torch.channels_last) if channels_last and leaf.ndim == 4 else leaf

        if self._whole is None:
            return Samples([map_batch(place, batch) for batch in self.own_batches], None)
        return Samples(self.own_batches, map_batch(place, self._whole))


def read_samples(dataset: object, options: MeasurementOptions) -> tuple[Samples, list[str]]:
    """Reads the samples once, in data-set order.

    Args:
        dataset: a DataLoader (read through its ``dataset`` and ``collate_fn``, so that shuffling does not
            matter; a fixed subset given by its sampler's ``indices`` is kept), a Dataset, a pair of tensors
            (inputs, targets), or an iterable of batches.
        options: how many samples, and which.

    Returns:
        The samples, and notes for the user.

    Raises:
        TypeError: the data set is of no kind that can be read.
        ValueError: random samples of a stream were asked for.
        SamplesError: it is empty, unlabelled, or gives other samples each time.
    """
    notes: list[str] = []
    if isinstance(dataset, tuple | list) and len(dataset) == 2 and all(isinstance(x, torch.Tensor) for x in dataset):
        if len(dataset[0]) != len(dataset[1]):
            raise SamplesError(
                f"dataset must hold as many targets as inputs, but got {len(dataset[0])} inputs and "
                f"{len(dataset[1])} targets."
            )
        dataset = TensorDataset(*dataset)
    if isinstance(dataset, DataLoader) and not isinstance(dataset.dataset, IterableDataset):
        raw = _read_loader(dataset, options, notes)
    elif isinstance(dataset, Dataset) and not isinstance(dataset, IterableDataset):
        raw = _read_indexed(dataset, _BATCH_SIZE, default_collate, options, notes, None)
    else:
        if isinstance(dataset, IterableDataset):
            dataset = DataLoader(dataset, batch_size=_BATCH_SIZE)
        raw = _read_iterable(dataset, options, notes)
    batches = [as_batch(item) for item in raw]
    if options.num_samples is not None:
        batches = _first(batches, options.num_samples)
    return Samples(batches, join(batches)), notes


def _read_loader(loader: DataLoader[Any], options: MeasurementOptions, notes: list[str]) -> list[Any]:
    if loader.batch_size is None and loader.batch_sampler is None:
        # Automatic batching is off: each item of the data set is a batch of its own.
        items = _Items(loader.dataset, loader.collate_fn, _sampler_indices(loader.sampler))
        return _read_iterable(items, options, notes)
    size = getattr(loader.batch_sampler, "batch_size", None)
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    return _read_indexed(
        loader.dataset,
        size if isinstance(size, int) else _BATCH_SIZE,
        loader.collate_fn,
        options,
        notes,
        _sampler_indices(sampler),
    )


class _Items:
    """The items of an indexed data set, in order, each time anew."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], subset: Sequence[int] | None) -> None:
        self._dataset, self._collate = dataset, collate
        self._indices = _indices(dataset, subset)

    def __iter__(self) -> Iterator[Any]:
        return (self._collate(self._dataset[index]) for index in self._indices)


def _indices(dataset: Any, subset: Sequence[int] | None) -> list[int]:
    try:
        return list(range(len(dataset))) if subset is None else sorted(subset)
    except TypeError as error:
        raise TypeError(
            f"dataset must have a length to be read by index, but {type(dataset).__name__} has none."
        ) from error


def _read_indexed(
    dataset: Any,
    batch_size: int,
    collate: Callable[[list[Any]], Any],
    options: MeasurementOptions,
    notes: list[str],
    subset: Sequence[int] | None,
) -> list[Any]:
    available = _indices(dataset, subset)
    if not available:
        raise _empty()
    count = _count(len(available), options.num_samples, notes)
    if options.samples == "random":
        chosen = np.random.default_rng(options.seed).permutation(len(available))[:count]
        indices = [available[index] for index in sorted(int(index) for index in chosen)]
    else:
        indices = available[:count]

    def read(some: Sequence[int]) -> Any:
        return collate([dataset[index] for index in some])

    _check_repeatable(read, indices[: min(_CHECKED_TWICE, batch_size)])
    return [read(indices[start : start + batch_size]) for start in range(0, count, batch_size)]


def _check_repeatable(read: Callable[[Sequence[int]], Any], indices: Sequence[int]) -> None:
    # Collated, because samples may be objects (images, texts) that only collate_fn turns into tensors.
    if not same_leaves(read(indices), read(indices)):
        changed = [index for index in indices if not same_leaves(read([index]), read([index]))]
        shown = f"sample {changed[0]}" if changed else "its first batch"
        raise SamplesError(
            f"dataset must give the same sample each time, but {shown} changed between two reads. Switch random "
            "augmentation off for the landscape (use the test transform)."
        )


def _read_iterable(dataset: Any, options: MeasurementOptions, notes: list[str]) -> list[Any]:
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
        count += as_batch(item).size
        # A stream may fill the same tensors again for its next batch.
        result.append(map_leaves(_copy, item))
        if options.num_samples is not None and count >= options.num_samples:
            break
    if count == 0:
        raise _empty()
    if batches is not dataset:
        again = next(iter(dataset), None)  # nothing where the stream can be read only once
        if again is not None and not same_leaves(again, result[0]):
            raise SamplesError(
                "dataset must give the same samples each time, but its first batch changed between two reads. Switch "
                "shuffling and random augmentation off for the landscape."
            )
    _count(count, options.num_samples, notes)
    return result


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _empty() -> SamplesError:
    return SamplesError("dataset must hold at least one sample, but it is empty.")


def _count(available: int, asked: int | None, notes: list[str]) -> int:
    if asked is not None and asked > available:
        text = f"num_samples is {asked}, but the data set has {available}; all of them are used."
        warnings.warn(text, stacklevel=2)
        notes.append(text)
    return available if asked is None else min(asked, available)


def _sampler_indices(sampler: Any) -> list[int] | None:
    # A subset is part of the data's meaning (a validation split), the order in which a sampler visits it is not.
    indices = sampler if isinstance(sampler, list | tuple | range) else getattr(sampler, "indices", None)
    return None if indices is None else [int(index) for index in indices]


def _first(batches: list[Batch], count: int) -> list[Batch]:
    result = []
    for batch in batches:
        if count <= 0:
            break
        result.append(cut(batch, 0, count) if batch.size > count else batch)
        count -= batch.size
    return result


def _cut_like(whole: Batch, sizes: Sequence[int]) -> list[Batch]:
    return [cut(whole, start, start + size) for start, size in zip(itertools.accumulate(sizes, initial=0), sizes)]  # noqa: B905


def _two_pieces(batch: Batch) -> list[Batch]:
    if batch.size < 2:
        return [batch]
    middle = min((2 * batch.size + 2) // 3, batch.size - 1)
    return [cut(batch, 0, middle), cut(batch, middle, batch.size)]
