"""JAX's products of the Hessian and of the generalised Gauss-Newton matrix, share by share of the samples."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import jax
import numpy as np

from collectors.networks.jax_network import NamedArrays
from collectors.networks.weight_space import State

from ..curvature.products import Matrix, ProductSettings, Vector
from ..measuring.measured_set import MeasuredSet
from ..measuring.products import ArrayProducts
from ..samples.batches import Batch
from .functions import Placement, outputs_of
from .losses import JaxTotal

_Arrays: TypeAlias = Mapping[str, Any]
_OTHER = {
    "hessian": "such as callbacks to Python and lax.while_loop",
    "ggn": 'such as outputs that are whole numbers and jax.custom_vjp, or use matrix="hessian"',
}


class Derivatives:
    """Derivatives by the weights, forwards over backwards, compiled for each length of a batch."""

    def __init__(
        self,
        names: Sequence[str],  # of the weights, in the order in which derivatives are returned
        run: Callable[..., Any],  # from weights by name, what else a network has, and inputs to outputs
        total: Callable[..., Any],  # from outputs, targets and how many samples to the sum of losses and its weight
        matrix: Matrix = "hessian",  # of which there are products
    ) -> None:
        def numerator(weights: _Arrays, rest: Any, inputs: Any, targets: Any, size: Any) -> Any:
            return total(run(weights, rest, inputs), targets, size)

        def slope(weights: _Arrays, *batch: Any) -> Any:
            return jax.value_and_grad(lambda place: numerator(place, *batch), has_aux=True)(weights)

        def hessian(along: _Arrays, weights: _Arrays, *batch: Any) -> Any:
            return jax.jvp(lambda place: slope(place, *batch)[1], (weights,), (along,))[1]

        def gauss_newton(along: _Arrays, weights: _Arrays, rest: Any, inputs: Any, targets: Any, size: Any) -> Any:
            def outputs_at(place: _Arrays) -> Any:
                return run(place, rest, inputs)

            outputs, pull = jax.vjp(outputs_at, weights)
            _, moved = jax.jvp(outputs_at, (weights,), (along,))
            bend = jax.grad(lambda outputs: total(outputs, targets, size)[0])
            return pull(jax.jvp(bend, (outputs,), (moved,))[1])[0]

        self._names = names
        self.loss = jax.jit(numerator)
        self._slope, self._product = jax.jit(slope), jax.jit({"hessian": hessian, "ggn": gauss_newton}[matrix])

    def slope(self, *batch: Any) -> tuple[Any, Any, list[Any]]:
        (value, weight), gradient = self._slope(*batch)
        return value, weight, self._on_host(gradient)

    def product(self, along: _Arrays, *batch: Any) -> list[Any]:
        return self._on_host(self._product(along, *batch))

    def _on_host(self, arrays: _Arrays) -> list[Any]:
        found = jax.device_get(arrays)
        return [found[name] for name in self._names]


class JaxProducts(ArrayProducts):
    """Products of a measured loss, with arrays placed as the network's."""

    differentiator = "JAX"

    def __init__(
        self,
        network: NamedArrays,
        measured: MeasuredSet,
        placement: Placement,
        measuring: Callable[[], contextlib.AbstractContextManager[None]],
        settings: ProductSettings,
    ) -> None:
        self._space, self._placement = network.space, placement
        self.remedy = f"Replace what it names, {_OTHER[settings.matrix]}. "
        super().__init__(network.space, measured, measuring, settings)

        def run(weights: _Arrays, fixed: _Arrays, inputs: Any) -> Any:
            return outputs_of(network, {**fixed, **weights}, inputs)

        loss = cast(JaxTotal, measured.loss)
        self._derivatives = measured.compiled(
            settings.matrix, lambda: Derivatives(self.layout.names, run, loss.numerator, settings.matrix)
        )
        arrays = {name: np.asarray(value) for name, value in network.arrays.items()}
        self.move(arrays, arrays)

    def move(self, parameters: State, buffers: State | None) -> None:
        fixed = {info.name: parameters[info.name] for info in self._space.parameters if info.name not in self.dtypes}
        if buffers is not None:
            self._buffers = {info.name: buffers[info.name] for info in self._space.buffers}
        place = self._placement.place_arrays
        with self._measuring():
            self._fixed = place(fixed | self._buffers)
            self._weights = place({name: np.asarray(parameters[name], dtype) for name, dtype in self.dtypes.items()})

    def loss_of(self, batch: Batch) -> Any:
        return jax.device_get(self._derivatives.loss(*self._arguments(batch)))

    def slope_of(self, batch: Batch) -> tuple[Any, Any, list[Any]]:
        return self._derivatives.slope(*self._arguments(batch))

    def product_of(self, batch: Batch, along: Mapping[str, Vector]) -> list[Any]:
        return self._derivatives.product(self._placement.place_arrays(along), *self._arguments(batch))

    def close(self) -> None:
        self._weights = self._fixed = {}

    def _arguments(self, batch: Batch) -> tuple[Any, ...]:
        place = self._placement.place
        return self._weights, self._fixed, place(batch.inputs), place(batch.targets), float(batch.size)
