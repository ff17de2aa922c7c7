"""Finds the layer of a network that can be computed once for a plane, and says whether that is worth it (PyTorch)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from collectors.networks.batches import call_network, leaves

from ...hardware import free_memory
from ...measurement_plan import Workload
from ...measuring.memory_shortage import is_memory_shortage
from ...samples.batches import Batch
from ...samples.samples import Samples

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TYPES = (torch.float32, torch.float64)
# Multiplications for each output. With fewer, reading what was kept takes as long as computing it again: matrix
# products of 32 inputs are no slower than the sum, convolutions of 5 x 5 are four times as slow.
_LEAST_WORK, _LEAST_WORK_OF_PRODUCTS = 20, 64
# Of the multiplications of the whole network; with less, nobody notices.
_LEAST_SHARE = 0.05
# What is kept takes one pass of the layer for the origin and for each direction.
_LEAST_POINTS = 20
_KEPT = 4  # outputs of all samples: the origin's, two directions' and a row's
_MOST_BYTES = 512 * 2**20
_SHARE_OF_MEMORY = 0.25


def find_first_layer(
    network: nn.Module, forward: Callable[..., Any], samples: Samples, batch_size: int | None, most_bytes: float | None
) -> FirstCall | None:
    """Returns the first layer where it can be computed once for a plane; None where it cannot, or is not worth it."""
    # Shapes decide, and never a clock: every worker and every run must find the same.
    is_free = most_bytes != 0 and samples.passes is None and not samples.is_changed_on_use
    if not is_free or any(map(_is_compiled, network.modules())):
        return None
    found: FirstCall | None = None
    try:
        batches = samples.batches(batch_size)
        for batch in {0: batches[0], len(batches) - 1: batches[-1]}.values():  # the last one may have another size
            calls = _watch(network, forward, batch)
            # None takes a layer whether it is worth it or not.
            if most_bytes is not None:
                kept = _KEPT * samples.count / batch.size
                calls = [call for call in calls if call.is_worth_it and kept * call.output.nbytes <= most_bytes]
            call = max(calls, key=lambda call: call.share, default=None)
            if call is None or (found is not None and call.layer is not found.layer):
                return None
            found = call
    except Exception as error:
        if not is_memory_shortage(error):
            raise
        return None
    return found


def most_bytes_kept(limit: int | float, workload: Workload) -> float:
    """Returns how many bytes a worker may keep; the limit is in bytes (int) or a share of what is free (float)."""
    if workload.points < _LEAST_POINTS:
        return 0.0
    room = limit if isinstance(limit, int) else limit * free_memory()
    return min(_MOST_BYTES, _SHARE_OF_MEMORY * room / workload.workers)


@dataclass(frozen=True)
class FirstCall:
    """A layer's call on a batch's own tensor, and its share of the network's multiplications."""

    layer: nn.Module
    output: torch.Tensor
    share: float

    @property
    def is_worth_it(self) -> bool:
        """Whether a sum is clearly less work."""
        least = _LEAST_WORK_OF_PRODUCTS if isinstance(self.layer, nn.Linear) else _LEAST_WORK
        return _multiplications(self.layer, self.output) >= least * self.output.numel() and self.share >= _LEAST_SHARE


def _watch(network: nn.Module, forward: Callable[..., Any], batch: Batch) -> list[FirstCall]:
    """Returns the calls of layers that can be replaced in one forward pass."""
    own = Own(batch)
    fit = {layer for layer in network.modules() if _is_plain(layer)}
    seen: dict[nn.Module, list[tuple[torch.Tensor, torch.Tensor] | None]] = {}
    work: list[int] = []

    def see(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        work.append(_multiplications(layer, output))
        if layer in fit:
            # A network that switches gradients on for itself may differentiate with respect to the batch.
            is_own = len(inputs) == 1 and not named and not torch.compiler.is_compiling()
            is_own = is_own and not torch.is_grad_enabled() and own.holds(inputs[0])
            # Copied, because what follows may change it in place.
            seen.setdefault(layer, []).append((inputs[0], output.clone()) if is_own else None)

    with contextlib.ExitStack() as hooks:
        for layer in network.modules():
            if isinstance(layer, _LAYERS):
                hooks.enter_context(layer.register_forward_hook(see, with_kwargs=True))
        call_network(forward, batch.inputs)
    calls = []
    for layer, found in seen.items():
        if own.changed or len(found) != 1 or found[0] is None:
            continue
        values, output = found[0]
        again = layer.forward(values)
        # Another type would be autocast's; other values, an input that was changed where PyTorch does not see it.
        if (
            again.dtype == output.dtype
            and again.stride() == output.stride()
            and torch.allclose(again, output, equal_nan=True)
        ):
            calls.append(FirstCall(layer, output, _multiplications(layer, output) / max(1, sum(work))))
    return calls


def _multiplications(layer: nn.Module, output: object) -> int:
    weight = layer.weight
    if not isinstance(weight, torch.Tensor) or not isinstance(output, torch.Tensor) or not len(weight):
        return 0
    return output.numel() * weight[0].numel()


class Own:
    """The tensors of a batch."""

    def __init__(self, batch: Batch) -> None:
        tensors = [leaf for leaf in leaves(batch.inputs) if type(leaf) is torch.Tensor]
        self._tensors = [item for item in tensors if item.layout is torch.strided and not item.is_inference()]
        self._places = {item.untyped_storage().data_ptr() for item in self._tensors}
        self._versions = self._counted()

    def holds(self, values: object) -> bool:
        """Returns whether a layer's input lies in the memory of one of them."""
        if type(values) is not torch.Tensor or values.layout is not torch.strided or values.dtype not in _TYPES:
            return False
        return values.numel() > 0 and values.untyped_storage().data_ptr() in self._places

    @property
    def changed(self) -> bool:
        """Whether one of them was written to since."""
        return self._counted() != self._versions

    def _counted(self) -> list[int]:
        return [item._version for item in self._tensors]


def _is_plain(layer: nn.Module) -> bool:
    """Returns whether a layer does what its class says, and nothing else, with parameters of its own."""
    if type(layer) not in _LAYERS or layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False
    tensors = {name: item for name, item in layer._parameters.items() if item is not None}
    kinds = {(type(item), type(item.data), item.dtype, item.device.type) for item in tensors.values()}
    known = [{(nn.Parameter, torch.Tensor, dtype, "cpu")} for dtype in _TYPES]
    return set(tensors) in ({"weight"}, {"weight", "bias"}) and kinds in known


def _is_compiled(layer: nn.Module) -> bool:
    """Returns whether compiled code runs a part of a network, which does not see that a layer is replaced."""
    of_dynamo = type(layer).__module__.startswith("torch._dynamo")
    return of_dynamo or isinstance(layer, torch.jit.ScriptModule) or layer._compiled_call_impl is not None
