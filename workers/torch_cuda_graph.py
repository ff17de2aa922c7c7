"""Records everything that a point takes as one CUDA graph: the move, the forward pass, the sums (PyTorch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

Capture: TypeAlias = Callable[[Callable[[], torch.Tensor]], Callable[[], torch.Tensor]]

_WARM_UP = 3
_CLOSE = 1e-5


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
