"""Memory that runs out while points are measured: the batches are halved until it suffices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from collectors.errors import LandscapeError

from ..errors import MemoryShortageError, first_line

_Measured = TypeVar("_Measured")
# What PyTorch, C++, XLA, MindSpore and the operating system say, in small letters; there is no common class.
_TEXTS = (
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
    "memory not enough",
    "resource_exhausted",
    "cannot allocate memory",
    # NVIDIA's libraries have statuses of their own: cuBLAS, cuSOLVER, cuSPARSE and cuDNN up to 8, then cuDNN from 9 on.
    # What else may be a shortage ("unable to find an engine", CUDNN_STATUS_INTERNAL_ERROR alone) may be anything.
    "_status_alloc_failed",
    "cudnn_status_internal_error_device_allocation_failed",
    "cudnn_status_internal_error_host_allocation_failed",
)


def is_memory_shortage(error: BaseException | None) -> bool:
    """Returns whether an exception, or what caused it, means that memory ran out: a device's or the host's."""
    while error is not None:
        if isinstance(error, MemoryError) or any(text in str(error).lower() for text in _TEXTS):
            return True
        error = error.__cause__ or error.__context__
    return False


def use_batch_size(evaluator: Any, batch_size: int) -> None:
    """Lets an evaluator, or a data set, measure in smaller batches; one whose batches cannot be cut stays as it is."""
    if hasattr(evaluator, "use_batch_size"):
        evaluator.use_batch_size(batch_size)


def within_memory(evaluator: Any, measure: Callable[[], _Measured]) -> _Measured:
    """Calls ``measure`` until memory suffices, and halves the evaluator's batches before each further call."""
    samples = evaluator.description.num_samples
    while True:
        size = evaluator.description.plan.batch_size
        try:
            return measure()
        except Exception as error:
            if not is_memory_shortage(error):
                raise
            if size is None or min(size, samples) < 2:
                raise MemoryShortageError(_text(size)) from error
        # Only here is the exception gone, and with it the memory that its frames held.
        use_batch_size(evaluator, halved(size, samples))
        if evaluator.description.plan.batch_size == size:
            raise MemoryShortageError(_text(size))


@contextlib.contextmanager
def getting_ready(what: str) -> Iterator[None]:
    """Gives a shortage of memory before any point is measured an error that says what was being done, a clause."""
    try:
        yield
    except LandscapeError:
        raise
    except Exception as error:
        if not is_memory_shortage(error):
            raise
        raise MemoryShortageError(
            f"memory ran out while {what} ({first_line(error)}). Give the "
            "workers more memory: fewer device_ids on one machine, fewer samples (num_samples), a line instead of a "
            "plane, or a network that callback_fn spreads over several devices (devices_per_worker)."
        ) from error


def halved(batch_size: int, samples: int) -> int:
    return (min(batch_size, samples) + 1) // 2


def shortage_text(before: int | None, after: int | None) -> str:
    return (
        f"memory ran out in batches of {before} samples; every worker measures in batches of {after} from here on, and "
        "the file's measurement plan says so. That changes a loss in its last digits at most."
    )


def _text(size: int | None) -> str:
    batches = f"in batches of {size}" if size is not None else "in the data set's own batches, which cannot be cut"
    return (
        f"memory ran out while a point was measured {batches}. The point is marked as failed; the same call measures "
        "it again. Give the workers more memory: fewer device_ids on one machine, a smaller batch_size of the data "
        "set, or a larger machine."
    )
