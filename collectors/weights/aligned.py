"""Full sets of weights in whatever form they are, under the network's names and in its types, frozen ones included."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError
from ..files.places import check_directory
from ..networks.readers import is_network, read_network
from ..networks.weight_space import (
    State,
    WeightSpace,
    canonical_name,
    extra_states_left_out,
    is_extra_state,
    numpy_dtype,
    some_names,
    state_sha256,
)
from ..validation import wrong_type
from .safetensors_file import MemoryState, Portable, StateReader, portable
from .wrapped_names import COUNT_OF_AVERAGES, fitting_names, names_inside, parametrized_names

# A network, a mapping from name to tensor or array, a StateReader, or a path.
Weights: TypeAlias = Any

_EXPECTED = "a network, a mapping from name to tensor (a state dict), a StateReader, or a path to a checkpoint"


class AlignedState:
    """A state under a network's names, in its element types; ``left_out`` are names that lie beside the network's."""

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
        whole = {name: other for name, other in held.items() if name in known or not is_extra_state(name)}
        held = whole if known.issuperset(whole) else _fitting(reader.label, whole, space)
        self.left_out = sorted(reader.shapes.keys() - {*held.values(), COUNT_OF_AVERAGES})
        found = space.check_state(reader.label, {short: tuple(reader.shapes[name]) for short, name in held.items()})
        self._names = {name: held[short] for name, short in found.items()}
        self.shapes = {tensor.name: tensor.shape for tensor in space.tensors}
        self.dtypes = {tensor.name: tensor.dtype for tensor in space.tensors}

    def read(self, name: str) -> NDArray[Any]:
        return self._cast(name, self._reader.read(self._names[name]))

    def read_block(self, name: str, start: int, stop: int) -> NDArray[Any]:
        return self._cast(name, self._reader.read_block(self._names[name], start, stop))

    def sha256(self) -> str:
        return self._reader.sha256()

    def portable(self) -> Portable | None:
        inner = portable(self._reader)
        return None if inner is None else functools.partial(_aligned, inner, self.space)

    def _cast(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        return array.astype(numpy_dtype(self.dtypes[name]), copy=False)


def align(reader: StateReader, space: WeightSpace) -> AlignedState:
    """Returns the reader under the network's names; one that is aligned already stays as it is."""
    if isinstance(reader, AlignedState) and reader.space == space:
        return reader
    aligned = AlignedState(reader, space)
    if aligned.left_out:
        # Without the checkpoint's name, so that a run of many says it once.
        warnings.warn(
            f"left out, beside the tensors of the network {space.network}: {some_names(aligned.left_out)}.",
            UserWarning,
            stacklevel=2,
        )
    return aligned


class FrozenParameters:
    """A network's frozen parameters as they were when they were saved."""

    def __init__(self, reader: StateReader) -> None:
        self._digests = {name: state_sha256({name: reader.read(name)}) for name in reader.shapes}

    def moved_or_trained(self, state: State) -> dict[str, NDArray[Any]]:
        """Returns what a checkpoint must hold of a state: all but the frozen parameters that have not changed."""
        return {
            name: array
            for name, array in state.items()
            # Bytes are compared: a layer may be thawed in the middle of a training, and a program may write into it.
            if name not in self._digests or state_sha256({name: array}) != self._digests[name]
        }


def frozen_state(space: WeightSpace, state: State) -> dict[str, NDArray[Any]]:
    """Returns the parameters of a state that no optimizer may move; none where it is unknown which are trainable."""
    if not space.trainable:
        return {}
    return {tensor.name: state[tensor.name] for tensor in space.parameters if not tensor.trainable}


class CompletedState:
    """A checkpoint that is completed by the run's file of frozen parameters."""

    def __init__(self, checkpoint: StateReader, frozen: StateReader) -> None:
        self.label = checkpoint.label
        self._checkpoint, self._frozen = checkpoint, frozen
        self.shapes: Mapping[str, tuple[int, ...]] = {**frozen.shapes, **checkpoint.shapes}
        self.dtypes: Mapping[str, str] = {**frozen.dtypes, **checkpoint.dtypes}

    def read(self, name: str) -> NDArray[Any]:
        return self._holder(name).read(name)

    def read_block(self, name: str, start: int, stop: int) -> NDArray[Any]:
        return self._holder(name).read_block(name, start, stop)

    def sha256(self) -> str:
        return hashlib.sha256(f"{self._checkpoint.sha256()}{self._frozen.sha256()}".encode()).hexdigest()

    def portable(self) -> Portable | None:
        checkpoint, frozen = portable(self._checkpoint), portable(self._frozen)
        return None if checkpoint is None or frozen is None else functools.partial(_completed, checkpoint, frozen)

    def _holder(self, name: str) -> StateReader:
        return self._checkpoint if name in self._checkpoint.shapes else self._frozen


@dataclass(frozen=True)
class NetworkState:
    """A network's parameters and buffers, read anew by each call."""

    open: Portable  # returns what holds them; the whole can be pickled where that can
    space: WeightSpace
    own_buffers: bool  # whether its buffers are read, too
    buffers: State | None = None  # those that take their place, by name; None where the network is to keep its own

    def __call__(self) -> tuple[State, State | None]:
        reader = self.open()
        parameters = {tensor.name: reader.read(tensor.name) for tensor in self.space.parameters}
        own = {tensor.name: reader.read(tensor.name) for tensor in self.space.buffers} if self.own_buffers else None
        return parameters, self.buffers if own is None else own


def as_reader(label: str, weights: Weights) -> StateReader:
    """Returns a reader of the weights; those in memory are copied."""
    if is_network(weights):
        return MemoryState(read_network(weights), label)
    if isinstance(weights, Mapping):
        extra = [name for name in map(str, weights) if is_extra_state(name)]
        if extra:
            warnings.warn(f"{label} holds more than weights; {extra_states_left_out(extra)}", UserWarning, stacklevel=2)
        arrays = {
            str(name): as_array(f"{label}[{name!r}]", item) for name, item in weights.items() if str(name) not in extra
        }
        return MemoryState(arrays, label)
    if isinstance(weights, str | os.PathLike):
        from .foreign_checkpoint import open_checkpoint

        return open_checkpoint(check_directory(label, weights))
    if hasattr(weights, "read_block"):
        return cast(StateReader, weights)
    raise wrong_type(label, _EXPECTED, weights)


def as_array(label: str, value: object) -> NDArray[Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        from ..networks.torch_network import to_array

        return to_array(value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        return np.array(value)
    nested = ". If the weights lie under one of its keys, give that entry alone" if isinstance(value, Mapping) else ""
    raise wrong_type(label, f"a tensor or a NumPy array{nested}", value)


def _fitting(label: str, held: Mapping[str, str], space: WeightSpace) -> dict[str, str]:
    """Returns the names in a reader by the network's own, as far as they can be told."""
    # Inside a LightningModule a network's names begin with "model."; what is saved, and what is measured, may be
    # either, and so may the names of weight_norm.
    theirs = parametrized_names(held)
    own = parametrized_names({name for tensor in space.tensors for name in (tensor.name, *tensor.aliases)})
    now = {name: modern for modern, name in own.items()}
    wanted = [[now[name] for name in (tensor.name, *tensor.aliases)] for tensor in space.tensors]
    fitting = fitting_names(theirs, own)
    if fitting is None:
        fitting = names_inside(label, theirs, wanted)
    return dict(held) if fitting is None else {own[name]: held[theirs[other]] for name, other in fitting.items()}


def _aligned(reader: Portable, space: WeightSpace) -> AlignedState:
    return AlignedState(reader(), space)


def _completed(checkpoint: Portable, frozen: Portable) -> CompletedState:
    return CompletedState(checkpoint(), frozen())
