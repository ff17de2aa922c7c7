"""A PyTorch network at many places in one pass over samples that memory does not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from collectors.networks.weight_space import State

from ..errors import CallbackFunctionError, PointsFailedError
from ..evaluator import PassCost
from ..measuring.streamed import StreamedMeasurement
from ..measuring.totals import Total
from ..samples.batches import Batch
from ..samples.samples import Passes, Samples
from .moves import NetworkInPlace

RECALIBRATED = (
    'buffers="recalibrate" needs all samples for the statistics before it measures the first one; use buffers="fixed"'
)
"""Why samples cannot be read in passes."""


class NetworkInPasses:
    """Moves a network and measures it, batch by batch."""

    def __init__(
        self,
        passes: Passes,
        moves: NetworkInPlace,
        forward: Callable[[], Callable[..., Any]],
        batches: Callable[[Samples], Sequence[Batch]],
        totals: Callable[[], Sequence[Total]],
    ) -> None:
        size = sum(info.size for info in moves.space.parameters) * torch.float32.itemsize
        self._streamed = StreamedMeasurement(passes, forward, batches, size)
        self._moves, self._totals = moves, totals

    @property
    def cost(self) -> PassCost | None:
        """What a pass costs; None before the first one."""
        return self._streamed.cost

    def measure(self, points: Sequence[Sequence[float]]) -> list[dict[str, float]]:
        """Returns values at points of the loaded plane; PointsFailedError: the user's code raised at some of them."""

        def visit(point: Sequence[float]) -> None:
            torch.clear_autocast_cache()  # it would hold the weights of the point before
            self._moves.move(point)

        return self._streamed.measure(points, visit, self._totals())

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        """Returns the values of one full set of weights."""

        def visit(_: object) -> None:
            torch.clear_autocast_cache()
            self._moves.set_state(parameters, buffers)

        try:
            return self._streamed.measure([None], visit, self._totals())[0]
        except PointsFailedError as error:
            raise CallbackFunctionError(str(error)) from error
