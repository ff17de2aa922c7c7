"""JAX's products of the Hessian and of the generalised Gauss-Newton matrix, share by share of the samples."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

from collectors.networks.jax_arrays import NamedArrays
from collectors.networks.weight_space import State, direction_dtype

from ..curvature.products import SHARES, WITHOUT_GRADIENTS, Layout, ProductSettings, Vector
from ..errors import CurvatureError
from ..measuring.shares import BatchedProducts, SharedBatches
from ..samples.samples import Samples
from .functions import outputs_of
from .losses import JaxTotal
from .placement import Placement

if TYPE_CHECKING:
    from jaxtyping import Float64

_Arrays: TypeAlias = Mapping[str, Any]
_OTHER = {
    "hessian": "such as callbacks to Python and lax.while_loop",
    "ggn": 'such as outputs that are whole numbers and jax.custom_vjp, or use matrix="hessian"',
}


@dataclass(frozen=True)
class DifferentiatedFunction:
    """What an evaluator gives of its network and loss.

    Attributes:
        arrays: the network's own parameters and buffers, by name.
        batch_size: of the plan; None where the data set's own batches are kept.
        settings: makes the context in which everything is computed.
    """

    network: NamedArrays
    arrays: State
    total: JaxTotal
    samples: Samples
    batch_size: int | None
    placement: Placement
    settings: Callable[[], contextlib.AbstractContextManager[None]]


class JaxProducts(BatchedProducts):
    """Products by derivatives forwards over backwards, in at least float32, compiled for each length of a batch."""

    def __init__(self, function: DifferentiatedFunction, settings: ProductSettings) -> None:
        self._function, space = function, function.network.space
        wide = {info.name: direction_dtype(info.dtype) for info in space.trainable}
        dtype = "float64" if any(item == np.float64 for item in wide.values()) else "float32"
        trainable = [info for info in space.trainable if info.size]
        self._layout = Layout(tuple(i.name for i in trainable), tuple(i.shape for i in trainable), dtype)
        self._dtypes = {info.name: wide[info.name] for info in trainable}
        is_low = any(np.dtype(self._dtypes[info.name]).name != info.dtype for info in trainable)
        super().__init__(settings, function.batch_size, is_widened=is_low)
        self._loss = jax.jit(self._numerator)
        self._gradient = jax.jit(jax.grad(lambda *arguments: self._numerator(*arguments)[0]))
        self._product = jax.jit({"hessian": self._hessian, "ggn": self._gauss_newton}[settings.matrix])
        self.move(function.arrays, function.arrays)

    @property
    def layout(self) -> Layout:
        """How vectors are made."""
        return self._layout

    def move(self, parameters: State, buffers: State | None) -> None:
        """Takes a set of weights."""
        space = self._function.network.space
        fixed = {info.name: parameters[info.name] for info in space.parameters if info.name not in self._dtypes}
        if buffers is not None:
            self._buffers = {info.name: buffers[info.name] for info in space.buffers}
        place = self._function.placement.place_arrays
        with self._function.settings():
            self._fixed = place(fixed | self._buffers)
            self._weights = place({name: np.asarray(parameters[name], dtype) for name, dtype in self._dtypes.items()})

    def loss(self, share: int) -> tuple[float, float | None]:
        """Returns a share's sum of losses and its weight."""

        def add() -> tuple[float, float]:
            numbers = self._samples.shares[share]
            parts = [jax.device_get(self._loss(self._weights, *self._rest(number))) for number in numbers]
            return sum(float(value) for value, _ in parts), sum(float(weight) for _, weight in parts)

        return self._within_memory(add)

    def gradient(self, share: int) -> Float64[np.ndarray, " weights"]:
        """Returns the gradient of a share's sum of losses."""
        return self._sum(share, lambda number: self._gradient(self._weights, *self._rest(number)))

    def product(self, vector: Vector, share: int, *, few: int = 0) -> Float64[np.ndarray, " weights"]:
        """Returns the matrix of a share's sum of losses times a vector, of all samples: another length is compiled."""
        parts = {name: part.astype(self._dtypes[name]) for name, part in self._layout.as_state(vector).items()}
        with self._function.settings():
            along = self._function.placement.place_arrays(parts)
        return self._sum(share, lambda number: self._product(self._weights, *self._rest(number), along))

    def close(self) -> None:
        """Frees the device's memory."""
        self._weights = self._fixed = {}

    def _rest(self, number: int) -> tuple[Any, ...]:
        """Returns what a compiled function needs beside the trainable arrays."""
        batch = self._samples.batch(number)
        place = self._function.placement.place
        return self._fixed, place(batch.inputs), place(batch.targets), float(batch.size)

    def _outputs(self, weights: _Arrays, fixed: _Arrays, inputs: Any) -> Any:
        return outputs_of(self._function.network, {**fixed, **weights}, inputs)

    def _numerator(self, weights: _Arrays, fixed: _Arrays, inputs: Any, targets: Any, size: Any) -> tuple[Any, Any]:
        return self._function.total.numerator(self._outputs(weights, fixed, inputs), targets, size)

    def _hessian(self, weights: _Arrays, fixed: _Arrays, inputs: Any, targets: Any, size: Any, along: _Arrays) -> Any:
        slope = jax.grad(lambda place: self._numerator(place, fixed, inputs, targets, size)[0])
        return jax.jvp(slope, (weights,), (along,))[1]

    def _gauss_newton(
        self, weights: _Arrays, fixed: _Arrays, inputs: Any, targets: Any, size: Any, along: _Arrays
    ) -> Any:
        def run(place: _Arrays) -> Any:
            return self._outputs(place, fixed, inputs)

        outputs, pull = jax.vjp(run, weights)
        _, moved = jax.jvp(run, (weights,), (along,))
        slope = jax.grad(lambda outputs: self._function.total.numerator(outputs, targets, size)[0])
        return pull(jax.jvp(slope, (outputs,), (moved,))[1])[0]

    def _sum(self, share: int, part: Callable[[int], _Arrays]) -> Float64[np.ndarray, " weights"]:
        def add() -> Float64[np.ndarray, " weights"]:
            total = np.zeros(self._layout.dimension)
            for number in self._samples.shares[share]:
                parts = jax.device_get(part(number))
                total += np.concatenate([np.ravel(parts[name]) for name in self._layout.names])
            return total

        return self._within_memory(add)

    def _shared(self, batch_size: int | None) -> SharedBatches:
        samples = self._function.samples
        # One batch of all samples is a view of them; its pieces have three lengths at most.
        batches = samples.batches(None if batch_size is None else samples.count)
        return SharedBatches(batches, SHARES, whole=batch_size is None, longest=batch_size)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Has JAX's settings for all that is called inside."""
        with self._function.settings():
            try:
                yield
            except (TypeError, ValueError, NotImplementedError) as error:
                raise CurvatureError(
                    f"JAX cannot differentiate the network or the loss twice ({error}). Replace what it names, "
                    f"{_OTHER[self._settings.matrix]}. Or {WITHOUT_GRADIENTS}."
                ) from error
