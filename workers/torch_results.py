"""Results that stay on their device until a chunk of points ends (PyTorch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .batches import Batch
from .partition import add_batches
from .totals import Pending, Total


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
    return [_read(point, row) for point, row in zip(points, rows, strict=True)]


def _read(point: PendingPoint, row: list[float]) -> dict[str, float]:
    results: dict[str, float] = {}
    start = 0
    for part in point.parts:
        stop = start + len(part.numbers)
        results |= part.finish(row[start:stop])
        start = stop
    return results
