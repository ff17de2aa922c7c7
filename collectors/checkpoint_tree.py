"""Nested states (dicts, lists, numbers, tensors) as JSON and named arrays, and back; nothing is ever pickled."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from .checkpoint_file import STORABLE_DTYPES
from .network_state import Array

_PLAIN = (bool, int, float, str)


def encode(tree: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Returns a tree as what JSON can hold; its tensors and arrays are copied into ``arrays``.

    Args:
        tree: None, bool, int, float, str, bytes, tensors, arrays, and dicts, lists and tuples of them.
        name: what to call the tree: the beginning of its arrays' names, and its place in an error's text.
        arrays: gets the arrays.

    Raises:
        TypeError: the tree holds something else.
    """
    if tree is None or type(tree) in _PLAIN:
        return tree
    if isinstance(tree, np.generic) and isinstance(tree.item(), _PLAIN):
        return tree.item()
    if isinstance(tree, _PLAIN):
        return next(kind for kind in _PLAIN if isinstance(tree, kind))(tree)
    if isinstance(tree, bytes):
        return {"bytes": tree.hex()}
    if isinstance(tree, list):
        return [encode(item, f"{name}/{index}", arrays) for index, item in enumerate(tree)]
    if isinstance(tree, tuple):
        return {"tuple": [encode(item, f"{name}/{index}", arrays) for index, item in enumerate(tree)]}
    if isinstance(tree, Mapping):
        kind = "counter" if isinstance(tree, Counter) else "dict"
        return {
            kind: [[encode(key, name, arrays), encode(item, f"{name}/{key}", arrays)] for key, item in tree.items()]
        }
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tree, torch.Tensor):
        from .torch_state import to_array

        return {"tensor": _add(to_array(tree), name, arrays)}
    if isinstance(tree, np.ndarray):
        return {"array": _add(tree.copy(), name, arrays)}
    raise TypeError(
        f"{name} must be made of None, bool, int, float, str, bytes, tensors, arrays, dicts, lists and tuples, because "
        f"checkpoints hold no pickle, but it is {type(tree).__name__}."
    )


def decode(encoded: Any, arrays: Mapping[str, Array]) -> Any:
    """Returns the tree that ``encode`` was given.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the JSON is none that ``encode`` writes, or an array is
            missing.
    """
    if encoded is None or isinstance(encoded, _PLAIN):
        return encoded
    if isinstance(encoded, list):
        return [decode(item, arrays) for item in encoded]
    ((kind, content),) = encoded.items()
    if kind == "tuple":
        return tuple(decode(item, arrays) for item in content)
    if kind in ("dict", "counter"):
        pairs = {decode(key, arrays): decode(item, arrays) for key, item in content}
        return Counter(pairs) if kind == "counter" else pairs
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "array":
        return arrays[content].copy()
    if kind == "tensor":
        from .torch_state import to_tensor

        return to_tensor(arrays[content])
    raise ValueError(f"it has an item of the unknown kind {kind!r}")


def _add(array: Array, name: str, arrays: dict[str, Array]) -> str:
    if array.dtype.name not in STORABLE_DTYPES:
        raise TypeError(f"{name} has elements of type {array.dtype.name}, which a safetensors file cannot hold.")
    # The keys 1 and "1" of a dict would share a name.
    while name in arrays:
        name += "'"
    arrays[name] = array
    return name
