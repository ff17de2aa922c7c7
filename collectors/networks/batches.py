"""Batches of samples: nested tuples, lists and dictionaries of NumPy arrays or PyTorch tensors."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any


def call_network(network: Callable[..., Any], inputs: Any) -> Any:
    """Calls a network on a batch's inputs: a dict as keywords, a tuple or list as positions."""
    if isinstance(inputs, Mapping):
        return network(**inputs)
    if isinstance(inputs, tuple | list):
        return network(*inputs)
    return network(inputs)


def leaves(value: Any) -> Iterator[Any]:
    """Yields what nested tuples, lists and dictionaries hold."""
    if isinstance(value, Mapping):
        for key in value:
            yield from leaves(value[key])
    elif isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Returns the nested tuples and dictionaries with every leaf replaced."""
    if isinstance(value, Mapping):
        return mapping_like(value, {key: map_leaves(function, item) for key, item in value.items()})
    if isinstance(value, tuple | list):
        return tuple_like(value, [map_leaves(function, item) for item in value])
    return function(value)


def mapping_like(model: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """Returns the items as a mapping of the model's class."""
    # A batch may be a dictionary with attributes (BatchEncoding of Transformers), which networks use.
    if type(model) is dict or not isinstance(model, MutableMapping):
        return items
    result = copy.copy(model)
    for key, item in items.items():
        result[key] = item
    return result


def tuple_like(model: Sequence[Any], items: list[Any]) -> Any:
    """Returns the items as a tuple; as a named tuple where the model is one."""
    return type(model)(*items) if hasattr(model, "_fields") else tuple(items)


def sample_count(inputs: Any, targets: Any) -> int:
    """Returns the number of samples in a batch: the first axis of its first PyTorch tensor that has one, else 1."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 1
    tensors = (leaf for leaf in leaves((inputs, targets)) if isinstance(leaf, torch.Tensor))
    return next((int(tensor.shape[0]) for tensor in tensors if tensor.ndim), 1)
