"""Batches: what a data set must be, and how one of its batches reaches the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from .validation import wrong_type


def check_dataset(name: str, dataset: Any) -> Iterable[Any]:
    """Returns the data set when it can be iterated again and again and is not empty.

    Raises:
        TypeError: it cannot be iterated, or only once.
        ValueError: it has a length, and that is 0.
    """
    if not isinstance(dataset, Iterable) and not hasattr(type(dataset), "__getitem__"):
        raise wrong_type(name, "a DataLoader or another iterable of (inputs, targets) batches", dataset)
    if isinstance(dataset, Iterator):
        raise TypeError(
            f"{name} must be iterable again and again, but got {type(dataset).__name__}, which is used up after one "
            "pass. Give a DataLoader or a list of batches."
        )
    if dataset_length(dataset) == 0:
        raise empty_dataset(name)
    return dataset  # type: ignore[no-any-return]


def empty_dataset(name: str) -> ValueError:
    """Returns the error for a data set without a batch."""
    return ValueError(
        f"{name} must yield at least one batch, but got none. A DataLoader with drop_last=True has none when the "
        "batch size exceeds the number of samples."
    )


def dataset_length(dataset: Any) -> int | None:
    """Returns the number of batches, or None where the data set does not know it."""
    try:
        return len(dataset)
    except TypeError:
        return None


def announce_epoch(dataset: Any, epoch: int) -> None:
    """Tells a distributed sampler the epoch (0-based); without it every epoch has the same order."""
    for owner in ("sampler", "batch_sampler"):
        set_epoch = getattr(getattr(dataset, owner, None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)


def split_batch(name: str, batch: Any, index: int) -> tuple[Any, Any]:
    """Returns inputs and targets of one batch.

    Raises:
        TypeError: the batch is neither tuple nor list.
        ValueError: it has not two items.
    """
    expected = f"{name} must yield (inputs, targets) pairs, but its batch {index} is"
    remedy = "Several inputs go into one tuple or dict: ((a, b), targets)."
    if not isinstance(batch, tuple | list):
        raise TypeError(f"{expected} a {type(batch).__name__}. {remedy}")
    if len(batch) != 2:
        raise ValueError(f"{expected} a {type(batch).__name__} of {len(batch)}. {remedy}")
    return batch[0], batch[1]


def to_device(value: Any, device: torch.device) -> Any:
    """Returns the value with every tensor in it (also inside tuples, lists and dicts) on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(to_device(item, device) for item in value)
    if isinstance(value, Mapping):
        return {key: to_device(item, device) for key, item in value.items()}
    return value


def sample_count(inputs: Any, targets: Any) -> int:
    """Returns the number of samples in a batch: the first axis of its first tensor that has one, else 1."""
    for value in (inputs, targets):
        for tensor in _tensors(value):
            if tensor.ndim:
                return int(tensor.shape[0])
    return 1


def call_network(network: nn.Module, inputs: Any) -> Any:
    """Returns the network's outputs; a tuple or list is unpacked as arguments, a dict as named arguments."""
    if isinstance(inputs, Mapping):
        return network(**inputs)
    if isinstance(inputs, tuple | list):
        return network(*inputs)
    return network(inputs)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
