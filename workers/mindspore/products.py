"""MindSpore's products of the Hessian: central differences of its gradients, share by share of the samples."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops

from collectors.networks.batches import call_network, map_leaves
from collectors.networks.mindspore_network import to_array
from collectors.networks.weight_space import State
from collectors.shapes import Float64

from ..curvature.products import ProductSettings, Vector
from ..measuring.measured_set import MeasuredSet
from ..measuring.products import WrittenGradients
from ..measuring.sample_loss import SummedLoss
from ..samples.batches import Batch
from .losses import as_tensor, loss_of_tensors
from .network import MindSporeNetwork

_DIFFERENCES = (
    "the products are differences of gradients over steps of {:.1g} of the weights' length, because MindSpore cannot "
    "differentiate each gradient; residuals, made over twice the step, hold the error."
)
_STEP = 1 / 8  # of the cube root of rounding


class MindSporeProducts(WrittenGradients):
    """Products of the Hessian, as what the gradient changes along a vector, over a step forth and one back."""

    # Steps in proportion to the cube root of rounding: the difference's error grows with a step's square, and what
    # rounding adds falls with it. A share of that is best where it counts, along the steepest eigenvectors.

    framework = differentiator = "MindSpore"
    without_gauss_newton = "needs derivatives of single outputs, which PyTorch and JAX have"
    refusals = (RuntimeError, AttributeError, SyntaxError, *WrittenGradients.refusals)
    times = "once"
    are_differences = True
    _network: MindSporeNetwork
    remedy = "In graph mode what it names cannot be compiled: set PyNative mode in callback_fn. "

    def __init__(
        self,
        network: MindSporeNetwork,
        measured: MeasuredSet,
        measuring: Callable[[], contextlib.AbstractContextManager[None]],
        settings: ProductSettings,
    ) -> None:
        super().__init__(network, measured, measuring, settings)
        self._step = _STEP * float(np.cbrt(np.finfo(self.layout.dtype).eps))
        self._notes.append(_DIFFERENCES.format(self._step))

        def make() -> _Slope:
            loss = _LossOfBatch(network.cell, loss_of_tensors(measured.loss), network.computes_loss)
            return _Slope(loss, network.parameters(self.layout.names))

        self._slope = measured.compiled("slope", make)
        self._slope.set_train(False)

    def move(self, parameters: State, buffers: State | None) -> None:
        super().move(parameters, buffers)
        self._weights = {name: np.asarray(parameters[name], np.float64) for name in self.layout.names}
        length = math.sqrt(sum(np.vdot(part, part) for part in self._weights.values()))
        self._reach = (length or 1.0) * self._step

    def loss_of(self, batch: Batch) -> tuple[Any, Any]:
        outputs, loss = call_network(self._network.forward, batch.inputs), self._measured.loss
        if isinstance(loss, SummedLoss):
            return loss.differentiable(outputs, batch)
        total = loss.fresh()
        total.add(outputs, batch)
        return total.result()["loss"] * batch.size, batch.size

    def slope_of(self, batch: Batch) -> tuple[Any, Any, Sequence[Any]]:
        return *self.loss_of(batch), self._gradient_of(batch)

    def gradient(self, share: int) -> Float64[np.ndarray, " weights"]:
        return self._sum(share, self._gradient_of)

    def _gradient_of(self, batch: Batch) -> Sequence[Any]:
        inputs, targets = (map_leaves(as_tensor, part) for part in (batch.inputs, batch.targets))
        found = call_network(lambda *given, **named: self._slope(targets, *given, **named), inputs)
        times = 1 if isinstance(self._measured.loss, SummedLoss) else batch.size
        return [times * to_array(part).astype(np.float64) for part in found]

    def product(self, vector: Vector, share: int, *, few: int = 0) -> Float64[np.ndarray, " weights"]:
        return self._difference(vector, share)

    def doubled(self, vector: Vector, share: int) -> Float64[np.ndarray, " weights"]:
        return self._difference(vector, share, 2)

    def _difference(self, vector: Vector, share: int, times: int = 1) -> Float64[np.ndarray, " weights"]:
        """Returns a product as a difference over so many steps forth and back, in float64."""
        along = self.layout.as_state(vector.astype(np.float64))
        length = float(np.linalg.norm(vector.astype(np.float64)))
        if not length or not self.samples_in(share):
            return np.zeros(self.layout.dimension)
        step = times * self._reach / length
        try:
            sides = []
            for signed in (step, -step):
                self._network.write({name: part + signed * along[name] for name, part in self._weights.items()})
                sides.append(self.gradient(share))
        finally:
            self._network.write(self._weights)
        product: Float64[np.ndarray, " weights"] = (sides[0] - sides[1]) / (2 * step)
        return product


class _LossOfBatch(nn.Cell):  # type: ignore[misc]
    """The sum of a batch's losses."""

    def __init__(self, network: Any, loss: Any, computes_loss: bool) -> None:
        # A prefix would rename the user's parameters.
        super().__init__(auto_prefix=False)
        self.network, self.loss, self.computes_loss = network, loss, computes_loss

    def construct(self, targets: Any, *inputs: Any, **named_inputs: Any) -> Any:
        if self.computes_loss:
            return self.network(*inputs, targets, **named_inputs).sum()
        return self.loss(self.network(*inputs, **named_inputs), targets).sum()


class _Slope(nn.Cell):  # type: ignore[misc]
    """The gradient of a batch's losses by weights; in graph mode a function of no cell would go on with old weights."""

    def __init__(self, loss: nn.Cell, weights: list[Any]) -> None:
        super().__init__(auto_prefix=False)
        self.loss, self.weights = loss, mindspore.ParameterTuple(weights)
        self.differentiate = ops.GradOperation(get_by_list=True)

    def construct(self, targets: Any, *inputs: Any, **named_inputs: Any) -> Any:
        return self.differentiate(self.loss, self.weights)(targets, *inputs, **named_inputs)
