"""PyTorch networks that are read again and again, and those whose parameters are divided among processes."""

from __future__ import annotations

import contextlib
import itertools
import operator
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .torch_network import (
    Entry,
    as_array,
    is_divided,
    named_entries,
    named_tensors,
    tensor_infos,
    unwrap,
    warn_of_extra_states,
)
from .weight_space import TensorInfo, WeightSpace, canonical_name

# One is filled while the other is written; more wait only where the disk is slow.
_MOST_KEPT = 2
_TYPE_AND_SHAPE = operator.attrgetter("dtype", "shape")


class RepeatedReader:
    """Reads parameters and buffers, faster from the second call on; arrays last as long as the mapping returned."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._seen: _Contents | None = None
        self._entries: list[tuple[str, torch.dtype, torch.Size]] = []
        self._sources: dict[torch.dtype, list[torch.Tensor]] = {}
        self._free: list[_Room] = []

    def __call__(self) -> dict[str, NDArray[Any]]:
        if self._seen is None or not self._seen.are_unchanged():
            found = [(info.name, tensor) for info, tensor in named_tensors(self._network)]
            self._entries = [(name, tensor.dtype, tensor.shape) for name, tensor in found]
            # Detached here, so that no copy has to switch gradients off.
            self._sources = _by_type((tensor.dtype, tensor.detach()) for _, tensor in found)
            self._free = []
            self._seen = _Contents(self._network)
        room = self._free.pop() if self._free else _Room(self._entries)
        for dtype, sources in self._sources.items():
            torch._foreach_copy_(room.copies[dtype], sources)
        return _Borrowed(room, self._free)


def is_sharded(network: nn.Module) -> bool:
    """Returns whether processes share the parameters, or DeepSpeed's optimizer divides their float32 values."""
    divided = any(is_divided(parameter) or _has_master(parameter) for parameter in network.parameters())
    return divided or any(_is_fsdp(layer, 1) or _is_fsdp(layer, 2) for layer in network.modules())


class ShardedReader:
    """Reads what FSDP, DTensor or ZeRO divides; all processes must call alike, and rank 0 ``keeps`` the copies."""

    def __init__(self, network: nn.Module, *, keeps: bool) -> None:
        self._network, self._keeps = unwrap(network), keeps
        self._infos: list[TensorInfo] = []
        self._free: list[_Room] = []
        self._room: _Room | None = None

    def describe(self) -> WeightSpace:
        """Returns the description of the whole network; a process that gets no copies may see a part of it."""
        layers = [canonical_name(f"{path}." if path else "") for path, _ in self._network.named_modules()]
        order = {path: rank for rank, path in reversed([*enumerate(layers)])}
        found = [info for info, _ in self._tensors(with_values=False)]
        # FSDP 1 gives them unit by unit; a run without FSDP has the same network only in the same order.
        found.sort(
            key=lambda info: (info.role != "parameter", order.get(info.name[: info.name.rfind(".") + 1], len(order)))
        )
        self._infos = found
        warn_of_extra_states(self._network)
        return WeightSpace("torch", _class_name(self._network), tuple(found))

    def make_room(self) -> None:
        """Allocates the copies, so that a lack of memory is an error before any process waits for another one."""
        if self._room is None and self._keeps:
            entries = [(info.name, getattr(torch, info.dtype), torch.Size(info.shape)) for info in self._infos]
            self._room = self._free.pop() if self._free else _Room(entries)

    @torch.no_grad()
    def __call__(self) -> dict[str, NDArray[Any]]:
        """Returns copies in host memory, which last as long as the mapping; none where this process keeps none."""
        self.make_room()
        room, self._room = self._room, None
        # One whole parameter at a time (FSDP 1: a wrapped unit), so that the network need not fit on any device.
        for info, tensor in self._tensors(with_values=True):
            if room is not None:
                room.tensors[info.name].copy_(tensor)
        return {} if room is None else _Borrowed(room, self._free)

    @torch.no_grad()
    def _tensors(self, *, with_values: bool) -> Iterator[tuple[TensorInfo, torch.Tensor]]:
        """Yields every tensor with its description; one with values is whole until the next one is asked for."""
        layers = dict(self._network.named_modules())
        for layer in layers.values():
            if _is_fsdp(layer, 2):
                # After an evaluation, parameters may be copies in the lower precision of the forward pass.
                layer.reshard()
        units = {path: layer for path, layer in layers.items() if _is_fsdp(layer, 1) or path == ""}
        for path, unit in units.items():
            prefix = f"{path}." if path else ""
            inner = tuple(f"{other}." for other in units if other != path and other.startswith(prefix))
            # The units above come first: they set up the whole, which a unit alone would do wrongly.
            with _whole_unit(unit) if _is_fsdp(unit, 1) else contextlib.nullcontext():
                if not self._keeps and _is_fsdp(unit, 1):
                    continue  # only rank 0 sees the unit whole
                entries = [entry for entry in named_entries(unit) if not f"{prefix}{entry.name}".startswith(inner)]
                _check_is_outermost(unit, entries)
                for info, tensor in tensor_infos(entries, prefix):
                    # With DeepSpeed the values are the float32 ones that its optimizer keeps.
                    kept = replace(info, dtype="float32") if _has_master(tensor) else info
                    yield kept, _whole_tensor(tensor) if with_values else tensor


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


class _Room:
    """Host memory for one copy of each tensor, by name in the network's order and as ``copies`` by element type."""

    def __init__(self, entries: list[tuple[str, torch.dtype, torch.Size]]) -> None:
        shapes = _by_type((dtype, shape) for _, dtype, shape in entries)
        self.copies = {dtype: _pieces(dtype, found) for dtype, found in shapes.items()}
        following = {dtype: iter(pieces) for dtype, pieces in self.copies.items()}
        self.tensors = {name: next(following[dtype]) for name, dtype, _ in entries}
        self.arrays = {name: as_array(tensor) for name, tensor in self.tensors.items()}


class _Borrowed(dict[str, NDArray[Any]]):
    """Arrays whose memory is free for other values when this mapping is gone."""

    def __init__(self, room: _Room, free: list[_Room]) -> None:
        super().__init__(room.arrays)
        self._room, self._free = room, free

    def __del__(self) -> None:
        if len(self._free) < _MOST_KEPT:
            self._free.append(self._room)


def _by_type(items: Iterable[tuple[torch.dtype, Any]]) -> dict[torch.dtype, list[Any]]:
    found: dict[torch.dtype, list[Any]] = {}
    for dtype, item in items:
        found.setdefault(dtype, []).append(item)
    return found


def _pieces(dtype: torch.dtype, shapes: list[torch.Size]) -> list[torch.Tensor]:
    sizes = [shape.numel() for shape in shapes]
    # NumPy asks for huge pages, whose first touch takes a sixth of the time of small ones.
    flat = torch.from_numpy(np.empty(sum(sizes) * dtype.itemsize, np.uint8)).view(dtype)
    return [piece.view(shape) for piece, shape in zip(flat.split_with_sizes(sizes), shapes, strict=True)]


def _whole_tensor(tensor: Any) -> torch.Tensor:
    if hasattr(tensor, "full_tensor"):
        # What is offloaded to host memory is gathered where the process group works.
        return cast(torch.Tensor, tensor.detach().to(tensor.device_mesh.device_type).full_tensor())
    if _has_master(tensor):
        return cast(torch.Tensor, import_module("deepspeed.utils").safe_get_full_fp32_param(tensor))
    if hasattr(tensor, "ds_id"):
        with import_module("deepspeed").zero.GatheredParameters([tensor]):
            return cast(torch.Tensor, tensor.detach().clone())
    return cast(torch.Tensor, tensor)


def _whole_unit(unit: Any) -> contextlib.AbstractContextManager[None]:
    from torch.distributed.fsdp import ShardingStrategy

    # A unit in host memory is there already, and PyTorch cannot offload one that every process has as a whole.
    offloads = unit.compute_device.type != "cpu" and unit.sharding_strategy != ShardingStrategy.NO_SHARD
    return cast(
        contextlib.AbstractContextManager[None],
        unit.summon_full_params(unit, recurse=False, writeback=False, rank0_only=True, offload_to_cpu=offloads),
    )


def _check_is_outermost(unit: nn.Module, entries: list[Entry]) -> None:
    if not _is_fsdp(unit, 1) and any(is_divided(entry.tensor, by_fsdp1=True) for entry in entries):
        raise TypeError(
            f"network ({type(unit).__name__}) must be the FullyShardedDataParallel module that the training calls, "
            "because that one holds the parameters of the module inside; watch it instead. Transformers does not hand "
            'it to callbacks: choose FSDP 2 there, with fsdp_config={"fsdp_version": 2}.'
        )


def _has_master(tensor: torch.Tensor) -> bool:
    """Returns whether an optimizer of DeepSpeed keeps the tensor's values in float32."""
    return hasattr(tensor, "_hp_mapping") or (hasattr(tensor, "_z3_optimizer") and tensor.requires_grad)


def _is_fsdp(layer: nn.Module, version: Literal[1, 2]) -> bool:
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(layer, fsdp.FullyShardedDataParallel if version == 1 else fsdp.FSDPModule)


def _class_name(network: nn.Module) -> str:
    """Returns the name of the user's own class, without what sharding makes of it."""
    inner: Any = network
    while True:
        engine = sys.modules.get("deepspeed")
        if _is_fsdp(inner, 1) or (engine is not None and isinstance(inner, engine.DeepSpeedEngine)):
            inner = unwrap(inner.module)
        elif (wrapped := inner._modules.get("_checkpoint_wrapped_module")) is not None:
            inner = unwrap(wrapped)
        else:
            break
    kind = type(inner)
    # fully_shard gives a network a class that is made from PyTorch's and its own.
    while kind.__bases__[0].__module__.startswith("torch.distributed.") and len(kind.__bases__) > 1:
        kind = kind.__bases__[-1]
    return kind.__name__
