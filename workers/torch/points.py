"""Measures points of the loaded plane, through a CUDA graph where that can be recorded (PyTorch)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch

from .torch_cuda_graph import Capture, PointGraph
from .torch_moves import NetworkInPlace
from .torch_results import PendingPoint, all_on_device
from .totals import Pending


class PointRunner:
    """Moves the network and computes, without reading anything from the device.

    Args:
        moves: moves the network.
        compute: computes the loss and all metrics where the network is.
        treat_buffers: is called after each move.
        device: where.
        capture: records a CUDA graph; None where there is none, or where buffers are treated on the host.
    """

    def __init__(
        self,
        moves: NetworkInPlace,
        compute: Callable[[], PendingPoint],
        treat_buffers: Callable[[], None],
        device: torch.device,
        capture: Capture | None,
    ) -> None:
        self._moves, self._compute, self._treat_buffers = moves, compute, treat_buffers
        self._device, self._capture = device, capture
        self._graph: PointGraph | None = None
        self._parts: Sequence[Pending] = ()

    @property
    def is_recorded(self) -> bool:
        """Whether the loaded plane is measured through a graph."""
        return self._graph is not None

    def check(self) -> str:
        """Finds out, before a plane is there, whether the forward pass can be recorded; returns why not, or ""."""
        return self._record(axes=0) if self._capture is not None else ""

    def record(self, axes: int) -> None:
        """Records a graph for the plane that has just been loaded."""
        self._graph = None
        if self._capture is not None:
            note = self._record(axes)
            if note:
                warnings.warn(note, stacklevel=3)

    def measure(self, coordinates: Sequence[float]) -> PendingPoint:
        """Returns a point's results, not yet read."""
        if self._graph is not None:
            return PendingPoint(self._graph.numbers(coordinates), self._parts)
        self._moves.move(coordinates)
        self._moves.reset_buffers()
        self._treat_buffers()
        return self._compute()

    def _record(self, axes: int) -> str:
        assert self._capture is not None
        try:
            graph = PointGraph(self._run, axes, self._device, self._capture)
        except Exception as error:
            self._capture = None
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            return f"points are measured kernel by kernel instead of through one CUDA graph: {reason}."
        if axes:
            self._graph = graph
        return ""

    def _run(self, coordinates: torch.Tensor) -> torch.Tensor:
        """Does what a graph records."""
        if len(coordinates):
            self._moves.move_on_device(coordinates)
            self._moves.reset_buffers()
        point = self._compute()
        if not all_on_device(point):
            raise RuntimeError("the loss or a metric is computed on the host")
        self._parts = point.parts
        return point.numbers
