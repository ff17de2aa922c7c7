"""Losses and metrics in at least float32, also of networks that compute in bfloat16 or float16 (PyTorch)."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from collectors.networks.batches import mapping_like, tuple_like

_FLOAT32_BYTES = 4
_LOSSES = {
    function
    for name, function in vars(functional).items()
    if callable(function) and (name.endswith("_loss") or name.startswith(("cross_entropy", "binary_cross_", "kl_div")))
}


def at_least_float32(value: Any) -> Any:
    """Returns a network's outputs with every tensor of fewer digits than float32 as float32.

    Containers stay what they are: lists, tuples, mappings, dataclasses, and the outputs of Transformers. What holds no
    such tensor is returned itself.
    """
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() and value.element_size() < _FLOAT32_BYTES else value
    if isinstance(value, Mapping):
        items = {key: at_least_float32(item) for key, item in value.items()}
        return value if _are_same(items.values(), value.values()) else mapping_like(value, items)
    if isinstance(value, tuple | list):
        parts = [at_least_float32(item) for item in value]
        if _are_same(parts, value):
            return value
        return parts if isinstance(value, list) else tuple_like(value, parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: at_least_float32(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if all(item is getattr(value, name) for name, item in fields.items()):
            return value
        changed = copy.copy(value)
        for name, item in fields.items():
            object.__setattr__(changed, name, item)  # it may be frozen
        return changed
    return value


def with_float32_outputs(network: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the network with outputs in at least float32."""

    def run(*inputs: Any, **named_inputs: Any) -> Any:
        return at_least_float32(network(*inputs, **named_inputs))

    return run


def with_float32_weights(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a loss whose class weights are at least float32; PyTorch takes no others beside float32 outputs."""
    if not isinstance(loss, nn.Module) or at_least_float32(loss._buffers) is loss._buffers:
        return loss
    # A shallow copy: a loss that looks at the network (a penalty on its weights) must see it move.
    changed = copy.copy(loss)
    changed._buffers = at_least_float32(loss._buffers)
    return changed


class Float32Losses(TorchFunctionMode):
    """While it is entered, the loss functions of PyTorch get what they are called with in at least float32.

    It is for networks that compute their own loss, whose outputs nobody else sees before.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls a function of PyTorch."""
        if func in _LOSSES:
            args, kwargs = at_least_float32(args), at_least_float32(kwargs or {})
        return func(*args, **(kwargs or {}))


def _are_same(first: Iterable[Any], second: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(first, second, strict=True))
