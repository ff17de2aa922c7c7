"""CUDA graphs: found out first whether work can be recorded, then recorded, with nothing left behind if that fails."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

# Tried on one NVIDIA H100 with PyTorch 2.11, except that random generators draw again after a recording that failed.
_WARM_UP = 3
# The allocator of pinned memory keeps asking a recording that could not be ended, and PyTorch has no way to stop it.
_FAILED: list[torch.cuda.CUDAGraph] = []


def capture_cuda_graph(work: Callable[[], torch.Tensor], device: torch.device) -> Callable[[], torch.Tensor]:
    """Records work that always uses the same memory; returns what repeats it. RuntimeError: it cannot be recorded."""
    with torch.cuda.device(device):
        before = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(before)
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):  # libraries choose their kernels and get their memory before the recording
                work()
            # What waits is found here, where an exception costs nothing; in a recording it breaks that.
            with waiting_is_an_error():
                work()
        before.wait_stream(side)
        graph, result = _recorded(work, side, before, device)

    def replay() -> torch.Tensor:
        graph.replay()
        return result

    return replay


@contextlib.contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """Makes most of what waits for a GPU raise, such as ``.item()`` and a copy to the host."""
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode(2)
    try:
        yield
    finally:
        _set_sync_debug_mode(before)


def _set_sync_debug_mode(mode: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is a prototype, which does not see everything
        torch.cuda.set_sync_debug_mode(mode)


def _recorded(
    work: Callable[[], torch.Tensor], side: torch.cuda.Stream, before: torch.cuda.Stream, device: torch.device
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    first: BaseException | None = None
    try:
        # Without a stream of its own, PyTorch takes one that belongs to the device of the process's first recording.
        with torch.cuda.graph(graph, pool=pool, stream=side):
            try:
                result = work()
            except BaseException as error:
                first = error  # leaving the recording raises another one, which says less
                raise
    except BaseException as error:
        _clean_up(graph, pool, before, device)
        raise (first or error)  # noqa: B904
    return graph, result


def _clean_up(graph: torch.cuda.CUDAGraph, pool: Any, before: torch.cuda.Stream, device: torch.device) -> None:
    """Does what PyTorch leaves undone where a recording cannot be ended: stream, random generators, allocator."""
    torch.cuda.set_stream(before)
    graph.reset()
    _FAILED.append(graph)
    generator = torch.cuda.default_generators[device.index]
    generator.graphsafe_set_state(generator.clone_state())  # the copy does not wait for the recording to end
    end, release = (getattr(torch._C, f"_cuda_{name}", None) for name in ("endAllocateToPool", "releasePool"))
    if end is not None and release is not None:
        with contextlib.suppress(RuntimeError):  # it was ended
            end(device.index, pool)
            release(device.index, pool)
