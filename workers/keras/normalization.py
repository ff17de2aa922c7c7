"""Keras' batch normalization: which layers follow the batches of a training, and computing with a batch's own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

_CHANGED = ("call", "momentum", "renorm")


def following_layers(network: Any, inputs: Any) -> list[Any]:
    """Returns the layers whose statistics follow the batches of a training, in which the network is called once.

    While Keras trains, layers that are frozen or called with ``training=False`` keep theirs.
    """
    found = []
    layers = [
        layer
        for layer in network._flatten_layers(recursive=True)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]

    def asking(layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
            found.extend([layer] if training and layer not in found else [])
            return call(inputs, training=False, mask=mask)

        return asked

    if layers:
        takes_training = "training" in network.call_signature_parameters
        with _computing(layers, asking):
            network(inputs, **({"training": True} if takes_training else {}))
    return found


@contextlib.contextmanager
def batch_statistics(layers: Sequence[Any]) -> Iterator[dict[int, Any]]:
    """Lets layers compute with the batch's statistics; gives them, by the identity of the variables that hold them."""
    found: dict[int, Any] = {}

    def averaging(layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        numbers = itertools.count(1)

        def averaged(inputs: Any, training: bool | None = None, mask: Any = None) -> Any:  # noqa: ARG001
            number, variables = next(numbers), (layer.moving_mean, layer.moving_variance)
            for variable in variables if number == 1 else ():
                variable.assign(keras.ops.zeros(variable.shape, variable.dtype))  # what is not finite would stay so
            # A layer that is used several times in a pass has their mean; batch renormalization corrects by the past.
            vars(layer).update(momentum=1 - 1 / number, renorm=False)
            outputs = call(inputs, training=True, mask=mask)
            found.update((id(variable), keras.ops.convert_to_tensor(variable)) for variable in variables)
            return outputs

        return averaged

    with _computing(layers, averaging):
        yield found


@contextlib.contextmanager
def _computing(layers: Sequence[Any], change: Callable[..., Callable[..., Any]]) -> Iterator[None]:
    """Changes what layers compute, in their own attributes, which are put back at the end."""
    before = [{name: vars(layer)[name] for name in _CHANGED if name in vars(layer)} for layer in layers]
    try:
        for layer in layers:
            vars(layer)["call"] = change(layer, layer.call)
        yield
    finally:
        for layer, attributes in zip(layers, before, strict=True):
            for name in _CHANGED:
                vars(layer).pop(name, None)
            vars(layer).update(attributes)
