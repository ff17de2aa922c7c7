"""The evaluator of MindSpore networks."""

from __future__ import annotations

import contextlib
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
from .losses import as_tensor, find_candidates, make_metrics
from .samples import read_mindspore_samples


class MindSporeNetwork:
    """A MindSpore cell, seen as arrays (``ArrayNetwork``), in eval mode until ``close``."""

    def __init__(self, network: Any) -> None:
        self._network = network
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
        """Returns copies of all parameters and buffers, by name."""
        return read(self._network)

    def write(self, state: State) -> None:
        """Sets the named parameters and buffers, in their own element types; others stay."""
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
        """Returns the network's outputs in eval mode, without gradients."""
        outputs = self._network(
            *(map_leaves(as_tensor, item) for item in inputs),
            **{name: map_leaves(as_tensor, item) for name, item in named_inputs.items()},
        )
        # In at least float32, as Model.eval has it under mixed precision.
        return map_leaves(_at_least_float32, outputs)

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
        model: a ``mindspore.train.Model`` with a loss_fn, or a loss function.
        network: an ``nn.Cell``.
        dataset: a batched ``mindspore.dataset`` pipeline, or what ``read_array_samples`` takes; or a mapping of several
            by name.
        metrics: as ``Model`` takes them, where a function of (outputs, targets) may stand for a metric.
        setup: what is measured, and how; the process's context says on which device.
    """
    candidates, totals = find_candidates(model), make_metrics(metrics)
    sets = read_sets(dataset, setup.options, setup.memory, read_mindspore_samples)
    return ArrayEvaluator(MindSporeNetwork(network), sets, candidates, totals, setup)


EVALUATOR = make_mindspore_evaluator


def _at_least_float32(leaf: Any) -> Any:
    half = isinstance(leaf, mindspore.Tensor) and leaf.dtype in (mindspore.float16, mindspore.bfloat16)
    return leaf.astype(mindspore.float32) if half else leaf
