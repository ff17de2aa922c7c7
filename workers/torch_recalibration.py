"""Computes normalization statistics anew on the samples (PyTorch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from .batches import Batch, call_network


def normalization_layers(network: nn.Module) -> list[_NormBase]:
    """Returns the layers that hold running statistics."""
    return [
        layer
        for layer in network.modules()
        if isinstance(layer, _NormBase) and layer.track_running_stats and layer.running_mean is not None
    ]


def recalibrate(network: Callable[..., Any], layers: Sequence[_NormBase], batches: Sequence[Batch]) -> None:
    """Sets running statistics to their cumulative average over the batches; the layers alone are in train mode.

    A batch of one sample is left out: normalization in train mode refuses it, and it would count as much as a full one.
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
