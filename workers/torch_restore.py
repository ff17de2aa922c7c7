"""Puts a user's module back as it was found, bit for bit (PyTorch)."""

from __future__ import annotations

import torch
from torch import nn


class FoundModule:
    """A user's module, brought to a device for a while.

    Args:
        module: the network, or a loss that is a module.
        device: where it is needed.
        restore: whether ``put_back`` will be asked for; without it nothing is remembered.
    """

    def __init__(self, module: nn.Module, device: torch.device, *, restore: bool) -> None:
        self._module = module
        self._device = device
        tensors = (*module.parameters(), *module.buffers()) if restore else ()
        layers = list(module.modules()) if restore else []
        self._modes = [(layer, layer.training) for layer in layers]
        self._values = [
            (tensor.detach(), collapsed(tensor.detach()).clone()) for tensor in tensors if tensor.device == device
        ]
        self._moved = [
            (layer, name, parameter, parameter.data, parameter.grad)
            for layer in layers
            for name, parameter in layer._parameters.items()
            if parameter is not None and parameter.device != device
        ]
        self._buffers = [(layer, name, buffer) for layer in layers for name, buffer in layer._buffers.items()]

    def bring(self) -> None:
        """Brings the module to the device, in eval mode."""
        if any(tensor.device != self._device for tensor in (*self._module.parameters(), *self._module.buffers())):
            for _, _, parameter, _, _ in self._moved:
                parameter.grad = None
            self._module.to(self._device)
        self._module.eval()

    def put_back(self) -> None:
        """Makes the module what it was when it came."""
        with torch.no_grad():
            for target, value in self._values:
                collapsed(target).copy_(value)
        # What was moved to the device left its own storage untouched; a network may also replace its buffers.
        for layer, name, parameter, data, gradient in self._moved:
            if parameter.data.data_ptr() != data.data_ptr():
                parameter.data = data
            parameter.grad = gradient
            layer._parameters[name] = parameter
        for layer, name, buffer in self._buffers:
            layer._buffers[name] = buffer
        for layer, training in self._modes:
            layer.training = training


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
