"""A user's network as it was found: put on a device in eval mode, and restored bit for bit (PyTorch)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from collectors.networks.weight_space import some_names

from ..errors import CallbackFunctionError


class NetworkSnapshot:
    """A user's module as it was found, to be put on a device (None: left in place) and, if asked for, restored."""

    def __init__(self, module: nn.Module, device: torch.device | None, *, restore: bool) -> None:
        self._module = module
        self._device = device
        tensors = (*module.parameters(), *module.buffers()) if restore else ()
        layers = list(module.modules()) if restore else []
        self._modes = [(layer, layer.training) for layer in layers]
        self._values = [
            (tensor.detach(), collapsed(tensor.detach()).clone())
            for tensor in tensors
            if tensor.device == device or (device is None and not tensor.is_meta)
        ]
        parameters = module.parameters() if restore and device is not None else ()
        self._moved = [(item, item.data, item.grad) for item in parameters if item.device != device]
        # Hooks that bring weights for a forward pass replace the parameters each time; a network may replace buffers.
        self._entries = [(layer, dict(layer._parameters), dict(layer._buffers)) for layer in layers]

    def apply(self) -> None:
        tensors = (*self._module.parameters(), *self._module.buffers())
        if self._device is not None and any(tensor.device != self._device for tensor in tensors):
            for parameter, _, _ in self._moved:
                parameter.grad = None
            self._module.to(self._device)
        evaluate_mode(self._module)

    def restore(self) -> None:
        for layer, training in self._modes:
            if _switches(layer) and layer.training != training:
                layer.train(training)  # its own, which may do more
        for layer, training in self._modes:
            layer.training = training
        with torch.no_grad():
            for target, value in self._values:
                collapsed(target).copy_(value)
        # What was moved to the device left its own storage untouched.
        for parameter, data, gradient in self._moved:
            if parameter.data.data_ptr() != data.data_ptr():
                parameter.data = data
            parameter.grad = gradient
        for layer, parameters, buffers in self._entries:
            layer._parameters.update(parameters)
            layer._buffers.update(buffers)


def collapsed(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """Returns a view in which each element in memory occurs once; ``like`` may show which axes are expanded."""
    # An expanded tensor (``torch.arange(n).expand(batch, n)`` as a buffer) cannot be written to as it is.
    template = tensor if like is None else like
    for axis, (stride, size) in enumerate(zip(template.stride(), template.shape, strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def set_values(target: torch.Tensor, values: torch.Tensor) -> None:
    """Sets a tensor's values; a buffer or a frozen parameter may be an expanded tensor."""
    collapsed(target).copy_(collapsed(values, target))


@contextlib.contextmanager
def values_kept(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    places = [collapsed(tensor.detach()) for tensor in tensors]
    before = [place.clone() for place in places]
    try:
        yield
    finally:
        with torch.no_grad():
            for place, value in zip(places, before, strict=True):
                place.copy_(value)


def evaluate_mode(module: nn.Module) -> None:
    """Puts a network into eval mode; CallbackFunctionError where that changes its weights, which are put back."""
    if not any(map(_switches, module.modules())):
        module.eval()
        return
    # A tensor on the meta device has no values here; accelerate brings them for each forward pass.
    names = [name for name, tensor in module.named_parameters() if not tensor.is_meta]
    found = NetworkSnapshot(module, None, restore=True)
    module.eval()
    # A layer may have put another parameter in the place of one.
    now = dict(module.named_parameters())
    values = dict(zip(names, (value for _, value in found._values), strict=False))  # behind them are those of buffers
    changed = [key for key, value in values.items() if key not in now or _differ(collapsed(now[key].detach()), value)]
    if not changed:
        return
    found.restore()
    raise CallbackFunctionError(
        f"the network's eval() changes its weights ({some_names(changed)}), as layers do that merge a low-rank part "
        "into their weight, so that no plane moves what it computes with. It was left as it was. Switch merging off "
        "(loralib: merge_weights=False), or merge once and save the merged weights."
    )


def _switches(layer: nn.Module) -> bool:
    kind = type(layer)
    return kind.train is not nn.Module.train or kind.eval is not nn.Module.eval


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return True
    # A weight that is no number is still the same one.
    return bool(((one != other) & ~(one.isnan() & other.isnan())).any())
