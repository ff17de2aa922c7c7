"""What the evaluators of all frameworks check: the loss, the weights that move, coordinates, the origin."""

from __future__ import annotations

import contextlib
import reprlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from collectors.errors import LandscapeError
from collectors.networks.weight_space import WeightSpace

from ..errors import CallbackFunctionError, FrozenNetworkError, NondeterministicLossError
from ..pool import OriginValues
from .memory_shortage import is_memory_shortage

if TYPE_CHECKING:
    from jaxtyping import Float64
    from numpy.typing import ArrayLike


_Plane = TypeVar("_Plane")
_CLOSE = 1e-5
_CLOSE_LOW_PRECISION = 2e-2


def find_loss(model: object, expected: str) -> Callable[..., Any]:
    """Returns the loss function: ``model.loss_fn``, or the model itself.

    Args:
        model: the first item that callback_fn returned.
        expected: what it must be, for an error's text.

    Raises:
        CallbackFunctionError: it has no loss function.
    """
    loss = getattr(model, "loss_fn", model)
    if isinstance(loss, type) or not callable(loss):
        raise wrong_loss(expected, loss)
    return loss


def wrong_loss(expected: str, found: object) -> CallbackFunctionError:
    """Returns the error for a first item that is not a loss."""
    if isinstance(found, type):
        shown = f"the class {found.__name__} (make an object of it)"
    else:
        shown = f"{reprlib.repr(found)} ({type(found).__name__})"
    return CallbackFunctionError(f"the first item that callback_fn returns must be {expected}, but is {shown}.")


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


def check_loaded(plane: _Plane | None) -> _Plane:
    """Returns what an evaluator keeps of the loaded plane.

    Raises:
        RuntimeError: none is loaded.
    """
    if plane is None:
        raise RuntimeError("no plane is loaded; call load(origin, directions, buffers) before measuring.")
    return plane


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
    """Turns what the user's network, loss and metrics raise into an error that says so.

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


def check_determinism(origins: Sequence[OriginValues]) -> dict[str, float]:
    """Compares the origin's measurements within and between workers; NaN equals NaN.

    Returns:
        The first worker's first measurement.

    Raises:
        NondeterministicLossError: two of them differ by more than rtol=1e-5, atol=1e-7 (1e-4 between device types).
    """
    first = origins[0]
    for origin in origins:
        tolerance = 1e-5 if origin.device == first.device else 1e-4
        for values in origin.values:
            check_same_values("the origin", first.values[0], values, f"on {origin.worker}", tolerance)
    return first.values[0]


def check_same_values(
    what: str, expected: dict[str, float], found: dict[str, float], where: str, tolerance: float = 1e-5
) -> None:
    """Raises NondeterministicLossError when two measurements of the same weights differ."""
    for name, value in expected.items():
        other = found[name]
        # A standard error is a difference of nearly equal sums, so it is looser than the values it comes from.
        allowed = tolerance if name != "loss_stderr" else 100 * tolerance
        if not np.isclose(value, other, rtol=allowed, atol=1e-7, equal_nan=True):
            raise NondeterministicLossError(
                f"{what} was measured twice with the same weights and samples, but {name} is {value!r} and then "
                f"{other!r} {where}. Likely causes: a forward pass that draws random numbers in eval mode, a "
                "callback_fn that builds another data set or loss each time (set its seeds), a network that changes "
                "its own state while it is evaluated, or other hardware with other kernels. Make the evaluation "
                "deterministic and run again."
            )
