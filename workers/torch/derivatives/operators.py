"""Operators whose second derivatives PyTorch makes wrongly, or of more than they need, made of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_OUTPUTS, _INPUTS, _WEIGHT = range(3)


class OwnDerivatives(TorchFunctionMode):
    """While it is entered, convolutions, batch normalization in eval mode and weight normalization are made here."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        own = _OWN.get(function)
        made = None if own is None else own(*args, **kwargs)
        return function(*args, **kwargs) if made is None else made


class _Convolution(torch.autograd.Function):
    """One of a convolution's outputs, inputs and weight, made of the other two.

    The sum of all outputs times their slopes is linear in each of the three, and its derivative by one is made of the
    others; so the three are closed under derivatives.
    """

    @staticmethod
    def forward(
        context: Any,
        wanted: int,
        form: tuple[Any, ...],  # what PyTorch's own operator takes beside tensors
        outputs: torch.Tensor | None,  # or their slopes
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        # Of what is wanted the shape alone counts.
        given = [None if place == wanted else item for place, item in enumerate((outputs, inputs, weight))]
        context.save_for_backward(*given)
        context.wanted, context.form = wanted, form
        if wanted == _OUTPUTS:
            made: torch.Tensor = torch.ops.aten.convolution(inputs, weight, bias, *form)
            return made
        mask = [wanted == _INPUTS, wanted == _WEIGHT, False]
        both = torch.ops.aten.convolution_backward(outputs, inputs, weight, None, *form, mask)
        found: torch.Tensor = both[wanted - 1]
        return found

    @staticmethod
    def backward(context: Any, *slopes: torch.Tensor) -> Any:
        (slope,), (*by, by_bias) = slopes, context.needs_input_grad[2:]
        tensors = [slope if item is None else item for item in context.saved_tensors]

        def derivative(wanted: int) -> Any:
            parts = [item.detach() if place == wanted else item for place, item in enumerate(tensors)]
            return cast(Any, _Convolution).apply(wanted, context.form, *parts, None)

        found = [derivative(place) if is_needed else None for place, is_needed in enumerate(by)]
        return None, None, *found, slope.sum([0, *range(2, slope.ndim)]) if by_bias else None


def _convolution(axes: int, *, transposed: bool = False) -> Callable[..., torch.Tensor | None]:
    """Returns a function that makes convolutions of so many axes; None where PyTorch is to make one."""
    names = ("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")

    def each(value: Any) -> list[int]:
        values = [value] if isinstance(value, int) else list(value)
        return values * axes if len(values) == 1 else values

    # PyTorch's second derivative makes the one by the inputs also where these are data, by a slow kernel: two fifths of
    # a product with LeNet-5's Hessian.
    def made(
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        *others: Any,
        **named: Any,
    ) -> torch.Tensor | None:
        if isinstance(padding, str) or input.ndim != axes + 2 or not _are_plain(input, weight, bias):
            return None
        chosen = dict(zip(names, others, strict=False)) | named
        dilation, output_padding = each(chosen.get("dilation", 1)), each(chosen.get("output_padding", 0))
        form = each(stride), each(padding), dilation, transposed, output_padding, int(chosen.get("groups", 1))
        result: torch.Tensor = cast(Any, _Convolution).apply(_OUTPUTS, form, None, input, weight, bias)
        return result

    return made


def _batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,  # noqa: ARG001
    eps: float = 1e-5,
) -> torch.Tensor | None:
    """Returns inputs normalized by one product and one sum; None where PyTorch is to make them."""
    # PyTorch's second derivative takes it for one in training: a seventh of a product with ResNet-20's Hessian.
    if training or running_mean is None or running_var is None:
        return None
    if not _are_plain(input, running_mean, running_var, weight, bias):
        return None
    scale = torch.rsqrt(running_var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -running_mean * scale
    if bias is not None:
        shift = shift + bias
    form = (1, -1) + (1,) * (input.ndim - 2)
    return torch.addcmul(shift.view(form), input, scale.view(form))


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    # The second derivative of PyTorch's own operator takes the norm for a constant: its Hessian is not symmetric.
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _are_plain(input: torch.Tensor, *others: torch.Tensor | None) -> bool:
    tensors = [input, *(item for item in others if item is not None)]
    return not (
        torch._C._are_functorch_transforms_active()
        or torch.is_autocast_enabled(input.device.type)
        or any(type(item) not in (torch.Tensor, torch.nn.Parameter) for item in tensors)
        or any(item.layout != torch.strided or item.dtype != input.dtype for item in tensors)
        or input.dtype not in (torch.float32, torch.float64)
    )


_OWN: Mapping[Any, Callable[..., torch.Tensor | None]] = {
    torch.conv1d: _convolution(1),
    torch.conv2d: _convolution(2),
    torch.conv3d: _convolution(3),
    torch.conv_transpose1d: _convolution(1, transposed=True),
    torch.conv_transpose2d: _convolution(2, transposed=True),
    torch.conv_transpose3d: _convolution(3, transposed=True),
    functional.batch_norm: _batch_norm,
    torch._weight_norm: _weight_norm,
}
