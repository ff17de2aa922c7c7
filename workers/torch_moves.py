"""Moves a PyTorch network through weight space, in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from collectors.network_state import State, TensorInfo, WeightSpace
from collectors.torch_state import named_tensors, to_tensor, unwrap

from .torch_restore import collapsed


class NetworkInPlace:
    """A network whose parameters move along directions in place; storage, strides, types and ties stay.

    Args:
        network: the user's network, already on its device.
    """

    def __init__(self, network: nn.Module) -> None:
        entries = named_tensors(network)
        self.space = WeightSpace("torch", type(unwrap(network)).__name__, tuple(info for info, _ in entries))
        self.axes: int | None = None
        """Of the loaded plane; None before ``load``."""
        self._parameters = {info.name: tensor.detach() for info, tensor in entries if info.role == "parameter"}
        self._buffers = {info.name: tensor.detach() for info, tensor in entries if info.role == "buffer"}
        self._infos = {info.name: info for info, _ in entries}
        trainable = [info for info in self.space.trainable if info.size]
        self._direct = [info for info in trainable if info.dtype in ("float32", "float64")]
        self._cast = [info for info in trainable if info.dtype not in ("float32", "float64")]

    def load(self, origin: State, directions: Sequence[State], buffers: State) -> None:
        """Puts origin and directions on the device, in the parameters' own memory layout."""
        self._origin_state = {name: to_tensor(origin[name]) for name in self._parameters}
        self._origin_buffers = {name: self._like(target, buffers[name]) for name, target in self._buffers.items()}
        self._fused_buffers = (
            [collapsed(target) for target in self._buffers.values()],
            [collapsed(self._origin_buffers[name], target) for name, target in self._buffers.items()],
        )
        self._targets = [[self._parameters[info.name] for info in group] for group in (self._direct, self._cast)]
        self._origins = [[self._wide(info, origin) for info in group] for group in (self._direct, self._cast)]
        self._directions = [
            [[self._wide(info, direction) for info in group] for direction in directions]
            for group in (self._direct, self._cast)
        ]
        self._scratch = [torch.empty_like(tensor) for tensor in self._origins[1]]
        self.axes = len(directions)
        self.return_to_origin()

    def move(self, coordinates: Sequence[float]) -> None:
        """Sets the trainable parameters to the origin plus the coordinates times the directions."""
        self._displace(self._targets[0], 0, coordinates)
        if self._cast:
            self._displace(self._scratch, 1, coordinates)
            torch._foreach_copy_(self._targets[1], self._scratch)

    def reset_buffers(self) -> None:
        """Sets the buffers to the origin's."""
        if self._buffers:
            torch._foreach_copy_(*self._fused_buffers)

    def set_state(self, parameters: State, buffers: State | None) -> None:
        """Sets every parameter, and the buffers unless None, to the given values."""
        for name, target in self._parameters.items():
            target.copy_(to_tensor(parameters[name]))
        self.reset_buffers()
        if buffers is not None:
            for name, target in self._buffers.items():
                collapsed(target).copy_(collapsed(to_tensor(buffers[name]), target))

    def return_to_origin(self) -> None:
        """Sets every parameter and buffer, the frozen ones too, to the origin's."""
        for name, target in self._parameters.items():
            target.copy_(self._origin_state[name])
        self.reset_buffers()

    def _displace(self, targets: list[torch.Tensor], group: int, coordinates: Sequence[float]) -> None:
        if not targets:
            return
        torch._foreach_copy_(targets, self._origins[group])
        for coordinate, direction in zip(coordinates, self._directions[group], strict=True):
            torch._foreach_add_(targets, direction, alpha=float(coordinate))

    def _wide(self, info: TensorInfo, state: State) -> torch.Tensor:
        dtype = torch.float64 if info.dtype == "float64" else torch.float32
        return self._like(self._parameters[info.name], state[info.name], dtype)

    @staticmethod
    def _like(target: torch.Tensor, array: object, dtype: torch.dtype | None = None) -> torch.Tensor:
        # The same strides as the target let PyTorch fuse all tensors into one kernel.
        result = torch.empty_like(target, dtype=dtype or target.dtype)
        return result.copy_(to_tensor(array))  # type: ignore[arg-type]
