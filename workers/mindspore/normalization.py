"""MindSpore's batch normalization: the statistics of a batch, as training takes them in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from collectors.networks.mindspore_network import to_array

from ..errors import CallbackFunctionError

_LAYERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


class BatchStatistics:
    """The layers of a cell whose statistics follow the batches of a training.

    Args:
        cell: in eval mode, in which a forward pass leaves it.
        run: makes a forward pass of a few samples, which changes the statistics.
    """

    def __init__(self, cell: nn.Cell, run: Callable[[], object]) -> None:
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
