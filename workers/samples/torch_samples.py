"""The fixed set of samples that every point is measured on (PyTorch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from ..errors import SamplesError
from ..evaluator import MeasurementOptions
from .batches import Batch, as_batch, same_leaves
from .samples import Samples, Stream, collect_samples, count_samples, no_samples, read_stream

_CHECKED_TWICE = 16
_BATCH_SIZE = 128


def place_samples(samples: Samples, device: torch.device, channels_last: bool = False) -> Samples:
    """Returns the samples on a device, images channels-last where asked."""

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        leaf = leaf.to(device)
        if not channels_last or leaf.ndim != 4:
            return leaf
        # With one channel every layout looks contiguous to PyTorch; only the strides say which one is meant.
        return torch.empty_like(leaf, memory_format=torch.channels_last).copy_(leaf)

    return samples.map(place)


def read_samples(
    dataset: object, options: MeasurementOptions, make_batch: Callable[[object], Batch] = as_batch
) -> tuple[Samples, list[str]]:
    """Reads the samples once, in data-set order.

    Args:
        dataset: a DataLoader (read through its ``dataset`` and ``collate_fn``, so that shuffling does not
            matter; a fixed subset given by its sampler's ``indices`` is kept), a Dataset, a pair of tensors
            (inputs, targets), or an iterable of batches.
        options: how many samples, and which.
        make_batch: ``as_batch`` for batches of (inputs, targets), ``as_whole_batch`` for any.

    Returns:
        The samples, and notes for the user.

    Raises:
        TypeError: the data set is of a kind that cannot be read.
        ValueError: random samples of a stream were asked for.
        SamplesError: it is empty, unlabelled, or gives other samples each time.
    """
    notes: list[str] = []
    without_batches = False
    if isinstance(dataset, tuple | list) and len(dataset) == 2 and all(isinstance(x, torch.Tensor) for x in dataset):
        if len(dataset[0]) != len(dataset[1]):
            raise SamplesError(
                f"dataset must hold as many targets as inputs, but got {len(dataset[0])} inputs and "
                f"{len(dataset[1])} targets."
            )
        dataset = TensorDataset(*dataset)
    if isinstance(dataset, DataLoader) and not isinstance(dataset.dataset, IterableDataset):
        raw = _read_loader(dataset, options, notes, make_batch)
        without_batches = dataset.batch_sampler is not None and _batch_size(dataset) is None
    elif isinstance(dataset, Dataset) and not isinstance(dataset, IterableDataset):
        raw = _read_indexed(dataset, _BATCH_SIZE, default_collate, options, notes, None)
        without_batches = True
    else:
        if isinstance(dataset, IterableDataset):
            dataset = DataLoader(dataset, batch_size=_BATCH_SIZE)
            without_batches = True
        raw = read_stream(dataset, options, notes, make_batch)
    return collect_samples(raw, options, make_batch, without_batches=without_batches), notes


def _read_loader(
    loader: DataLoader[Any], options: MeasurementOptions, notes: list[str], make_batch: Callable[[object], Batch]
) -> list[Any]:
    if loader.batch_size is None and loader.batch_sampler is None:
        # Automatic batching is off: each item of the data set is a batch of its own.
        indices = _indices(loader.dataset, _sampler_indices(loader.sampler))
        items = Stream(lambda: (loader.collate_fn(loader.dataset[index]) for index in indices))
        return read_stream(items, options, notes, make_batch)
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    return _read_indexed(
        loader.dataset,
        _batch_size(loader) or _BATCH_SIZE,
        loader.collate_fn,
        options,
        notes,
        _sampler_indices(sampler),
    )


def _batch_size(loader: DataLoader[Any]) -> int | None:
    """Returns how many samples the loader puts into a batch; None where a sampler of the user's own decides."""
    size = getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None


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
        raise no_samples()
    count = count_samples(len(available), options.num_samples, notes)
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


def _sampler_indices(sampler: Any) -> list[int] | None:
    # A subset is part of the data's meaning (a validation split), the order in which a sampler visits it is not.
    indices = sampler if isinstance(sampler, list | tuple | range) else getattr(sampler, "indices", None)
    return None if indices is None else [int(index) for index in indices]
