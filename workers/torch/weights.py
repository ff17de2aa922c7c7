"""The weights by which a network is differentiated, each once, however many of its tensors lie in their memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch


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
