"""The fixed set of samples that every point is measured on (PyTorch)."""

from __future__ import annotations

import hashlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from .errors import SamplesError
from .evaluator import MeasurementOptions

_CHECKED_TWICE = 16


@dataclass(frozen=True)
class Batch:
    """Inputs and targets of a few samples; nested tuples, lists and dictionaries of tensors."""

    inputs: Any
    targets: Any
    size: int


class Samples:
    """Samples on the device, in the loader's own batches or cut anew.

    Args:
        batches: the loader's own batches.
        whole: all samples as one batch, or None where batches do not fit together (padded to their own lengths).
    """

    def __init__(self, batches: list[Batch], whole: Batch | None) -> None:
        self.own_batches = batches
        self.count = sum(batch.size for batch in batches)
        self._whole = whole

    @property
    def can_be_cut(self) -> bool:
        """Whether batches of another size can be made."""
        return self._whole is not None

    def batches(self, batch_size: int | None) -> list[Batch]:
        """Returns the samples in batches of that size (views, no copies); None or ragged: the loader's own."""
        if batch_size is None or self._whole is None:
            return self.own_batches
        return [cut(self._whole, start, start + batch_size) for start in range(0, self.count, batch_size)]

    def sha256(self) -> str:
        """Returns the SHA-256 of all samples; where they can be cut anew, the loader's batch size does not matter."""
        digest = hashlib.sha256()
        for batch in [self._whole] if self._whole is not None else self.own_batches:
            for leaf in _leaves((batch.inputs, batch.targets)):
                if isinstance(leaf, torch.Tensor):
                    host = leaf.detach().cpu().contiguous()
                    digest.update(f"{host.dtype}|{tuple(host.shape)}|".encode())
                    digest.update(host.reshape(-1).view(torch.uint8).numpy().data)
                else:
                    digest.update(repr(leaf).encode())
        return digest.hexdigest()

    def on(self, device: torch.device, channels_last: bool = False) -> Samples:
        """Returns the samples on a device, images channels-last where asked."""

        def place(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            layout = torch.channels_last if channels_last and leaf.ndim == 4 else torch.preserve_format
            return leaf.to(device).contiguous(memory_format=layout) if channels_last else leaf.to(device)

        whole = None if self._whole is None else _map_batch(place, self._whole)
        if whole is None:
            return Samples([_map_batch(place, batch) for batch in self.own_batches], None)
        starts = itertools.accumulate((batch.size for batch in self.own_batches), initial=0)
        own = [cut(whole, start, start + batch.size) for start, batch in zip(starts, self.own_batches, strict=False)]
        return Samples(own, whole)


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
        raw = _read_indexed(
            dataset.dataset, dataset.batch_size or 1, dataset.collate_fn, options, notes, _sampler_indices(dataset)
        )
    elif isinstance(dataset, Dataset) and not isinstance(dataset, IterableDataset):
        raw = _read_indexed(dataset, 128, default_collate, options, notes, None)
    else:
        if isinstance(dataset, IterableDataset):
            dataset = DataLoader(dataset, batch_size=128)
        raw = _read_iterable(dataset, options, notes)
    batches = [as_batch(item) for item in raw]
    if options.num_samples is not None:
        batches = _first(batches, options.num_samples)
    return Samples(batches, _join(batches)), notes


def as_batch(item: object) -> Batch:
    """Returns a batch of (inputs, targets).

    Raises:
        SamplesError: the batch is no pair, or has no tensor that says how many samples there are.
    """
    if not isinstance(item, tuple | list) or len(item) != 2:
        shown = f"a {type(item).__name__}" + (f" of {len(item)}" if isinstance(item, tuple | list) else "")
        raise SamplesError(
            f"dataset must give batches of (inputs, targets), but gave {shown}. Several inputs go into a tuple or a "
            "dict "
            "in first place; without targets, give the inputs twice or return an Evaluator of your own."
        )
    inputs, targets = item
    sizes = {len(leaf) for leaf in _leaves(item) if isinstance(leaf, torch.Tensor) and leaf.ndim > 0}
    first = next((leaf for leaf in _leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.ndim > 0), None)
    if first is None:
        raise SamplesError(
            f"dataset must give tensors as inputs, but gave {type(inputs).__name__}; convert them in collate_fn."
        )
    return Batch(inputs, targets, len(first) if len(sizes) == 1 else _common_size(first, targets))


def call_network(network: Callable[..., Any], inputs: Any) -> Any:
    """Calls a network on a batch's inputs: a dict as keywords, a tuple or list as positions."""
    if isinstance(inputs, Mapping):
        return network(**inputs)
    if isinstance(inputs, tuple | list):
        return network(*inputs)
    return network(inputs)


def cut(batch: Batch, start: int, stop: int) -> Batch:
    """Returns some samples of a batch, as views."""

    def part(leaf: Any) -> Any:
        return leaf[start:stop] if isinstance(leaf, torch.Tensor) and leaf.ndim and len(leaf) == batch.size else leaf

    size = min(stop, batch.size) - start
    return Batch(_map(part, batch.inputs), _map(part, batch.targets), size)


def _read_indexed(
    dataset: Any,
    batch_size: int,
    collate: Callable[[list[Any]], Any],
    options: MeasurementOptions,
    notes: list[str],
    subset: Sequence[int] | None,
) -> list[Any]:
    try:
        available = list(range(len(dataset))) if subset is None else sorted(subset)
    except TypeError as error:
        raise TypeError(
            f"dataset must have a length to be read by index, but {type(dataset).__name__} has none."
        ) from error
    if not available:
        raise SamplesError("dataset must hold at least one sample, but it is empty.")
    count = _count(len(available), options.num_samples, notes)
    if options.samples == "random":
        chosen = np.random.default_rng(options.seed).permutation(len(available))[:count]
        indices = [available[index] for index in sorted(int(index) for index in chosen)]
    else:
        indices = available[:count]
    _check_repeatable(dataset, indices)
    chunks = [indices[start : start + batch_size] for start in range(0, count, batch_size)]
    return [collate([dataset[index] for index in chunk]) for chunk in chunks]


def _check_repeatable(dataset: Any, indices: Sequence[int]) -> None:
    for index in indices[:_CHECKED_TWICE]:
        if not _equal(dataset[index], dataset[index]):
            raise SamplesError(
                f"dataset must give the same sample each time, but sample {index} changed between two reads. Switch "
                "random "
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
        result.append(item)
        count += as_batch(item).size
        if options.num_samples is not None and count >= options.num_samples:
            break
    if count == 0:
        raise SamplesError("dataset must hold at least one sample, but it is empty.")
    if iter(dataset) is not dataset and not _equal(next(iter(dataset)), result[0]):
        raise SamplesError(
            "dataset must give the same samples each time, but its first batch changed between two reads. Switch "
            "shuffling and "
            "random augmentation off for the landscape."
        )
    _count(count, options.num_samples, notes)
    return result


def _count(available: int, asked: int | None, notes: list[str]) -> int:
    if asked is not None and asked > available:
        text = f"num_samples is {asked}, but the data set has {available}; all of them are used."
        warnings.warn(text, stacklevel=2)
        notes.append(text)
    return available if asked is None else min(asked, available)


def _sampler_indices(loader: DataLoader[Any]) -> Sequence[int] | None:
    # A subset is part of the data's meaning (a validation split), the order in which a sampler visits it is not.
    indices = getattr(loader.sampler, "indices", None)
    return None if indices is None else [int(index) for index in indices]


def _first(batches: list[Batch], count: int) -> list[Batch]:
    result = []
    for batch in batches:
        if count <= 0:
            break
        result.append(cut(batch, 0, count) if batch.size > count else batch)
        count -= batch.size
    return result


def _join(batches: list[Batch]) -> Batch | None:
    if len(batches) == 1:
        return batches[0]
    try:
        inputs = _concatenate([batch.inputs for batch in batches], [batch.size for batch in batches])
        targets = _concatenate([batch.targets for batch in batches], [batch.size for batch in batches])
    except _RaggedError:
        return None
    return Batch(inputs, targets, sum(batch.size for batch in batches))


class _RaggedError(Exception):
    """Batches that cannot be concatenated."""


def _concatenate(parts: list[Any], sizes: list[int]) -> Any:
    first = parts[0]
    if isinstance(first, torch.Tensor):
        per_sample = all(part.ndim and len(part) == size for part, size in zip(parts, sizes, strict=True))
        if not per_sample or len({(part.shape[1:], part.dtype) for part in parts}) != 1:
            raise _RaggedError
        return torch.cat(parts)
    if isinstance(first, Mapping):
        return {key: _concatenate([part[key] for part in parts], sizes) for key in first}
    if isinstance(first, tuple | list):
        return tuple(_concatenate(list(items), sizes) for items in zip(*parts, strict=True))
    if all(part == first for part in parts):
        return first
    raise _RaggedError


def _common_size(first: torch.Tensor, targets: Any) -> int:
    lengths = {len(leaf) for leaf in _leaves(targets) if isinstance(leaf, torch.Tensor) and leaf.ndim > 0}
    if lengths and len(first) not in lengths:
        raise SamplesError(
            f"dataset must give as many targets as inputs in a batch, but gave {len(first)} inputs and targets of "
            "length "
            f"{sorted(lengths)}."
        )
    return len(first)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key])
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _map(function, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(_map(function, item) for item in value)
    return function(value)


def _map_batch(function: Callable[[Any], Any], batch: Batch) -> Batch:
    return Batch(_map(function, batch.inputs), _map(function, batch.targets), batch.size)


def _equal(first: Any, second: Any) -> bool:
    pairs = list(itertools.zip_longest(_leaves(first), _leaves(second)))
    return all(_same_leaf(one, other) for one, other in pairs)


def _same_leaf(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and _same_bits(one, other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(one) is type(other) and repr(one) == repr(other)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(
        torch.equal(one, other) or (one.is_floating_point() and torch.equal(one.nan_to_num(), other.nan_to_num()))
    )
