"""A user's network while it is differentiated: at any weights, in at least float32, and as it was found in the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from collectors.networks.torch_network import named_tensors, tied_tensors, to_tensor
from collectors.networks.weight_space import State

from ...curvature.products import Layout
from ...measuring.totals import Total
from ...samples.batches import Batch, map_batch
from ..gradients import own_tensor
from ..settings import at_least_float32
from ..snapshot import collapsed, set_values

_LOW = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class DifferentiatedNetwork:
    """What an evaluator gives of its network, which is in eval mode where it computes, and of its loss."""

    module: nn.Module
    forward: Callable[..., Any]
    total: Total
    batches: Callable[[int | None], Sequence[Batch]]  # from a batch size; None gives the data set's own batches
    batch_size: int | None  # of the plan; None where the data set's own batches are kept
    settings: Callable[[], contextlib.AbstractContextManager[None]]  # makes the context in which everything is computed
    devices: tuple[torch.device, ...]
    start_batch: Callable[[int], None]  # is called with a batch's number before it is computed


class MovedNetwork:
    """A network that is moved in place; one in bfloat16 or float16 is computed in float32 meanwhile."""

    def __init__(self, network: DifferentiatedNetwork) -> None:
        self._network = network
        entries = named_tensors(network.module)
        self._tensors = {info.name: tensor for info, tensor in entries}
        self._buffers = {info.name for info, _ in entries if info.role == "buffer"}
        trainable = [info for info, _ in entries if info.trainable and info.size]
        tied = tied_tensors(network.module, entries)
        self._found = [
            (tensor, tensor.data, collapsed(tensor.detach()).clone())
            for tensor in [*self._tensors.values(), *(tensor for _, tensor in tied)]
        ]
        self._weights = Weights({info.name: self._tensors[info.name] for info in trainable}, tied)
        dtypes = {tensor.dtype for tensor in self._weights.own}
        self._layout = Layout(
            tuple(info.name for info in trainable),
            tuple(info.shape for info in trainable),
            "float64" if torch.float64 in dtypes else "float32",
        )
        low = [tensor for tensor in self._tensors.values() if tensor.dtype in _LOW]
        self._is_widened = bool(low)
        for tensor in low:
            tensor.data = tensor.data.float()
        if low:
            self._weights.follow()

    @property
    def layout(self) -> Layout:
        return self._layout

    def move(self, parameters: State, buffers: State | None) -> None:
        with torch.no_grad():
            for name, target in self._tensors.items():
                state = buffers if name in self._buffers else parameters
                if state is not None:
                    set_values(target, to_tensor(state[name]))

    def close(self) -> None:
        self._weights.close()
        with torch.no_grad():
            while self._found:
                tensor, data, values = self._found.pop()
                if tensor.data_ptr() != data.data_ptr():
                    tensor.data = data
                collapsed(tensor.detach()).copy_(values)

    def _fitting(self, batch: Batch) -> Batch:
        batch = map_batch(own_tensor, batch)
        return map_batch(at_least_float32, batch) if self._is_widened else batch


@dataclass(frozen=True)
class _Tied:
    """A parameter or a buffer in the memory of a weight."""

    tensor: torch.Tensor
    weight: int  # the number of the weight
    elements: torch.Tensor  # which of the weight's elements, in the order of its shape, stands where in the tensor
    was_trainable: bool


class Weights:
    """Differentiates by weights; what is tied to one (parameters and buffers in its memory) belongs to it."""

    def __init__(self, own: Mapping[str, torch.Tensor], tied: Sequence[tuple[str, torch.Tensor]]) -> None:
        # ``decoder.weight = nn.Parameter(encoder.weight.t())`` is a parameter of its own for PyTorch, which returns its
        # derivatives apart; in memory it is the other weight, which moves with it. So they belong to that one.
        self.own = list(own.values())
        numbers = {name: number for number, name in enumerate(own)}
        self._tied = [
            _Tied(tensor, numbers[name], _elements(own[name], tensor), tensor.requires_grad)
            for name, tensor in tied
            if name in numbers
        ]
        for item in self._tied:
            item.tensor.requires_grad_()

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The parameters of all weights, and after them what is tied to one."""
        return [*self.own, *(item.tensor for item in self._tied)]

    def spread(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns a vector in the shapes of the weights as one in the shapes of all tensors."""
        return [*parts, *(parts[item.weight].reshape(-1)[item.elements] for item in self._tied)]

    def gathered(self, parts: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Returns derivatives by all tensors as those by the weights; None where there are none."""
        found = [None if part is None else part.detach() for part in parts]
        result = found[: len(self.own)]
        for item, part in zip(self._tied, found[len(self.own) :], strict=True):
            if part is not None:
                own = self.own[item.weight]
                moved = part.new_empty(own.numel())
                moved[item.elements] = part
                before = result[item.weight]
                result[item.weight] = moved.view(own.shape) if before is None else before + moved.view(own.shape)
        return result

    def gradient(self, value: torch.Tensor) -> list[torch.Tensor | None]:
        """Returns the derivatives of a number by the weights; its graph is used up."""
        return self.gathered(torch.autograd.grad(value, self.tensors, allow_unused=True))

    def flat(self, parts: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Returns derivatives by the weights side by side, shape (weights,); None is zero."""
        filled = zip(parts, self.own, strict=True)
        return torch.cat(
            [(torch.zeros_like(own) if part is None else part).detach().reshape(-1) for part, own in filled]
        )

    def follow(self) -> None:
        """Lets tied tensors lie in the memory that their weights have now."""
        for item in self._tied:
            item.tensor.data = self.own[item.weight].data.as_strided(item.tensor.shape, item.tensor.stride())

    def close(self) -> None:
        for item in self._tied:
            item.tensor.requires_grad_(item.was_trainable)


def _elements(weight: torch.Tensor, tied: torch.Tensor) -> torch.Tensor:
    numbers = torch.empty_strided(weight.shape, weight.stride(), dtype=torch.int64)
    numbers.copy_(torch.arange(weight.numel()).view(weight.shape))
    elements: torch.Tensor = numbers.as_strided(tied.shape, tied.stride()).contiguous().to(weight.device)
    return elements
