"""Keras' products of the Hessian, by the derivatives of its back end, share by share of the samples."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.networks.batches import call_network
from collectors.networks.keras_network import to_array
from collectors.networks.weight_space import State

from ..curvature.products import SHARES, WITHOUT_GRADIENTS, Layout, ProductSettings, Vector
from ..errors import CurvatureError
from ..measuring.shares import BatchedProducts, SharedBatches
from ..measuring.totals import Total
from ..samples.batches import Batch
from ..samples.samples import Samples
from .network import NARROW, KerasNetwork

if TYPE_CHECKING:
    from jaxtyping import Float64


class KerasProducts(BatchedProducts):
    """Products of the Hessian, in the element types of the weights."""

    def __init__(
        self,
        network: KerasNetwork,
        total: Total,
        samples: Samples,
        batch_size: int | None,
        measuring: Callable[[], contextlib.AbstractContextManager[None]],
        settings: ProductSettings,
    ) -> None:
        if settings.matrix != "hessian":
            raise CurvatureError(
                f'matrix must be "hessian" for a Keras network, but is {settings.matrix!r}: the Gauss-Newton matrix is '
                "made of PyTorch and JAX networks alone."
            )
        trainable = [info for info in network.space.trainable if info.size]
        if narrow := sorted({info.dtype for info in trainable} & set(NARROW)):
            raise CurvatureError(
                f"the network's weights are {narrow[0]}, in which second derivatives are rounding; build it in "
                f"float32, into which the same checkpoints are loaded. Or {WITHOUT_GRADIENTS}."
            )
        wide = any(info.dtype == "float64" for info in trainable)
        self._layout = Layout(
            tuple(info.name for info in trainable),
            tuple(info.shape for info in trainable),
            "float64" if wide else "float32",
        )
        self._network, self._all_samples, self._measuring = network, samples, measuring
        self._before = network.read()
        kinds: dict[str, Any] = {"torch": _Torch, "tensorflow": _TensorFlow, "jax": _Jax}
        self._derivatives = kinds[network.back_end](network, total, self._layout.names)
        super().__init__(settings, batch_size, is_widened=False)

    @property
    def layout(self) -> Layout:
        return self._layout

    def move(self, parameters: State, buffers: State | None) -> None:
        self._network.write({**parameters, **(buffers or {})})

    def loss(self, share: int) -> tuple[float, float | None]:
        def add() -> tuple[float, float | None]:
            parts = [self._derivatives.loss(batch) for batch in self._batches(share)]
            weights = [weight for _, weight in parts if weight is not None]
            value = sum(float(to_array(value)) for value, _ in parts)
            return value, sum(float(to_array(weight)) for weight in weights) if weights or not parts else None

        return self._within_memory(add)

    def gradient(self, share: int) -> Float64[np.ndarray, " weights"]:
        return self._sum(share, self._derivatives.gradient)

    def product(self, vector: Vector, share: int, *, few: int = 0) -> Float64[np.ndarray, " weights"]:
        along = list(self._layout.as_state(vector).values())
        return self._sum(share, lambda batch: self._derivatives.product(batch, along))

    def close(self) -> None:
        self._network.write(self._before)

    def _sum(self, share: int, part: Callable[[Batch], Sequence[Any]]) -> Float64[np.ndarray, " weights"]:
        def add() -> Float64[np.ndarray, " weights"]:
            total = np.zeros(self._layout.dimension)
            for batch in self._batches(share):
                total += np.concatenate([np.ravel(to_array(array)) for array in part(batch)])
            return total

        return self._within_memory(add)

    def _batches(self, share: int) -> Iterator[Batch]:
        return (self._samples.batch(number) for number in self._samples.shares[share])

    def _shared(self, batch_size: int | None) -> SharedBatches:
        batches = self._all_samples.batches(None if batch_size is None else self._all_samples.count)
        return SharedBatches(batches, SHARES, whole=batch_size is None, longest=batch_size)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        with self._measuring():
            try:
                yield
            except (RuntimeError, LookupError, TypeError, ValueError, NotImplementedError) as error:
                if isinstance(error, CurvatureError):
                    raise
                raise CurvatureError(
                    f"Keras' back end cannot differentiate the network or the loss twice ({error}). "
                    f"Or {WITHOUT_GRADIENTS}."
                ) from error


class _OfVariables:
    """Derivatives where the weights lie in the network's own variables."""

    def __init__(self, network: KerasNetwork, total: Total, names: Sequence[str]) -> None:
        self._network, self._total, self._names = network, total, names

    def loss(self, batch: Batch) -> tuple[Any, Any]:
        return self._total.differentiable(call_network(self._network.forward, batch.inputs), batch)


class _Torch(_OfVariables):
    def gradient(self, batch: Batch, *, create_graph: bool = False) -> Sequence[Any]:
        import torch

        with torch.enable_grad():
            value, _ = self.loss(batch)
            weights = self._network.trained(self._names)
            return torch.autograd.grad(value, weights, create_graph=create_graph, materialize_grads=True)

    def product(self, batch: Batch, along: Sequence[Any]) -> Sequence[Any]:
        import torch

        slope = self.gradient(batch, create_graph=True)
        vectors = [torch.as_tensor(vector).to(part) for vector, part in zip(along, slope, strict=True)]
        weights = self._network.trained(self._names)
        return torch.autograd.grad(slope, weights, vectors, materialize_grads=True)


class _TensorFlow(_OfVariables):
    def gradient(self, batch: Batch) -> Sequence[Any]:
        import tensorflow as tf

        weights = self._network.trained(self._names)
        with tf.GradientTape() as tape:
            value, _ = self.loss(batch)
        slope = tape.gradient(value, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [tf.convert_to_tensor(part) for part in slope]  # an embedding's is sparse

    def product(self, batch: Batch, along: Sequence[Any]) -> Sequence[Any]:
        import tensorflow as tf

        weights = self._network.trained(self._names)
        with tf.GradientTape() as tape:
            slope = self.gradient(batch)
        vectors = [tf.cast(vector, part.dtype) for vector, part in zip(along, slope, strict=True)]
        bent = tape.gradient(
            slope, weights, output_gradients=vectors, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return [tf.convert_to_tensor(part) for part in bent]


class _Jax:
    """Derivatives of a function of the weights, compiled for each length of a batch."""

    def __init__(self, network: KerasNetwork, total: Total, names: Sequence[str]) -> None:
        import jax

        def numerator(weights: Any, others: Any, inputs: Any, targets: Any, size: Any) -> Any:
            prediction = call_network(functools.partial(network.forward_at, weights, others), inputs)
            return total.differentiable(prediction, Batch(inputs, targets, size))

        def slope(weights: Any, *batch: Any) -> Any:
            return jax.grad(lambda place: numerator(place, *batch)[0])(weights)

        def bent(weights: Any, along: Any, *batch: Any) -> Any:
            return jax.jvp(lambda place: slope(place, *batch), (weights,), (along,))[1]

        self._numerator, self._slope, self._bent = jax.jit(numerator), jax.jit(slope), jax.jit(bent)
        self._network, self._names = network, names

    def loss(self, batch: Batch) -> tuple[Any, Any]:
        result: tuple[Any, Any] = self._numerator(self._weights, *self._parts(batch))
        return result

    def gradient(self, batch: Batch) -> Sequence[Any]:
        return self._in_order(self._slope(self._weights, *self._parts(batch)))

    def product(self, batch: Batch, along: Sequence[Any]) -> Sequence[Any]:
        weights = self._weights
        vectors = {name: vector.astype(weights[name].dtype) for name, vector in zip(self._names, along, strict=True)}
        return self._in_order(self._bent(weights, vectors, *self._parts(batch)))

    @property
    def _weights(self) -> dict[str, Any]:
        return dict(zip(self._names, self._network.trained(self._names), strict=True))

    def _parts(self, batch: Batch) -> tuple[Any, ...]:
        return self._network.others, batch.inputs, batch.targets, float(batch.size)

    def _in_order(self, arrays: dict[str, Any]) -> list[Any]:
        return [arrays[name] for name in self._names]
