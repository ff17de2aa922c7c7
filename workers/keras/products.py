"""Keras' products of the Hessian, by the derivatives of its back end, share by share of the samples."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from collectors.networks.batches import call_network
from collectors.networks.keras_network import to_array

from ..curvature.products import Vector
from ..measuring.measured_set import MeasuredSet
from ..measuring.products import ArrayProducts, WrittenGradients
from ..samples.batches import Batch
from .network import KerasNetwork


class KerasProducts(WrittenGradients, ArrayProducts):
    """Products of the Hessian, in the element types of the weights, which lie in the network's own variables."""

    framework, differentiator = "Keras", "Keras' back end"
    without_gauss_newton = "is made of PyTorch and JAX networks alone"
    refusals = (RuntimeError, LookupError, *ArrayProducts.refusals)
    to_array = staticmethod(to_array)
    _network: KerasNetwork

    def __init__(self, network: KerasNetwork, *measured: Any) -> None:
        super().__init__(network, *measured)
        self.normalizes_by_batch = network.normalizes_by_batch

    def loss_of(self, batch: Batch) -> tuple[Any, Any]:
        return self._measured.loss.differentiable(call_network(self._network.forward, batch.inputs), batch)

    @property
    def _weights(self) -> list[Any]:
        return self._network.trained(self.layout.names)


class _Torch(KerasProducts):
    def slope_of(self, batch: Batch, *, create_graph: bool = False) -> tuple[Any, Any, Sequence[Any]]:
        import torch

        with torch.enable_grad():
            value, weight = self.loss_of(batch)
            slope = torch.autograd.grad(value, self._weights, create_graph=create_graph, materialize_grads=True)
        return value, weight, slope

    def product_of(self, batch: Batch, along: Mapping[str, Vector]) -> Sequence[Any]:
        import torch

        slope = self.slope_of(batch, create_graph=True)[2]
        vectors = [torch.as_tensor(vector).to(part) for vector, part in zip(along.values(), slope, strict=True)]
        return torch.autograd.grad(slope, self._weights, vectors, materialize_grads=True)


class _TensorFlow(KerasProducts):
    def slope_of(self, batch: Batch) -> tuple[Any, Any, Sequence[Any]]:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value, weight = self.loss_of(batch)
        return value, weight, self._differentiated(tape, value)

    def product_of(self, batch: Batch, along: Mapping[str, Vector]) -> Sequence[Any]:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            slope = self.slope_of(batch)[2]
        vectors = [tf.cast(vector, part.dtype) for vector, part in zip(along.values(), slope, strict=True)]
        return self._differentiated(tape, slope, vectors)

    def _differentiated(self, tape: Any, values: Any, vectors: Any = None) -> list[Any]:
        import tensorflow as tf

        zero = tf.UnconnectedGradients.ZERO
        found = tape.gradient(values, self._weights, output_gradients=vectors, unconnected_gradients=zero)
        return [tf.convert_to_tensor(part) for part in found]  # an embedding's is sparse


class _Jax(KerasProducts):
    def __init__(self, network: KerasNetwork, measured: MeasuredSet, *settings: Any) -> None:
        from ..jax.products import Derivatives

        super().__init__(network, measured, *settings)
        loss = measured.loss

        def run(weights: Any, others: Any, inputs: Any) -> Any:
            return call_network(functools.partial(network.forward_at, weights, others), inputs)

        def total(prediction: Any, targets: Any, size: Any) -> tuple[Any, Any]:
            return loss.differentiable(prediction, Batch(None, targets, size))

        self._derivatives = measured.compiled(
            network.normalizes_by_batch, lambda: Derivatives(self.layout.names, run, total)
        )

    def loss_of(self, batch: Batch) -> Any:
        return self._derivatives.loss(*self._arguments(batch))

    def slope_of(self, batch: Batch) -> tuple[Any, Any, list[Any]]:
        return self._derivatives.slope(*self._arguments(batch))

    def product_of(self, batch: Batch, along: Mapping[str, Vector]) -> list[Any]:
        return self._derivatives.product(along, *self._arguments(batch))

    def _arguments(self, batch: Batch) -> tuple[Any, ...]:
        weights = dict(zip(self.layout.names, self._weights, strict=True))
        return weights, self._network.others, batch.inputs, batch.targets, float(batch.size)


KINDS: dict[str, type[KerasProducts]] = {"torch": _Torch, "tensorflow": _TensorFlow, "jax": _Jax}
"""Which products a back end makes."""
