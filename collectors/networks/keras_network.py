"""Keras' reader: a ``keras.Model`` as named arrays, whichever back end holds them."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers
from numpy.typing import NDArray

from .weight_space import TensorInfo, WeightSpace, some_names

_TRANSPOSED = (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose)
_DEPTHWISE = (layers.DepthwiseConv1D, layers.DepthwiseConv2D, layers.SeparableConv1D, layers.SeparableConv2D)
_NORMALIZATIONS = (layers.BatchNormalization, layers.LayerNormalization, layers.GroupNormalization)
# What Keras numbers, besides layers.
_NUMBERED = re.compile(r"(seed_generator|variable)_\d+")
_COUNTED = re.compile(r"_\d+$")


def owns(value: object) -> bool:
    return isinstance(value, keras.Model)


def named_variables(network: Any) -> list[tuple[TensorInfo, Any]]:
    """Returns every parameter and buffer of a network with its Keras variable, in the network's order."""
    _check_readable(network)
    # What layers declare as trainable are parameters, frozen ones too; all else (moving statistics, seeds) are buffers.
    owners = {
        id(variable): layer
        for layer in network._flatten_layers(include_self=True, recursive=True)
        for variable in layer._trainable_variables
    }
    trainable = {id(variable) for variable in network.trainable_variables}
    variables = list({id(variable): variable for variable in network.variables}.values())
    result = []
    # Keras numbers layers without a name through the process (``dense_7``), here they are numbered inside the model, so
    # that the same code gives the same names whatever was built before.
    for name, variable in zip(_names(network, variables), variables, strict=True):
        is_parameter = id(variable) in owners or id(variable) in trainable
        info = TensorInfo(
            name=name,
            shape=tuple(int(length) for length in variable.shape),
            dtype=str(variable.dtype),
            role="parameter" if is_parameter else "buffer",
            trainable=id(variable) in trainable,
            filter_axes=_filter_axes(owners.get(id(variable)), variable) if is_parameter else (),
        )
        result.append((info, variable))
    return result


def describe(network: Any) -> WeightSpace:
    tensors = tuple(info for info, _ in named_variables(network))
    return WeightSpace("keras", type(network).__name__, tensors)


def read(network: Any) -> dict[str, NDArray[Any]]:
    synchronize(network)
    return {info.name: to_array(variable) for info, variable in named_variables(network)}


def synchronize(network: Any) -> None:
    """Updates the network's variables; on the JAX back end ``fit`` keeps the weights until an epoch's end, or this."""
    ask: Callable[[], None] | None = getattr(network, "jax_state_sync", None)
    if ask is not None:
        ask()


def to_array(tensor: Any) -> NDArray[Any]:
    """Returns a copy of a variable, a tensor or a number in host memory; bfloat16 stays what it is."""
    value = getattr(tensor, "value", tensor)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        # Keras' own convert_to_numpy warns with NumPy 2.
        from .torch_network import to_array as tensor_to_array

        return tensor_to_array(value)
    if hasattr(value, "numpy"):
        value = value.numpy()  # TensorFlow's own way of conversion makes NumPy 2 warn
    # A copy: JAX hands the memory itself out, and the next training step writes into it.
    return np.array(value, copy=True)


def torch_modules(network: Any) -> list[Any]:
    """Returns every PyTorch module of a network on the PyTorch back end: its layers, and what they wrap."""
    layers_of_it = network._flatten_layers(include_self=True, recursive=True)
    return list({id(module): module for layer in layers_of_it for module in layer.modules()}.values())


def _check_readable(network: Any) -> None:
    if not network.built:
        raise TypeError(
            f"network {type(network).__name__} has no weights yet; call it on one batch or build(input_shape) it first."
        )
    if keras.backend.backend() == "torch":
        names = [name for module in torch_modules(network) for name, _ in module.named_buffers(recurse=False)]
        if names:
            raise TypeError(
                f"network {type(network).__name__} wraps a PyTorch module with buffers {some_names(names)}, which "
                "Keras does not keep among its variables; use Keras' own layers in its place, or train it as a PyTorch "
                "network."
            )


def _filter_axes(layer: Any, variable: Any) -> tuple[int, ...]:
    count = len(variable.shape)
    # A GRU's bias has two axes, and so have those of attention.
    if count < 2 or variable.name == "bias" or isinstance(layer, _NORMALIZATIONS):
        return ()
    if isinstance(layer, layers.Embedding):
        return (0,)  # one token's vector, as in PyTorch
    if isinstance(layer, _TRANSPOSED):
        return (count - 2,)
    if isinstance(layer, _DEPTHWISE) and variable.name in ("kernel", "depthwise_kernel"):
        return (count - 2, count - 1)  # each input feeds depth_multiplier outputs
    if isinstance(layer, layers.EinsumDense) and variable.name == "kernel":
        # Attention's projections feed an output for each head and each entry of it.
        kernel, outputs = re.split(r",|->", layer.equation.replace(" ", ""))[1:]
        return tuple(axis for axis, letter in enumerate(kernel) if letter in outputs) or (count - 1,)
    return (count - 1,)


def _names(network: Any, variables: list[Any]) -> list[str]:
    numbered = {layer.name for layer in network._flatten_layers(recursive=True) if _is_numbered(layer)}
    given: dict[tuple[str, str], str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    uses: Counter[str] = Counter()
    names = []
    for variable in variables:
        parts = variable.path.split("/")
        if parts[0] == network.name and len(parts) > 1:
            parts = parts[1:]
        path = ""
        for part in parts:
            if (path, part) not in given:
                given[path, part] = _renumbered(part, path, numbered, counts)
            path = f"{path}/{given[path, part]}".lstrip("/")
        # Two variables of one layer may have the same name.
        uses[path] += 1
        names.append(path if uses[path] == 1 else f"{path}:{uses[path] - 1}")
    return names


def _renumbered(part: str, path: str, numbered: set[str], counts: Counter[tuple[str, str]]) -> str:
    if part not in numbered and not _NUMBERED.fullmatch(part):
        return part
    base = _COUNTED.sub("", part)
    index = counts[path, base]
    counts[path, base] += 1
    return f"{base}_{index}" if index else base


def _is_numbered(layer: Any) -> bool:
    """Returns whether a layer's name is one that Keras makes from its class, alone or behind a wrapper's word."""
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", type(layer).__name__))
    made = re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
    base = _COUNTED.sub("", layer.name)
    # conv2d ends in a letter, but a class may end in a number of its own.
    return any(text == made or text.endswith(f"_{made}") for text in (base, layer.name))
