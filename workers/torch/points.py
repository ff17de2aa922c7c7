"""Results of points that stay on the device until all of them are computed (PyTorch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..measuring.totals import Pending, Total, add_batches
from ..samples.batches import Batch, float64_device, in_float64


@dataclass(frozen=True)
class PendingPoint:
    # On the device if it has float64, shape (numbers,); those of the parts, then the losses of samples.
    numbers: torch.Tensor
    parts: Sequence[Pending]  # how the results are made of them


def add_up(forward: Callable[..., Any], batches: Sequence[Batch], totals: Sequence[Total]) -> list[Pending]:
    """Returns the loss and every metric over batches, without waiting for the device."""
    add_batches(forward, batches, totals)
    return [total.pending() for total in totals]


def pending_point(parts: Sequence[Pending], device: torch.device) -> PendingPoint:
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


def read_points(points: Sequence[PendingPoint]) -> list[dict[str, Any]]:
    """Returns the results of all points after one transfer, with the losses of samples where these are kept."""
    if not points:
        return []
    results: list[dict[str, Any]] = []
    for point, row in zip(points, torch.stack([point.numbers for point in points]).cpu().numpy(), strict=True):
        samples = [item for part in point.parts for item in part.samples.items()]
        sizes = [*(len(part.numbers) for part in point.parts), *(len(values) for _, values in samples)]
        pieces = iter(np.split(row, np.cumsum(sizes)[:-1]))
        results.append({})
        for part, piece in zip(point.parts, pieces, strict=False):
            results[-1] |= part.finish(piece.tolist())
        results[-1] |= {name: piece for (name, _), piece in zip(samples, pieces, strict=True)}
    return results
