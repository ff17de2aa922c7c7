"""Puts a user's module back as it was found, bit for bit (PyTorch)."""

from __future__ import annotations

import torch
from torch import nn


class FoundModule:
    """A user's module, brought to a device for a while.

    Args:
        module: the network, or a loss that is a module.
        device: where it is needed.
        restore: whether ``put_back`` will be asked for; without it nothing is copied.
    """

    def __init__(self, module: nn.Module, device: torch.device, *, restore: bool) -> None:
        self._values: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._parameters: list[tuple[nn.Parameter, torch.Tensor, torch.Tensor | None]] = []
        self._buffers: list[tuple[nn.Module, str, torch.Tensor]] = []
        self._modes: list[tuple[nn.Module, bool]] = []
        if restore:
            self._remember(module, device)
        if any(tensor.device != device for tensor in (*module.parameters(), *module.buffers())):
            module.to(device)

    def put_back(self) -> None:
        """Makes the module what it was when it came; a second call does nothing."""
        with torch.no_grad():
            for target, value in self._values:
                collapsed(target).copy_(value)
            # What was moved to the device left its own storage untouched; a network may also replace its buffers.
            for parameter, data, gradient in self._parameters:
                parameter.data = data
                parameter.grad = gradient
            for layer, name, buffer in self._buffers:
                layer._buffers[name] = buffer
            for layer, training in self._modes:
                layer.training = training
        self._values, self._parameters, self._buffers, self._modes = [], [], [], []

    def _remember(self, module: nn.Module, device: torch.device) -> None:
        self._modes = [(layer, layer.training) for layer in module.modules()]
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.device == device:
                self._values.append((tensor.detach(), collapsed(tensor.detach()).clone()))
        for parameter in module.parameters():
            if parameter.device != device:
                self._parameters.append((parameter, parameter.data, parameter.grad))
                parameter.grad = None
        for layer in module.modules():
            for name, buffer in layer._buffers.items():
                if buffer is not None:
                    self._buffers.append((layer, name, buffer))


def collapsed(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """Returns a view in which each element in memory occurs once.

    An expanded tensor (``torch.arange(n).expand(batch, n)`` as a buffer) cannot be written to as it is.

    Args:
        tensor: of which a view is taken.
        like: the expanded tensor of the same shape whose repeated axes are meant; None means itself.
    """
    template = tensor if like is None else like
    for axis, (stride, size) in enumerate(zip(template.stride(), template.shape, strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
