"""Full sets of weights in whatever form a user holds them, read under the network's own names and types."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError
from ..files.places import check_directory
from ..networks.readers import is_network, read_network
from ..networks.weight_space import State, WeightSpace, canonical_name, numpy_dtype
from ..validation import wrong_type
from .safetensors_file import MemoryState, Portable, StateReader, portable
from .wrapped_names import COUNT_OF_AVERAGES, fitting_names

# A network, a mapping from name to tensor or array, a StateReader, or a path.
Weights: TypeAlias = Any

_EXPECTED = "a network, a mapping from name to tensor (a state dict), a StateReader, or a path to a checkpoint"


class AlignedState:
    """A state read as the network would hold it: under the network's names, in its element types.

    Args:
        reader: holds the state, under canonical names, aliases, names with wrapper prefixes, or names that all have
            one prefix more or less than the network's.
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
        known = {name for tensor in space.tensors for name in (tensor.name, *tensor.aliases)}
        if COUNT_OF_AVERAGES not in known:
            held.pop(COUNT_OF_AVERAGES, None)
        if not known.issuperset(held):
            # Inside a LightningModule a network's names begin with "model."; what is saved, and what is measured, may
            # be either.
            fitting = fitting_names(held, known)
            held = held if fitting is None else {name: held[other] for name, other in fitting.items()}
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

    def portable(self) -> Portable | None:
        """Returns how another process reads the same under the network's names; None where it cannot."""
        inner = portable(self._reader)
        return None if inner is None else functools.partial(_aligned, inner, self.space)

    def _cast(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        return array.astype(numpy_dtype(self.dtypes[name]), copy=False)


def align(reader: StateReader, space: WeightSpace) -> AlignedState:
    """Returns the reader under the network's names; one that is aligned already stays as it is."""
    if isinstance(reader, AlignedState) and reader.space == space:
        return reader
    return AlignedState(reader, space)


@dataclass(frozen=True)
class NetworkState:
    """A network's parameters and buffers, read anew by each call.

    Attributes:
        open: returns what holds them; the whole can be pickled where that can.
        space: the network.
        own_buffers: whether its buffers are read, too.
        buffers: those that take their place, by name; None where the network is to keep its own.
    """

    open: Portable
    space: WeightSpace
    own_buffers: bool
    buffers: State | None = None

    def __call__(self) -> tuple[State, State | None]:
        """Returns parameters and buffers.

        Raises:
            CheckpointError: they cannot be read.
        """
        reader = self.open()
        parameters = {tensor.name: reader.read(tensor.name) for tensor in self.space.parameters}
        own = {tensor.name: reader.read(tensor.name) for tensor in self.space.buffers} if self.own_buffers else None
        return parameters, self.buffers if own is None else own


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
        from .foreign_checkpoint import open_checkpoint

        return open_checkpoint(check_directory(label, weights))
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


def _aligned(reader: Portable, space: WeightSpace) -> AlignedState:
    return AlignedState(reader(), space)
