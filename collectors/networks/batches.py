"""Batches of samples: nested tuples, lists and dictionaries of NumPy arrays or PyTorch tensors; graphs of PyG."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any


def call_network(network: Callable[..., Any], inputs: Any) -> Any:
    """Calls a network on a batch's inputs: a dict as keywords, a tuple or list (but no packed one) as positions."""
    if isinstance(inputs, Mapping):
        return network(**inputs)
    if isinstance(inputs, tuple | list) and not is_packed(inputs):
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
    elif is_graph(value):
        for store in value.stores:
            for item in store.values():
                yield from leaves(item)
    else:
        yield value


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Returns the nested tuples and dictionaries with every leaf replaced."""
    if isinstance(value, Mapping):
        return mapping_like(value, {key: map_leaves(function, item) for key, item in value.items()})
    if is_packed(value):
        # How many of the sequences have a step is for the host, wherever the rest is.
        found = {name: getattr(value, name) for name in ("data", "sorted_indices", "unsorted_indices")}
        return value._replace(**{name: function(item) for name, item in found.items() if item is not None})
    if isinstance(value, tuple | list):
        return tuple_like(value, [map_leaves(function, item) for item in value])
    if is_graph(value):
        changed = copy.copy(value)  # with stores of its own
        for store in changed.stores:
            for key, item in list(store.items()):
                store[key] = map_leaves(function, item)
        return changed
    return function(value)


def is_graph(value: object) -> bool:
    """Returns whether a value is a graph, or a batch of graphs, of PyTorch Geometric, without importing it."""
    module = sys.modules.get("torch_geometric.data.data")
    return module is not None and isinstance(value, module.BaseData)


def is_packed(value: object) -> bool:
    """Returns whether a value is what PyTorch makes of sequences of other lengths for its recurrent layers."""
    module = sys.modules.get("torch.nn.utils.rnn")
    return module is not None and isinstance(value, module.PackedSequence)


def mapping_like(model: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    # A batch may be a dictionary with attributes (BatchEncoding of Transformers), which networks use.
    if type(model) is dict or not isinstance(model, MutableMapping):
        return items
    result = copy.copy(model)
    for key, item in items.items():
        result[key] = item
    return result


def tuple_like(model: Sequence[Any], items: list[Any]) -> Any:
    return type(model)(*items) if hasattr(model, "_fields") else tuple(items)


def length_of(dataset: Any) -> int | None:
    """Returns how many items a data set says it has; None where it does not know."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def sample_count(inputs: Any, targets: Any) -> int:
    """Returns a batch's number of samples: the first axis of its first tensor, else array, that has one, else 1."""
    parts = inputs if isinstance(inputs, tuple | list) and not is_packed(inputs) else [inputs]
    if (packed := next(filter(is_packed, parts), None)) is not None:
        return int(packed.batch_sizes[0])
    torch = sys.modules.get("torch")
    found = [leaf for leaf in leaves((inputs, targets)) if len(getattr(leaf, "shape", ()))]
    if torch is not None:
        found.sort(key=lambda leaf: not isinstance(leaf, torch.Tensor))
    return int(found[0].shape[0]) if found else 1
