"""Measures points of the loaded plane, through a CUDA graph where that can be recorded (PyTorch)."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ..errors import first_line
from ..measuring.memory_shortage import is_memory_shortage
from ..measuring.totals import Pending, Total, add_batches
from ..samples.batches import Batch, float64_device, in_float64
from .cuda_graphs import capture_cuda_graph
from .first_layer import FirstLayer
from .moves import NetworkInPlace

Capture: TypeAlias = Callable[[Callable[[], torch.Tensor]], Callable[[], torch.Tensor]]
_CLOSE = 1e-5
_SHOWN = 8


class PointRunner:
    """Moves the network and computes, without reading anything from the device."""

    def __init__(
        self,
        moves: NetworkInPlace,
        compute: Callable[[], PendingPoint],
        treat_buffers: Callable[[], None],
        device: torch.device,
        capture: Capture | None,
        first_layer: FirstLayer | None = None,
    ) -> None:
        # ``capture`` is None where there are no CUDA graphs, or where buffers are treated on the host.
        self.first_layer = first_layer
        self._moves, self._compute, self._treat_buffers = moves, compute, treat_buffers
        self._device, self._capture = device, capture
        self._graph: PointGraph | None = None
        self._parts: Sequence[Pending] = ()

    def check(self) -> str:
        """Returns why the forward pass cannot be recorded, or "", before a plane is loaded; memory is no reason yet."""
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
        with contextlib.nullcontext() if self.first_layer is None else self.first_layer.at(coordinates):
            return self._compute()

    def _record(self, axes: int) -> str:
        assert self._capture is not None
        try:
            graph = PointGraph(self._run, axes, self._device, self._capture)
        except Exception as error:
            reason = first_line(error).removesuffix(".")
            note = f"points are measured kernel by kernel instead of through one CUDA graph: {reason}."
            if not is_memory_shortage(error):
                self._capture = None
            elif axes:
                note += " It is tried again with smaller batches, and for the next plane."
            else:
                note = ""  # nothing is lost before the plane is there
            return note
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
    return functools.partial(capture_cuda_graph, device=device) if device.type == "cuda" else None


class PointGraph:
    """Measures points by one launch each of ``run``, from coordinates, shape (axes,), to numbers, shape (numbers,)."""

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
                raise RuntimeError(f"at {point} it gives {_few(found)} instead of {_few(expected)}")

    def numbers(self, coordinates: Sequence[float]) -> torch.Tensor:
        """Returns the numbers of a point, still on the device, shape (numbers,)."""
        if len(coordinates):
            self._coordinates.copy_(torch.tensor(coordinates, dtype=torch.float64), non_blocking=True)
        return self._replay().clone()


def _few(numbers: torch.Tensor) -> list[float]:
    shown: list[float] = numbers[:_SHOWN].tolist()
    return shown


@dataclass(frozen=True)
class PendingPoint:
    """One point's results, not yet read.

    Attributes:
        numbers: on the device if it has float64, shape (numbers,); those of the parts, then the losses of samples.
        parts: how the results are made of them.
    """

    numbers: torch.Tensor
    parts: Sequence[Pending]


def add_up(forward: Callable[..., Any], batches: Sequence[Batch], totals: Sequence[Total]) -> list[Pending]:
    """Returns the loss and every metric over batches, without waiting for the device."""
    add_batches(forward, batches, totals)
    return [total.pending() for total in totals]


def run_pending(
    forward: Callable[..., Any],
    batches: Sequence[Batch],
    loss: Total,
    metrics: Mapping[str, Total],
    device: torch.device,
) -> PendingPoint:
    """Does what ``run_batches`` does without waiting for the device."""
    return pending_point(add_up(forward, batches, [loss, *metrics.values()]), device)


def pending_point(parts: Sequence[Pending], device: torch.device) -> PendingPoint:
    """Returns a point of which these results are known, of all data sets."""
    numbers = [number for part in parts for number in part.numbers]
    if any(isinstance(number, torch.Tensor) for number in numbers):
        place = float64_device(device)
        as_tensors = [
            in_float64(number).to(place)
            if isinstance(number, torch.Tensor)
            else torch.as_tensor(number, dtype=torch.float64, device=place)
            for number in numbers
        ]
        samples = [values.to(as_tensors[0]) for part in parts for values in part.samples.values()]
        return PendingPoint(torch.cat([torch.stack(as_tensors), *samples]), parts)
    return PendingPoint(torch.tensor([float(number) for number in numbers], dtype=torch.float64), parts)


def all_on_device(point: PendingPoint) -> bool:
    """Returns whether every number was computed by the device, so that doing the work again renews it."""
    return all(isinstance(number, torch.Tensor) for part in point.parts for number in part.numbers)


def read_points(points: Sequence[PendingPoint]) -> list[dict[str, Any]]:
    """Returns the results of all points after one transfer, with the losses of samples where these are kept."""
    if not points:
        return []
    results: list[dict[str, Any]] = []
    for point, row in zip(points, torch.stack([point.numbers for point in points]).cpu().numpy(), strict=True):
        results.append({})
        start = 0
        for part in point.parts:
            end = start + len(part.numbers)
            results[-1] |= part.finish(row[start:end].tolist())
            start = end
        for part in point.parts:
            for name, values in part.samples.items():
                end = start + len(values)
                results[-1][name] = row[start:end]
                start = end
    return results
