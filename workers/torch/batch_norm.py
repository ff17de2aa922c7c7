"""Batch normalization with statistics that are given, whose second derivatives cost what they must (PyTorch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class PlainBatchNorm(TorchFunctionMode):
    """While it is entered, batch normalization in eval mode is one product and one sum."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # PyTorch's second derivative takes it for one in training: a seventh of a product with ResNet-20's Hessian.
        if function is functional.batch_norm:
            made = _made(*args, **kwargs)
            if made is not None:
                return made
        return function(*args, **kwargs)


def _made(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,  # noqa: ARG001
    eps: float = 1e-5,
) -> torch.Tensor | None:
    """Returns the normalized inputs; None where PyTorch is to make them."""
    if training or running_mean is None or running_var is None:
        return None
    tensors = [item for item in (input, running_mean, running_var, weight, bias) if item is not None]
    if (
        torch._C._are_functorch_transforms_active()
        or torch.is_autocast_enabled(input.device.type)
        or any(type(item) not in (torch.Tensor, torch.nn.Parameter) for item in tensors)
        or any(item.layout != torch.strided or item.dtype != input.dtype for item in tensors)
        or input.dtype not in (torch.float32, torch.float64)
    ):
        return None
    scale = torch.rsqrt(running_var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -running_mean * scale
    if bias is not None:
        shift = shift + bias
    form = (1, -1) + (1,) * (input.ndim - 2)
    return torch.addcmul(shift.view(form), input, scale.view(form))
