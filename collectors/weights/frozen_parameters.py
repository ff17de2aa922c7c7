"""Frozen parameters: saved once, in a file that all checkpoints of a run share."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ..networks.weight_space import State, WeightSpace, state_sha256
from .safetensors_file import Portable, StateReader, portable


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
        """Returns how another process reads both files; None where it cannot."""
        checkpoint, frozen = portable(self._checkpoint), portable(self._frozen)
        return None if checkpoint is None or frozen is None else functools.partial(_completed, checkpoint, frozen)

    def _holder(self, name: str) -> StateReader:
        return self._checkpoint if name in self._checkpoint.shapes else self._frozen


def _completed(checkpoint: Portable, frozen: Portable) -> CompletedState:
    return CompletedState(checkpoint(), frozen())
