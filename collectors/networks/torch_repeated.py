"""A PyTorch network that is read again and again, into memory that is kept."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .torch_network import as_array, named_tensors

# One is filled while the other is written; more wait only where the disk is slow.
_MOST_KEPT = 2
_TYPE_AND_SHAPE = operator.attrgetter("dtype", "shape")


class RepeatedReader:
    """Reads parameters and buffers, faster from the second call on; arrays last as long as the mapping returned."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._seen: _Contents | None = None
        self._entries: list[tuple[str, torch.Tensor]] = []
        self._free: list[_Memory] = []

    def __call__(self) -> dict[str, NDArray[Any]]:
        if self._seen is None or not self._seen.are_unchanged():
            self._entries = [(info.name, tensor) for info, tensor in named_tensors(self._network)]
            self._free = []
            self._seen = _Contents(self._network)
        memory = self._free.pop() if self._free else _Memory(self._entries)
        memory.fill()
        return Borrowed(memory, self._free)


class Borrowed(dict[str, NDArray[Any]]):
    """Arrays whose memory is free for other values when this mapping is gone."""

    def __init__(self, memory: Any, free: list[Any]) -> None:
        super().__init__(memory.arrays)
        self._memory, self._free = memory, free

    def __del__(self) -> None:
        if len(self._free) < _MOST_KEPT:
            self._free.append(self._memory)


class _Contents:
    """What a network consists of, to tell whether names and storages are still the same."""

    def __init__(self, network: nn.Module) -> None:
        layers = list(network.modules())
        self._holders: list[dict[str, Any]] = [
            holder for layer in layers for holder in (layer._parameters, layer._buffers, layer._modules)
        ]
        self._names = [*itertools.chain.from_iterable(self._holders)]
        self._objects = self._members()
        self._tensors = [item for item in self._objects if isinstance(item, torch.Tensor)]
        self._transient = [(layer, set(layer._non_persistent_buffers_set)) for layer in layers if layer._buffers]
        self._storages = self._places()

    # Between two training steps every line is cold, so it does as little as it can.
    def are_unchanged(self) -> bool:
        """Returns whether nothing was added, replaced, renamed, resized, converted or moved to other memory."""
        objects = self._members()
        return (
            len(objects) == len(self._objects)
            # Equality of tensors would compare their elements.
            and all(map(operator.is_, objects, self._objects))
            and self._names == [*itertools.chain.from_iterable(self._holders)]
            and all(layer._non_persistent_buffers_set == names for layer, names in self._transient)
            and self._places() == self._storages
        )

    def _members(self) -> list[Any]:
        return [*itertools.chain.from_iterable(map(dict.values, self._holders))]

    def _places(self) -> list[Any]:
        return [*map(torch.Tensor.data_ptr, self._tensors), *map(_TYPE_AND_SHAPE, self._tensors)]


class _Memory:
    """Room for one copy of each tensor, in ``arrays`` by name, in the network's order."""

    def __init__(self, entries: list[tuple[str, torch.Tensor]]) -> None:
        self._sources: dict[torch.dtype, list[torch.Tensor]] = {}
        for _, tensor in entries:
            # Detached here, so that no copy has to switch gradients off.
            self._sources.setdefault(tensor.dtype, []).append(tensor.detach())
        self._copies = {dtype: _pieces(dtype, tensors) for dtype, tensors in self._sources.items()}
        following = {dtype: iter(pieces) for dtype, pieces in self._copies.items()}
        self.arrays = {name: as_array(next(following[tensor.dtype])) for name, tensor in entries}

    def fill(self) -> None:
        for dtype, sources in self._sources.items():
            torch._foreach_copy_(self._copies[dtype], sources)


def _pieces(dtype: torch.dtype, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    sizes = [tensor.numel() for tensor in tensors]
    # NumPy asks for huge pages, whose first touch takes a sixth of the time of small ones.
    flat = torch.from_numpy(np.empty(sum(sizes) * dtype.itemsize, np.uint8)).view(dtype)
    split = flat.split_with_sizes(sizes)
    return [piece.view(tensor.shape) for piece, tensor in zip(split, tensors, strict=True)]
