"""Full sets of weights in whatever form a user holds them, read under the network's own names and types."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError
from ..networks.readers import is_network, read_network
from ..networks.weight_space import WeightSpace, canonical_name, numpy_dtype
from ..validation import check_path, wrong_type
from .safetensors_file import CheckpointFile, MemoryState, StateReader

# A network, a mapping from name to tensor or array, a StateReader, or a path.
Weights: TypeAlias = Any

_EXPECTED = "a network, a mapping from name to tensor (a state dict), a StateReader, or a path to a checkpoint"


class AlignedState:
    """A state read as the network would hold it: under the network's names, in its element types.

    Args:
        reader: holds the state, under canonical names, aliases or names with wrapper prefixes.
        space: the network.

    Raises:
        CheckpointError: the state does not fit the network.
    """

    def __init__(self, reader: StateReader, space: WeightSpace) -> None:
        self.label = reader.label
        self.space = space
        self._reader = reader
        held: dict[str, str] = {}
        for name in reader.shapes:
            if held.setdefault(canonical_name(name), name) != name:
                raise CheckpointError(
                    f"{reader.label} holds both {held[canonical_name(name)]!r} and {name!r}, which are one name "
                    "without wrapper prefixes; remove one of them."
                )
        found = space.check_state(reader.label, {short: tuple(reader.shapes[name]) for short, name in held.items()})
        self._names = {name: held[short] for name, short in found.items()}
        self.shapes = {tensor.name: tensor.shape for tensor in space.tensors}
        self.dtypes = {tensor.name: tensor.dtype for tensor in space.tensors}

    def read(self, name: str) -> NDArray[Any]:
        """Returns one tensor, as a copy."""
        return self._cast(name, self._reader.read(self._names[name]))

    def read_block(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Returns the elements ``start`` to ``stop`` of one tensor in C order, shape (stop - start,)."""
        return self._cast(name, self._reader.read_block(self._names[name], start, stop))

    def sha256(self) -> str:
        """Returns the SHA-256 of the state as it was stored."""
        return self._reader.sha256()

    def _cast(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        return array.astype(numpy_dtype(self.dtypes[name]), copy=False)


def align(reader: StateReader, space: WeightSpace) -> AlignedState:
    """Returns the reader under the network's names; one that is aligned already stays as it is."""
    if isinstance(reader, AlignedState) and reader.space == space:
        return reader
    return AlignedState(reader, space)


def as_reader(label: str, weights: Weights) -> StateReader:
    """Returns a reader of the weights; those in memory are copied.

    Raises:
        TypeError: the weights have an unknown form, or a value is not a tensor.
        CheckpointError: a file is missing, damaged or holds no weights.
    """
    if is_network(weights):
        return MemoryState(read_network(weights), label)
    if isinstance(weights, Mapping):
        return MemoryState({str(name): as_array(f"{label}[{name!r}]", item) for name, item in weights.items()}, label)
    if isinstance(weights, str | os.PathLike):
        path = check_path(label, weights)
        if path.suffix == ".safetensors":
            return CheckpointFile(path)
        from .torch_file import read_state_dict

        return MemoryState(read_state_dict(path), str(path))
    if hasattr(weights, "read_block"):
        return cast(StateReader, weights)
    raise wrong_type(label, _EXPECTED, weights)


def as_array(label: str, value: object) -> NDArray[Any]:
    """Returns a copy of a tensor or an array in host memory.

    Raises:
        TypeError: the value is neither.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        from ..networks.torch_network import to_array

        return to_array(value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        return np.array(value)
    nested = ". If the weights lie under one of its keys, give that entry alone" if isinstance(value, Mapping) else ""
    raise wrong_type(label, f"a tensor or a NumPy array{nested}", value)
