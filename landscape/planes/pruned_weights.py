"""Pruned networks: what PyTorch's pruning keeps as weights and masks, as the weights that the network computes with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from collectors.networks.buffers_between import pruning_masks
from collectors.networks.weight_space import WeightSpace
from collectors.weights.safetensors_file import StateReader


def with_effective_weights(states: Sequence[StateReader], space: WeightSpace) -> tuple[StateReader, ...]:
    """Returns networks whose masks differ with weights that are multiplied by them, which are the same functions."""
    # The mean of two masks is none, and that of weights under one mask has weights that one of the networks lacks.
    differing = {
        weights: mask
        for mask, weights in pruning_masks(space).items()
        if len({state.read(mask).tobytes() for state in states}) > 1
    }
    return tuple(_Effective(state, differing) for state in states) if differing else tuple(states)


class _Effective:
    """A state in which some weights are multiplied by their masks, whose names ``masks`` has by the weights'."""

    def __init__(self, state: StateReader, masks: Mapping[str, str]) -> None:
        self._state, self._masks = state, masks
        self.label, self.shapes, self.dtypes = state.label, state.shapes, state.dtypes

    def read(self, name: str) -> NDArray[Any]:
        """Returns one tensor, as a copy."""
        found = self._state.read(name)
        return _masked(found, self._state.read(self._masks[name])) if name in self._masks else found

    def read_block(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Returns the elements ``start`` to ``stop`` of one tensor in C order, shape (stop - start,)."""
        found = self._state.read_block(name, start, stop)
        if name not in self._masks:
            return found
        return _masked(found, self._state.read_block(self._masks[name], start, stop))

    def sha256(self) -> str:
        """Returns the SHA-256 of the state as it was stored."""
        return self._state.sha256()


def _masked(weights: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = weights * mask.astype(weights.dtype)
    return found
