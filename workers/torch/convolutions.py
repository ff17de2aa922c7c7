"""Convolutions whose second derivatives cost what they must (PyTorch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class _Form:
    """What PyTorch's own operator takes beside tensors, one number for each axis."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, self.transposed, self.output_padding, self.groups


class _Convolution(torch.autograd.Function):
    """Inputs with weights. With the two below it is closed under derivatives: each is linear in both its tensors."""

    @staticmethod
    def forward(
        context: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, form: _Form
    ) -> torch.Tensor:
        context.save_for_backward(inputs, weight)
        context.form = form
        made: torch.Tensor = torch.ops.aten.convolution(inputs, weight, bias, *form.arguments)
        return made

    @staticmethod
    def backward(context: Any, *slopes: torch.Tensor) -> Any:
        inputs, weight = context.saved_tensors
        (slope,), wanted = slopes, context.needs_input_grad
        return (
            _apply(_ForInputs, slope, weight, inputs.detach(), context.form) if wanted[0] else None,
            _apply(_ForWeight, inputs, slope, weight.detach(), context.form) if wanted[1] else None,
            slope.sum([0, *range(2, slope.ndim)]) if wanted[2] else None,
            None,
        )


class _ForInputs(torch.autograd.Function):
    """The derivative by the inputs: outputs' slopes with weights."""

    @staticmethod
    def forward(
        context: Any, slope: torch.Tensor, weight: torch.Tensor, inputs: torch.Tensor, form: _Form
    ) -> torch.Tensor:
        context.save_for_backward(slope, weight)
        context.form = form
        mask = [True, False, False]
        made = torch.ops.aten.convolution_backward(slope, inputs, weight, None, *form.arguments, mask)
        found: torch.Tensor = made[0]
        return found

    @staticmethod
    def backward(context: Any, *moves: torch.Tensor) -> Any:
        slope, weight = context.saved_tensors
        (move,), wanted = moves, context.needs_input_grad
        return (
            _apply(_Convolution, move, weight, None, context.form) if wanted[0] else None,
            _apply(_ForWeight, move, slope, weight.detach(), context.form) if wanted[1] else None,
            None,
            None,
        )


class _ForWeight(torch.autograd.Function):
    """The derivative by the weights: inputs with outputs' slopes."""

    @staticmethod
    def forward(
        context: Any, inputs: torch.Tensor, slope: torch.Tensor, weight: torch.Tensor, form: _Form
    ) -> torch.Tensor:
        context.save_for_backward(inputs, slope)
        context.form = form
        mask = [False, True, False]
        made = torch.ops.aten.convolution_backward(slope, inputs, weight, None, *form.arguments, mask)
        found: torch.Tensor = made[1]
        return found

    @staticmethod
    def backward(context: Any, *moves: torch.Tensor) -> Any:
        inputs, slope = context.saved_tensors
        (move,), wanted = moves, context.needs_input_grad
        return (
            _apply(_ForInputs, slope, move, inputs.detach(), context.form) if wanted[0] else None,
            _apply(_Convolution, inputs, move, None, context.form) if wanted[1] else None,
            None,
            None,
        )


def _apply(function: Any, *arguments: Any) -> Any:
    return function.apply(*arguments)


_AXES: Mapping[Any, tuple[int, bool]] = {
    torch.conv1d: (1, False),
    torch.conv2d: (2, False),
    torch.conv3d: (3, False),
    torch.conv_transpose1d: (1, True),
    torch.conv_transpose2d: (2, True),
    torch.conv_transpose3d: (3, True),
}


class OwnConvolutions(TorchFunctionMode):
    """While it is entered, convolutions have derivatives by what needs them alone."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # PyTorch's second derivative makes the one by the inputs also where these are data, by a slow kernel: two
        # fifths of a product with LeNet-5's Hessian.
        if function in _AXES:
            made = _made(*_AXES[function], *args, **kwargs)
            if made is not None:
                return made
        return function(*args, **kwargs)


def _made(
    axes: int,
    transposed: bool,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    *others: Any,
    **named: Any,
) -> torch.Tensor | None:
    """Returns a convolution; None where PyTorch is to make it."""
    names = ("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")
    chosen = dict(zip(names, others, strict=False)) | named
    tensors = [item for item in (input, weight, bias) if item is not None]
    if (
        isinstance(padding, str)
        or input.ndim != axes + 2
        or torch._C._are_functorch_transforms_active()
        or torch.is_autocast_enabled(input.device.type)
        or any(type(item) not in (torch.Tensor, torch.nn.Parameter) for item in tensors)
        or any(item.layout != torch.strided or item.dtype != weight.dtype for item in tensors)
        or weight.dtype not in (torch.float32, torch.float64)
    ):
        return None

    def each(value: Any) -> list[int]:
        values = [value] if isinstance(value, int) else list(value)
        return values * axes if len(values) == 1 else values

    form = _Form(
        each(stride),
        each(padding),
        each(chosen.get("dilation", 1)),
        transposed,
        each(chosen.get("output_padding", 0)),
        int(chosen.get("groups", 1)),
    )
    made: torch.Tensor = _apply(_Convolution, input, weight, bias, form)
    return made
