"""The evaluator of MindSpore networks."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import mindspore
import numpy as np
from numpy.typing import NDArray

from collectors.networks.batches import map_leaves
from collectors.networks.mindspore_network import describe, named_tensors, read, to_array
from collectors.networks.weight_space import State, WeightSpace, numpy_dtype

from ..errors import CallbackFunctionError
from ..evaluator import MeasurementOptions
from ..measurement_plan import MeasurementPlan
from ..measuring.array_evaluator import ArrayEvaluator, Target
from ..measuring.totals import batch_loss
from ..samples.batches import Batch
from .losses import as_tensor, call_loss, float32_outputs, loss_function, make_metrics, split_into_samples
from .samples import read_mindspore_samples


class MindSporeNetwork:
    """A MindSpore cell, seen as arrays; see ``ArrayNetwork``.

    Args:
        network: the cell; it is put into eval mode until ``close``.
        cast_outputs: whether outputs are cast to float32, as ``Model.eval`` does under mixed precision.
    """

    can_recalibrate = False

    def __init__(self, network: Any, *, cast_outputs: bool) -> None:
        self._network = network
        self._cast_outputs = cast_outputs
        self._space = describe(network)
        self._tensors = {entry.name: entry for entry in named_tensors(network)}
        self._dtypes = {info.name: numpy_dtype(info.dtype) for info in self._space.tensors}
        self._modes = [
            (cell, bool(cell.training), cell.phase, bool(cell.requires_grad)) for _, cell in network.cells_and_names()
        ]
        network.set_train(False)
        # PyNative mode would otherwise keep what a backward pass needs.
        network.set_grad(False)

    @property
    def space(self) -> WeightSpace:
        """The network's description."""
        return self._space

    def read(self) -> dict[str, NDArray[Any]]:
        """Returns copies of all parameters and buffers, by name."""
        return read(self._network)

    def write(self, state: State) -> None:
        """Sets the named parameters and buffers, in their own element types; others stay.

        Raises:
            CallbackFunctionError: a registered buffer would have to change in graph mode.
        """
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
        return map_leaves(_float32, outputs) if self._cast_outputs else outputs

    def settings(self, threads: int) -> contextlib.AbstractContextManager[None]:
        """Nothing: MindSpore takes its threads and its mode from the process."""
        return contextlib.nullcontext()

    def recalibrate(self, batches: Sequence[Batch]) -> None:
        """Never called; MindSpore's normalization layers fix their momentum when they are made."""
        raise NotImplementedError

    def ran_out_of_memory(self, error: Exception) -> bool:
        """Returns whether an exception means that a batch was too large."""
        text = str(error).lower()
        return isinstance(error, MemoryError) or "out of memory" in text or "memory not enough" in text

    def close(self) -> None:
        """Puts back the cells' modes."""
        for cell, training, phase, requires_grad in self._modes:
            cell.add_flags(training=training)
            cell.phase = phase
            cell.requires_grad = requires_grad


def make_mindspore_evaluator(
    model: Any,
    network: Any,
    dataset: Any,
    metrics: Any,
    *,
    options: MeasurementOptions,
    threads: int = 1,
    device: str = "cpu",  # noqa: ARG001
    plan: MeasurementPlan | None = None,
    restore_network: bool = True,
) -> ArrayEvaluator:
    """Returns an evaluator of what callback_fn returned, for MindSpore.

    Args:
        model: a ``mindspore.train.Model`` with a loss_fn, or a loss function.
        network: an ``nn.Cell``.
        dataset: a batched ``mindspore.dataset`` pipeline; see ``read_mindspore_samples``.
        metrics: as ``Model`` takes them.
        options: what is measured.
        threads: CPU threads that may be used.
        device: ignored; MindSpore computes where the process's context says.
        plan: how to compute; None tunes one.
        restore_network: whether ``close`` puts the network back.

    Raises:
        CallbackFunctionError: loss or metrics cannot be used.
        LandscapeError: the network or the data cannot be measured; the subclass says why.
    """
    loss = loss_function(model)
    totals = make_metrics(metrics)
    samples, notes = read_mindspore_samples(dataset, options)
    casts = float32_outputs(model)

    def whole(outputs: Any, targets: Any) -> Any:
        return call_loss(loss, outputs, targets)

    measured = Target(samples, batch_loss(whole), split_into_samples(loss), totals, notes)
    return ArrayEvaluator(
        MindSporeNetwork(network, cast_outputs=casts),
        measured,
        options=options,
        threads=threads,
        device=str(mindspore.get_context("device_target")).lower(),
        plan=plan,
        restore_network=restore_network,
    )


EVALUATOR = make_mindspore_evaluator


def _float32(leaf: Any) -> Any:
    half = isinstance(leaf, mindspore.Tensor) and leaf.dtype in (mindspore.float16, mindspore.bfloat16)
    return leaf.astype(mindspore.float32) if half else leaf
