"""The evaluator of MindSpore networks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
from numpy.typing import NDArray

from collectors.networks.batches import map_leaves
from collectors.networks.mindspore_network import describe, named_tensors, read, to_array
from collectors.networks.weight_space import State, numpy_dtype

from ..errors import CallbackFunctionError
from ..evaluator import MeasurementSetup
from ..measuring.array_evaluator import ArrayEvaluator
from ..samples.data_sets import read_sets
from .losses import as_tensor, find_loss, make_candidates, make_metrics
from .samples import read_mindspore_samples


class MindSporeNetwork:
    """A MindSpore cell, seen as arrays (``ArrayNetwork``), in eval mode until ``close``."""

    def __init__(self, network: Any, *, computes_loss: bool = False) -> None:
        self._network, self._computes_loss = network, computes_loss
        self.space = describe(network)
        self.device = str(mindspore.get_context("device_target")).lower()
        self._tensors = {entry.name: entry for entry in named_tensors(network)}
        self._dtypes = {info.name: numpy_dtype(info.dtype) for info in self.space.tensors}
        self._modes = [
            (cell, bool(cell.training), cell.phase, bool(cell.requires_grad)) for _, cell in network.cells_and_names()
        ]
        network.set_train(False)
        # PyNative mode would otherwise keep what a backward pass needs.
        network.set_grad(False)

    def read(self) -> dict[str, NDArray[Any]]:
        return read(self._network)

    def write(self, state: State) -> None:
        for name, value in state.items():
            entry = self._tensors[name]
            array = np.ascontiguousarray(value, self._dtypes[name]).reshape(np.shape(value))
            if entry.is_parameter:
                entry.tensor.set_data(mindspore.Tensor(array))
            elif to_array(entry.tensor).tobytes() != array.tobytes():
                if mindspore.get_context("mode") == mindspore.GRAPH_MODE:
                    raise CallbackFunctionError(
                        f"network's buffer {name!r} has another value in the checkpoint, but graph mode compiles "
                        "buffers as constants. Hold it in a Parameter with requires_grad=False, or set PyNative mode "
                        "in callback_fn."
                    )
                entry.tensor.assign_value(mindspore.Tensor(array))

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Returns the outputs in eval mode, without gradients; if they are the loss, a function of the targets."""

        def run(*targets: Any) -> Any:
            return self._network(*map_leaves(as_tensor, (*inputs, *targets)), **map_leaves(as_tensor, named_inputs))

        if self._computes_loss:
            return self._with_targets(run)
        outputs = run()
        # In at least float32, as Model.eval has it under mixed precision.
        return map_leaves(_at_least_float32, outputs)

    def _with_targets(self, run: Callable[..., Any]) -> Callable[[Any], Any]:
        def loss(targets: Any) -> Any:
            try:
                return run(targets)
            except TypeError as error:
                raise CallbackFunctionError(
                    "the first item that callback_fn returns has no loss_fn, so that the network must compute its loss "
                    f"of inputs and targets, but: {error} Pass loss_fn to Model, or return the loss function itself "
                    "instead of the Model."
                ) from error

        return loss

    def settings(self, threads: int) -> contextlib.AbstractContextManager[None]:
        """Nothing: MindSpore takes its threads and its mode from the process."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Puts back the cells' modes."""
        for cell, training, phase, requires_grad in self._modes:
            cell.add_flags(training=training)
            cell.phase = phase
            cell.requires_grad = requires_grad


def make_mindspore_evaluator(
    model: Any, network: Any, dataset: Any, metrics: Any, setup: MeasurementSetup
) -> ArrayEvaluator:
    """Returns an evaluator of what callback_fn returned, for MindSpore.

    Args:
        model: a ``mindspore.train.Model``, or a loss function; None, or a Model without loss_fn, where the network
            computes its loss itself, of the inputs and the targets.
        network: an ``nn.Cell``.
        dataset: a batched ``mindspore.dataset`` pipeline, or what ``read_array_samples`` takes; or a mapping of several
            by name.
        metrics: as ``Model`` takes them, where a function of (outputs, targets) may stand for a metric.
        setup: what is measured, and how; the process's context says on which device.
    """
    loss, totals = find_loss(model), make_metrics(metrics)
    if loss is None and totals:
        raise CallbackFunctionError(
            f"metrics must be empty where the network computes its loss itself, because they need outputs, but got "
            f"{sorted(totals)}; leave them out, or return a Model with a loss_fn and a network that gives outputs."
        )
    sets = read_sets(dataset, setup.options, setup.memory, read_mindspore_samples)
    seen = MindSporeNetwork(network, computes_loss=loss is None)
    return ArrayEvaluator(seen, sets, make_candidates(loss), totals, setup)


EVALUATOR = make_mindspore_evaluator


def _at_least_float32(leaf: Any) -> Any:
    half = isinstance(leaf, mindspore.Tensor) and leaf.dtype in (mindspore.float16, mindspore.bfloat16)
    return leaf.astype(mindspore.float32) if half else leaf
