"""Moves a PyTorch network through weight space, in place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from collectors.networks.buffers_between import BuffersBetween, inside_corners
from collectors.networks.torch_network import check_apart, named_tensors, to_tensor, unwrap
from collectors.networks.weight_space import State, TensorInfo, WeightSpace

from ..errors import CallbackFunctionError
from ..samples.batches import float64_device
from .snapshot import collapsed, set_values

_SMALL = 1 << 16  # elements; below that a tensor costs more for being one than for its values


class NetworkInPlace:
    """A network whose parameters move along directions in place; storage, strides, types and ties stay."""

    def __init__(self, network: nn.Module) -> None:
        entries = named_tensors(network)
        check_apart(entries)
        self.space = WeightSpace("torch", type(unwrap(network)).__name__, tuple(info for info, _ in entries))
        self.axes: int | None = None
        """Of the loaded plane; None before ``load``."""
        self.is_at_network = False
        """Whether it stands at one of the networks that a plane goes through, whose buffers are all its own."""
        self._parts: list[_Direct | _Stage] = []
        self._between: _Between | None = None
        self._parameters = {info.name: tensor.detach() for info, tensor in entries if info.role == "parameter"}
        self._buffers = {info.name: tensor.detach() for info, tensor in entries if info.role == "buffer"}
        self._moved = self._grouped(info for info in self.space.trainable if info.size)

    def load(
        self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State] = ()
    ) -> None:
        """Puts origin and directions on the device, in the parameters' own memory layout."""
        # The plane before goes first, and what moves is held by the parts alone: each may be as large as the network.
        self.axes, self._parts, self._between = None, [], None
        moved = {info.name for infos in self._moved for info in infos}
        self._fixed = {name: to_tensor(origin[name]) for name in self._parameters if name not in moved}
        origin_buffers = {name: _like(target, buffers[name]) for name, target in self._buffers.items()}
        self._fused_buffers = [
            (
                [collapsed(self._buffers[info.name]) for info in infos],
                [collapsed(origin_buffers[info.name], self._buffers[info.name]) for info in infos],
            )
            for infos in self._grouped(self.space.buffers)
        ]
        for infos in self._moved:
            targets = [self._parameters[info.name] for info in infos]
            states = [[state[info.name] for info in infos] for state in (origin, *directions)]
            dtype = torch.float64 if infos[0].dtype == "float64" else torch.float32
            self._parts.append(_Direct(targets, states) if _is_large(infos[0]) else _Stage(targets, dtype, states))
        if end_buffers:
            between = BuffersBetween(self.space, buffers, end_buffers)
            names = set(between.interpolated)
            groups = self._grouped(info for info in self.space.buffers if info.name in names)
            self._between = _Between(between, self._buffers, [[info.name for info in infos] for infos in groups])
        self.axes = len(directions)
        self.return_to_origin()

    def move(self, coordinates: Sequence[float]) -> None:
        """Sets the trainable parameters to the origin plus the coordinates times the directions, and the buffers."""
        for part in self._parts:
            part.move(coordinates)
        self.reset_buffers()
        if self._between is not None:
            self.is_at_network = self._between.move(coordinates)

    def reset_buffers(self) -> None:
        self.is_at_network = False
        for targets, values in self._fused_buffers:
            torch._foreach_copy_(targets, values)

    def set_state(self, parameters: State, buffers: State | None) -> None:
        """Sets every parameter, and the buffers unless None, to the given values."""
        for name, target in self._parameters.items():
            set_values(target, to_tensor(parameters[name]))
        self.reset_buffers()
        if buffers is not None:
            for name, target in self._buffers.items():
                set_values(target, to_tensor(buffers[name]))

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """Returns the name of a parameter, of tied ones the first; None for a tensor that is no whole one."""
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        known = self._parameters.items()
        return next((name for name, own in known if (own.data_ptr(), own.shape, own.stride()) == place), None)

    def return_to_origin(self) -> None:
        """Sets every parameter and buffer, the frozen ones too, to the origin's."""
        for name, values in self._fixed.items():
            set_values(self._parameters[name], values)
        for part in self._parts:
            part.move(())
        self.reset_buffers()

    def check_in_place(self, network: nn.Module) -> None:
        """Checks, after a forward pass, that the network still computes with the tensors that are moved here."""
        now = {info.name: tensor for info, tensor in named_tensors(network) if info.role == "parameter"}
        replaced = [
            name
            for name, target in self._parameters.items()
            if target.numel() and (name not in now or now[name].data_ptr() != target.data_ptr())
        ]
        if replaced:
            raise CallbackFunctionError(
                f"the network that callback_fn returned replaces its weights while it computes ({replaced[0]!r} and "
                f"{len(replaced) - 1} others), so they cannot be moved. Hooks that bring weights to a device or cast "
                "them for each forward pass do that; of Accelerate's, those of device_map are supported. Remove the "
                "others (accelerate.hooks.remove_hook_from_module(network, recurse=True))."
            )

    def _grouped(self, infos: Iterable[TensorInfo]) -> list[list[TensorInfo]]:
        """Returns tensors that are moved together: on one device of several, large or small, in one precision."""
        groups: dict[tuple[torch.device, bool, bool], list[TensorInfo]] = {}
        for info in infos:
            tensor = (self._parameters if info.role == "parameter" else self._buffers)[info.name]
            groups.setdefault((tensor.device, _is_large(info), info.dtype == "float64"), []).append(info)
        return list(groups.values())


class _Direct:
    """Large tensors, moved where they are; the states are the origin and the directions, each an array per target."""

    def __init__(self, targets: list[torch.Tensor], states: Sequence[Sequence[NDArray[Any]]]) -> None:
        self._targets = targets
        # The same strides as the targets let PyTorch fuse all tensors into one kernel.
        arrays = [[_like(target, array) for target, array in zip(targets, state, strict=True)] for state in states]
        self._origin, *self._directions = arrays

    def move(self, coordinates: Sequence[float]) -> None:
        """Sets the targets to a point; without coordinates, to the origin."""
        torch._foreach_copy_(self._targets, self._origin)
        for coordinate, direction in zip(coordinates, self._directions, strict=bool(coordinates)):
            torch._foreach_add_(self._targets, direction, alpha=float(coordinate))


class _Stage:
    """Small tensors, and those of low precision: moved side by side in one vector, then copied to their places."""

    def __init__(
        self, targets: list[torch.Tensor], dtype: torch.dtype, states: Sequence[Sequence[NDArray[Any]]]
    ) -> None:
        self._targets = targets
        size, place = sum(target.numel() for target in targets), targets[0].device
        place = float64_device(place) if dtype == torch.float64 else place
        self._vector, self._origin, *self._directions = (
            torch.empty(size, dtype=dtype, device=place) for _ in range(len(states) + 1)
        )
        self._views = _views(self._vector, targets)
        for vector, state in zip((self._origin, *self._directions), states, strict=True):
            for view, array in zip(_views(vector, targets), state, strict=True):
                view.copy_(to_tensor(array))

    def move(self, coordinates: Sequence[float]) -> None:
        self._vector.copy_(self._origin)
        for coordinate, direction in zip(coordinates, self._directions, strict=bool(coordinates)):
            self._vector.add_(direction, alpha=float(coordinate))
        views = self._views
        if self._vector.device != self._targets[0].device:  # which has no float64
            views = [view.to(target.dtype) for view, target in zip(views, self._targets, strict=True)]
        torch._foreach_copy_(self._targets, views)


def _views(vector: torch.Tensor, targets: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns consecutive pieces of a vector in the shapes and, where they are dense, the strides of the targets."""
    ends = itertools.accumulate(target.numel() for target in targets)
    return [
        vector.as_strided(target.shape, torch.empty_like(target, device="meta").stride(), end - target.numel())
        for target, end in zip(targets, ends, strict=True)
    ]


def _is_large(info: TensorInfo) -> bool:
    return info.size > _SMALL and info.dtype in ("float32", "float64")


def _like(target: torch.Tensor, array: NDArray[Any]) -> torch.Tensor:
    return torch.empty_like(target).copy_(to_tensor(array))


class _Between:
    """The buffers that change between a plane's networks; groups name the interpolated ones, a list per device."""

    def __init__(
        self, between: BuffersBetween, buffers: dict[str, torch.Tensor], groups: Sequence[Sequence[str]]
    ) -> None:
        self._between = between
        targets = {name: collapsed(buffers[name]) for name in between.names}
        self._stages = []
        for names in groups:
            # An expanded buffer repeats values, which its memory holds once.
            parts = {name: tuple(map(slice, collapsed(buffers[name]).shape)) for name in names}
            corners = [[corner[name][part] for name, part in parts.items()] for corner in between.corners]
            nothing = [np.zeros_like(array) for array in corners[0]]
            self._stages.append(_Stage([targets[name] for name in names], torch.float64, [nothing, *corners]))
        self._vectors = [targets[name] for name in between.vectors]
        self._targets = list(targets.values())
        self._networks = [
            [collapsed(_like(buffers[name], network[name]), buffers[name]) for name in targets]
            for network in between.networks
        ]

    def move(self, coordinates: Sequence[float]) -> bool:
        """Sets the buffers to those of a point; returns whether a network lies there."""
        network = self._between.network_at(coordinates)
        if network is not None:
            torch._foreach_copy_(self._targets, self._networks[network])
            return True
        for stage in self._stages:
            stage.move(inside_corners(coordinates))
        for vector in self._vectors:
            vector.div_(vector.norm().clamp(min=torch.finfo(vector.dtype).tiny))
        return False
