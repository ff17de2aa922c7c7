"""Measures points of the loaded plane, through a CUDA graph where that can be recorded (PyTorch)."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ..measuring.partition import add_batches
from ..measuring.totals import Pending, Total
from ..samples.batches import Batch
from .moves import NetworkInPlace

Capture: TypeAlias = Callable[[Callable[[], torch.Tensor]], Callable[[], torch.Tensor]]
_WARM_UP = 3
_CLOSE = 1e-5


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

    def check(self) -> str:
        """Finds out, before a plane is loaded, whether the forward pass can be recorded; returns why not, or ""."""
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
        point = self._compute()
        if not all_on_device(point):
            raise RuntimeError("the loss or a metric is computed on the host")
        self._parts = point.parts
        return point.numbers


def capture_of(device: torch.device) -> Capture | None:
    """Returns how work is recorded on a device, or None where it cannot be."""
    return capture_cuda_graph if device.type == "cuda" else None


def capture_cuda_graph(work: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Records work that always uses the same memory; returns the function that does it again.

    Raises:
        RuntimeError: it waits for the device, or does something else that cannot be recorded.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):  # libraries choose their kernels and get their memory before the recording
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()

    def replay() -> torch.Tensor:
        graph.replay()
        return result

    return replay


class PointGraph:
    """Measures points by one launch each.

    Args:
        run: from coordinates on the device, shape (axes,), to the numbers of a point, shape (numbers,).
        axes: of the plane.
        device: where.
        capture: records work.

    Raises:
        RuntimeError: the work cannot be recorded, or gives other values when it is done again.
    """

    def __init__(
        self, run: Callable[[torch.Tensor], torch.Tensor], axes: int, device: torch.device, capture: Capture
    ) -> None:
        self._coordinates = torch.zeros(axes, dtype=torch.float64, device=device)
        self._replay = capture(lambda: run(self._coordinates))
        for value in (0.0, 0.01, 0.0):
            point = [value] * axes
            found = self.numbers(point)
            expected = run(self._coordinates)
            if not torch.allclose(found, expected, rtol=_CLOSE, atol=1e-7, equal_nan=True):
                raise RuntimeError(f"at {point} it gives {found.tolist()} instead of {expected.tolist()}")

    def numbers(self, coordinates: Sequence[float]) -> torch.Tensor:
        """Returns the numbers of a point, still on the device, shape (numbers,)."""
        if len(coordinates):
            self._coordinates.copy_(torch.tensor(coordinates, dtype=torch.float64), non_blocking=True)
        return self._replay().clone()


@dataclass(frozen=True)
class PendingPoint:
    """One point's results, not yet read.

    Attributes:
        numbers: on the device, float64, shape (numbers,).
        parts: how the results are made of them.
    """

    numbers: torch.Tensor
    parts: Sequence[Pending]


def run_pending(
    forward: Callable[..., Any],
    batches: Sequence[Batch],
    loss: Total,
    metrics: Mapping[str, Total],
    device: torch.device,
) -> PendingPoint:
    """Does what ``run_batches`` does without waiting for the device."""
    totals = (loss, *metrics.values())
    add_batches(forward, batches, totals)
    parts = [total.pending() for total in totals]
    numbers = [number for part in parts for number in part.numbers]
    if any(isinstance(number, torch.Tensor) for number in numbers):
        as_tensors = [torch.as_tensor(number, dtype=torch.float64, device=device) for number in numbers]
        return PendingPoint(torch.stack(as_tensors), parts)
    return PendingPoint(torch.tensor([float(number) for number in numbers], dtype=torch.float64), parts)


def all_on_device(point: PendingPoint) -> bool:
    """Returns whether every number was computed by the device, so that doing the work again renews it."""
    return all(isinstance(number, torch.Tensor) for part in point.parts for number in part.numbers)


def read_points(points: Sequence[PendingPoint]) -> list[dict[str, float]]:
    """Returns the results of all points after one transfer.

    Raises:
        SamplesError: no target counts.
    """
    if not points:
        return []
    rows = torch.stack([point.numbers for point in points]).tolist()
    results: list[dict[str, float]] = []
    for point, row in zip(points, map(iter, rows), strict=True):
        results.append({})
        for part in point.parts:
            results[-1] |= part.finish(list(itertools.islice(row, len(part.numbers))))
    return results
