"""Which axes of a JAX network's arrays number the filters of their layers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

# Flax's names of what has no filters, however many axes it has: attention's biases, scales of normalization layers.
_WITHOUT_FILTERS = ("bias", "scale")
_PROJECTIONS = ("query", "key", "value")


def filter_axes_of_tree(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Returns the filter axes of arrays, by their paths (joined by dots), from nothing but names and shapes."""
    return {name: _axes(name, shape, shapes) for name, shape in shapes.items()}


def filter_axes_of_module(module: Any) -> dict[str, tuple[int, ...]]:
    """Returns the filter axes of those kernels of a flax.nnx.Module whose layer says more than their shape does."""
    nnx = sys.modules["flax.nnx"]
    found: dict[str, tuple[int, ...]] = {}
    for path, layer in nnx.iter_graph(module):
        kernel = ".".join(map(str, (*path, "kernel")))
        if isinstance(layer, nnx.ConvTranspose) and layer.transpose_kernel:
            found[kernel] = (layer.kernel[...].ndim - 2,)
        elif isinstance(layer, nnx.LinearGeneral):
            count, batches = layer.kernel[...].ndim, len(layer.batch_axis)
            found[kernel] = (*range(batches), *range(count - len(layer.out_features), count))
        elif isinstance(layer, nnx.Einsum):
            letters, outputs = layer.einsum_str.replace(" ", "").split(",")[1].split("->")
            if "." not in letters:
                axes = tuple(axis for axis, letter in enumerate(letters) if letter in outputs)
                found[kernel] = axes or (len(letters) - 1,)
    return found


def _axes(name: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    layer, _, key = name.rpartition(".")
    count = len(shape)
    if count < 2 or key in _WITHOUT_FILTERS:
        return ()
    if key == "embedding":
        return (0,)  # a row for each entry
    # A kernel's outputs are its last axis, or as many as the bias has: kernels of Flax's attention are (inputs, heads,
    # entries), and ``nn.scan`` puts an axis of the layers in front.
    bias = tuple(shapes.get(f"{layer}.bias" if layer else "bias", ()))
    if 2 <= len(bias) < count:
        if shape[-len(bias) :] == bias:
            return tuple(range(count - len(bias), count))
        if (shape[0], shape[-1]) == (bias[0], bias[-1]):
            return (0, count - 1)
    if not bias and key == "kernel" and count == 3 and layer.rpartition(".")[2] in _PROJECTIONS:
        return (1, 2)
    return (count - 1,)
