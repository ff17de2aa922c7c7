"""A MindSpore cell, seen as arrays."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import mindspore
import numpy as np
from numpy.typing import NDArray

from collectors.networks.batches import call_network, map_leaves
from collectors.networks.mindspore_network import describe, named_tensors, read, to_array
from collectors.networks.weight_space import State, numpy_dtype

from ..errors import CallbackFunctionError
from ..samples.batches import Batch
from .losses import as_tensor
from .normalization import BatchStatistics


class MindSporeNetwork:
    """A MindSpore cell, seen as arrays (``ArrayNetwork``), in eval mode until ``close``."""

    def __init__(self, network: Any, *, computes_loss: bool = False) -> None:
        self.cell, self.computes_loss = network, computes_loss
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
        return read(self.cell)

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

    def parameters(self, names: Sequence[str]) -> list[Any]:
        """Returns MindSpore's own tensors."""
        return [self._tensors[name].tensor for name in names]

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Returns the outputs in eval mode, without gradients; if they are the loss, a function of the targets."""

        def run(*targets: Any) -> Any:
            return self.cell(*map_leaves(as_tensor, (*inputs, *targets)), **map_leaves(as_tensor, named_inputs))

        def loss(targets: Any) -> Any:
            try:
                return run(targets)
            except TypeError as error:
                raise CallbackFunctionError(
                    "the first item that callback_fn returns has no loss_fn, so that the network must compute its loss "
                    f"of inputs and targets, but: {error} Pass loss_fn to Model, or return the loss function itself "
                    "instead of the Model."
                ) from error

        # Outputs in at least float32, as Model.eval has them under mixed precision.
        return loss if self.computes_loss else map_leaves(_at_least_float32, run())

    def batch_statistics(self, batch: Batch) -> BatchStatistics:
        """Returns the layers that normalize by batches, in a training; tries them with a batch."""
        before = self.read()
        try:
            return BatchStatistics(self.cell, functools.partial(self._run, batch))
        finally:
            self.write(before)

    def statistics_of(self, layers: BatchStatistics, batch: Batch) -> dict[str, NDArray[Any]]:
        names = {id(entry.tensor): name for name, entry in self._tensors.items()}
        found = layers.of_pass(functools.partial(self._run, batch))
        return {names[id(tensor)]: values for tensor, values in found}

    def _run(self, batch: Batch) -> None:
        outputs = call_network(self.forward, batch.inputs)
        if self.computes_loss:
            outputs(batch.targets)

    def settings(self, threads: int) -> contextlib.AbstractContextManager[None]:
        """Nothing: MindSpore takes its threads and its mode from the process."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Puts back the cells' modes."""
        for cell, training, phase, requires_grad in self._modes:
            cell.add_flags(training=training)
            cell.phase = phase
            cell.requires_grad = requires_grad


def _at_least_float32(leaf: Any) -> Any:
    half = isinstance(leaf, mindspore.Tensor) and leaf.dtype in (mindspore.float16, mindspore.bfloat16)
    return leaf.astype(mindspore.float32) if half else leaf
