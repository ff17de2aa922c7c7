"""What evaluators of every framework check alike."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from collectors.errors import LandscapeError
from collectors.network_state import WeightSpace

from .errors import CallbackFunctionError, FrozenNetworkError
from .memory_shortage import is_memory_shortage

if TYPE_CHECKING:
    from jaxtyping import Float64
    from numpy.typing import ArrayLike

_CLOSE = 1e-5
_CLOSE_LOW_PRECISION = 2e-2


def check_movable(space: WeightSpace, remedy: str) -> None:
    """Checks that a network has real, trainable parameters.

    Args:
        space: the network's description.
        remedy: how a parameter is made trainable, the end of the error's text.

    Raises:
        FrozenNetworkError: no parameter is trainable.
        TypeError: a trainable parameter is complex.
    """
    if not space.trainable:
        raise FrozenNetworkError(
            f"network {space.network} has no trainable parameter, so there is no plane through its weights; {remedy}. "
            "callback_fn returns (loss or model, network, dataset, metrics), in this order."
        )
    wrong = [info.name for info in space.trainable if info.dtype.startswith("complex")]
    if wrong:
        raise TypeError(f"network must have real parameters, but {wrong} are complex; view them as real numbers.")


def check_loaded(axes: int | None) -> int:
    """Returns how many axes the loaded plane has.

    Raises:
        RuntimeError: none is loaded.
    """
    if axes is None:
        raise RuntimeError("no plane is loaded; call load(origin, directions, buffers) before measuring.")
    return axes


def check_points(points: ArrayLike, axes: int | None) -> Float64[np.ndarray, "points axes"]:
    """Returns coordinates on the loaded plane as float64, shape (points, axes).

    Raises:
        RuntimeError: no plane is loaded.
        ValueError: they have another shape.
    """
    found, count = np.asarray(points, np.float64), check_loaded(axes)
    if found.ndim != 2 or found.shape[1] != count:
        raise ValueError(f"points must have shape (points, {count}), but got {found.shape}.")
    return found


def partition_tolerance(space: WeightSpace) -> float:
    """Returns up to which relative difference two partitions of the samples give the same value."""
    low = any(info.dtype not in ("float32", "float64") for info in space.trainable)
    return _CLOSE_LOW_PRECISION if low else _CLOSE


@contextlib.contextmanager
def callback_errors(what: str = "evaluated") -> Iterator[None]:
    """Says of whatever the user's network, loss and metrics raise that they did.

    Args:
        what: what was tried with them.

    Raises:
        CallbackFunctionError: they raised something other than a ``LandscapeError``.
    """
    try:
        yield
    except LandscapeError:
        raise
    except Exception as error:
        remedy = ""
        if is_memory_shortage(error):
            remedy = " Memory ran out; give the data set in smaller batches, such as DataLoader(..., batch_size=16)."
        raise CallbackFunctionError(
            f"the network, loss and metrics that callback_fn returned cannot be {what} on its data set: "
            f"{type(error).__name__}: {error}{remedy}"
        ) from error
