"""PyTorch's state while something is measured: global settings, which come back afterwards, and running statistics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from collectors.networks.batches import call_network

from ..samples.batches import Batch

_FULL = ("ieee", "none")


@contextlib.contextmanager
def measurement_settings(devices: Collection[torch.device], threads: int) -> Iterator[None]:
    """No gradients, no autocast, full float32 precision, no autotuning, and a number of CPU threads.

    Args:
        devices: on which the network computes.
        threads: of the CPU.
    """
    types = sorted({device.type for device in devices})
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        # A network may enter autocast itself. Its copies of the weights are kept until the outermost autocast ends,
        # which is this one; each point has weights of its own, so nothing may be kept.
        for type_ in types:
            stack.enter_context(torch.autocast(type_, enabled=False, cache_enabled=False))
        if "cuda" in types:
            flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
            stack.enter_context(flags)
        _full_precision(stack, types)
        before = torch.get_num_threads()
        if before != threads:
            torch.set_num_threads(threads)
            stack.callback(torch.set_num_threads, before)
        yield


def _full_precision(stack: contextlib.ExitStack, types: Collection[str]) -> None:
    try:
        before = torch.get_float32_matmul_precision()
        if before != "highest":
            torch.set_float32_matmul_precision("highest")
            stack.callback(torch.set_float32_matmul_precision, before)
    except RuntimeError:
        pass  # the user has set the newer attributes, and PyTorch does not allow both
    for owner in _precision_owners(types):
        before = getattr(owner, "fp32_precision", "none")
        if before not in _FULL:
            owner.fp32_precision = "ieee"
            stack.callback(setattr, owner, "fp32_precision", before)


def _precision_owners(types: Collection[str]) -> Iterator[Any]:
    """Yields what has an ``fp32_precision`` (since PyTorch 2.9), the general before the particular."""
    backends = torch.backends
    yield backends
    if "cuda" in types:
        yield from (backends.cuda.matmul, getattr(backends.cudnn, "conv", None), getattr(backends.cudnn, "rnn", None))
    if set(types) != {"cuda"}:
        mkldnn = getattr(backends, "mkldnn", None)
        yield mkldnn
        yield from (getattr(mkldnn, name, None) for name in ("matmul", "conv", "rnn"))


def normalization_layers(network: nn.Module) -> list[_NormBase]:
    """Returns the layers that hold running statistics."""
    return [
        layer
        for layer in network.modules()
        if isinstance(layer, _NormBase) and layer.track_running_stats and layer.running_mean is not None
    ]


def recalibrate(network: Callable[..., Any], layers: Sequence[_NormBase], batches: Sequence[Batch]) -> None:
    """Sets running statistics to their cumulative average over the batches; the layers alone are in train mode.

    A batch of one sample is left out: normalization in train mode raises on it, and it would count as much as a
    full one.
    """
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.train()
        for number, batch in enumerate((batch for batch in batches if batch.size > 1), start=1):
            for layer in layers:
                # None makes batch normalization average by itself, also in a layer that is used twice in one pass.
                layer.momentum = None if isinstance(layer, _BatchNorm) else 1 / number
            call_network(network, batch.inputs)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
            layer.eval()
