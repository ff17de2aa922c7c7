"""Losses and metrics in at least float32, also of networks that compute in bfloat16 or float16 (PyTorch)."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from collectors.networks.batches import mapping_like, tuple_like
from collectors.networks.weight_space import WeightSpace

_FLOAT32_BYTES = 4
_WITH_TF32 = (8, 0)  # the compute capability of Ampere
_LOSSES = {
    function
    for name, function in vars(functional).items()
    if callable(function) and (name.endswith("_loss") or name.startswith(("cross_entropy", "binary_cross_", "kl_div")))
}


def check_precision(precision: str, devices: Collection[torch.device], space: WeightSpace) -> None:
    """Raises ValueError where the devices cannot compute in a precision, or it would change nothing for the weights."""
    if precision == "float32":
        return
    foreign = [device for device in devices if device.type not in ("cpu", "cuda")]
    if foreign:
        raise ValueError(
            f'precision="{precision}" is available on CPUs and NVIDIA GPUs, but not on {foreign[0]}. Use '
            'precision="float32", or measure on the CPU (device_ids=[0]).'
        )
    others = 'Use precision="float32"' + (' or precision="bfloat16".' if precision == "tf32" else ".")
    gpus = [device for device in devices if device.type == "cuda"]
    if precision == "tf32" and not gpus:
        raise ValueError(
            f'precision="tf32" needs an NVIDIA GPU, but the network is measured on {", ".join(map(str, devices))}, '
            f"where there is no TensorFloat-32. {others}"
        )
    for device in gpus:
        with torch.cuda.device(device):
            capable = torch.cuda.is_bf16_supported()
            if precision == "tf32":
                capable = torch.cuda.get_device_capability() >= _WITH_TF32
        if not capable:
            raise ValueError(
                f'precision="{precision}" is not available on {device} ({torch.cuda.get_device_name(device)}). {others}'
            )
    types = {info.dtype for info in space.parameters}
    changed = {"float32"} if precision == "tf32" else {"float32", "float16"}
    if not types & changed:
        raise ValueError(
            f'precision="{precision}" changes nothing: the weights are in {" and ".join(sorted(types))}. Use '
            'precision="float32", which leaves a network as it was built, or convert it (network.float()).'
        )


@contextlib.contextmanager
def in_bfloat16(types: Collection[str]) -> Iterator[None]:
    """Autocast on devices of some types; it keeps no copies of weights, because each point has weights of its own."""
    with contextlib.ExitStack() as stack:
        for type_ in types:
            stack.enter_context(torch.autocast(type_, torch.bfloat16, cache_enabled=False))
        yield


def at_least_float32(value: Any) -> Any:
    """Returns outputs with each tensor of fewer digits than float32 as float32; what has no such tensor, itself."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() and value.element_size() < _FLOAT32_BYTES else value
    if isinstance(value, Mapping):
        items = dict(value.items())
    elif isinstance(value, tuple | list):
        items = dict(enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        return value
    wide = {key: at_least_float32(item) for key, item in items.items()}
    if all(wide[key] is item for key, item in items.items()):
        return value
    if isinstance(value, Mapping):
        return mapping_like(value, wide)
    if isinstance(value, tuple | list):
        return list(wide.values()) if isinstance(value, list) else tuple_like(value, list(wide.values()))
    changed = copy.copy(value)
    for name, item in wide.items():
        object.__setattr__(changed, name, item)  # it may be frozen
    return changed


def with_float32_weights(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a loss whose class weights are at least float32; PyTorch takes no others beside float32 outputs."""
    if not isinstance(loss, nn.Module) or at_least_float32(loss._buffers) is loss._buffers:
        return loss
    # A shallow copy: a loss that looks at the network (a penalty on its weights) must see it move.
    changed = copy.copy(loss)
    changed._buffers = at_least_float32(loss._buffers)
    return changed


class Float32Losses(TorchFunctionMode):
    """While it is entered, PyTorch's loss functions get at least float32, for networks that compute their own loss."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _LOSSES:
            args, kwargs = at_least_float32(args), at_least_float32(kwargs or {})
        return func(*args, **(kwargs or {}))
