"""A MindSpore cell, seen as arrays, and the statistics of a batch, as its training takes them in."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from collectors.networks.batches import call_network, map_leaves
from collectors.networks.mindspore_network import describe, named_tensors, read, to_array
from collectors.networks.weight_space import State, numpy_dtype

from ..errors import CallbackFunctionError
from ..samples.batches import Batch
from .losses import as_tensor

_LAYERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


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
                entry.tensor.set_data(Tensor(array))
            elif to_array(entry.tensor).tobytes() != array.tobytes():
                if mindspore.get_context("mode") == mindspore.GRAPH_MODE:
                    raise CallbackFunctionError(
                        f"network's buffer {name!r} has another value in the checkpoint, but graph mode compiles "
                        "buffers as constants. Hold it in a Parameter with requires_grad=False, or set PyNative mode "
                        "in callback_fn."
                    )
                entry.tensor.assign_value(Tensor(array))

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
    half = isinstance(leaf, Tensor) and leaf.dtype in (mindspore.float16, mindspore.bfloat16)
    return leaf.astype(mindspore.float32) if half else leaf


class BatchStatistics:
    """The layers of a cell whose statistics follow the batches of a training."""

    def __init__(self, cell: nn.Cell, run: Callable[[], object]) -> None:
        # In eval mode, in which a forward pass leaves the cell; ``run`` makes one, which changes the statistics.
        self._cell, self._layers = cell, dict[str, Any]()
        for name, layer in cell.cells_and_names():
            if isinstance(layer, _LAYERS) and layer.use_batch_statistics is None:
                self._layers[name] = layer
            elif hasattr(layer, "running_mean"):
                raise CallbackFunctionError(
                    f"network has running statistics in its layer {name!r}, a {type(layer).__name__}, but "
                    'buffers="recalibrate" knows MindSpore\'s nn.BatchNorm1d, 2d and 3d; use these, or buffers="fixed".'
                )
        uses = self._uses(run)
        if several := [name for name, count in uses.items() if count > 1]:
            raise CallbackFunctionError(
                f"network uses its layer {several[0]!r} {uses[several[0]]} times in a forward pass, of which MindSpore "
                'gives the statistics of the last one, but buffers="recalibrate" needs their mean; build a layer for '
                'each use, or use buffers="fixed".'
            )
        self._layers = {name: layer for name, layer in self._layers.items() if uses[name]}

    def __bool__(self) -> bool:
        return bool(self._layers)

    def of_pass(self, run: Callable[[], object]) -> list[tuple[Any, NDArray[Any]]]:
        """Returns MindSpore's tensors with the statistics of a pass's batch, by which layers normalize in it."""
        with self._taking_in(1.0):
            run()
        layers = self._layers.values()
        return [(item, to_array(item)) for layer in layers for item in (layer.moving_mean, layer.moving_variance)]

    def _uses(self, run: Callable[[], object]) -> dict[str, int]:
        """Returns how often a pass uses each layer: every use leaves half of what was there."""
        found = []
        for start in (0.0, 1.0):
            for layer in self._layers.values():
                layer.moving_mean.set_data(Tensor(np.full_like(to_array(layer.moving_mean), start)))
            with self._taking_in(0.5):
                run()
            found.append([to_array(layer.moving_mean).astype(np.float64) for layer in self._layers.values()])
        left = [np.mean(other - first) for first, other in zip(*found, strict=True)]
        return {name: round(-np.log2(share)) for name, share in zip(self._layers, left, strict=True)}

    @contextlib.contextmanager
    def _taking_in(self, share: float) -> Iterator[None]:
        """Lets layers take in a share of each batch's statistics; graph mode keeps what it compiles for each share."""
        before = [(layer, layer.bn_train, layer.training) for layer in self._layers.values()]
        phase, self._cell.phase = self._cell.phase, f"{self._cell.phase}, {share} of a batch's statistics"
        try:
            for layer, _, _ in before:
                layer.bn_train = ops.BatchNorm(
                    is_training=True, epsilon=layer.eps, momentum=share, data_format=layer.format
                )
                layer.add_flags(training=True)
            yield
        finally:
            self._cell.phase = phase
            for layer, operator, training in before:
                layer.bn_train = operator
                layer.add_flags(training=training)
