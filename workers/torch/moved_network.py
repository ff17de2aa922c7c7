"""A user's network while it is differentiated: at any weights, in at least float32, and as it was found in the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from collectors.networks.torch_network import named_tensors, tied_tensors, to_tensor
from collectors.networks.weight_space import State

from ..curvature.products import Layout
from ..measuring.totals import Total
from ..samples.batches import Batch, map_batch
from .gradients import own_tensor
from .moves import collapsed
from .precision import at_least_float32
from .weights import Weights

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
        self._is_buffer = {info.name: info.role == "buffer" for info, _ in entries}
        trainable = [info for info in (info for info, _ in entries) if info.trainable and info.size]
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
                state = buffers if self._is_buffer[name] else parameters
                if state is not None:
                    collapsed(target).copy_(collapsed(to_tensor(state[name]), target))

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
