"""What the evaluators of all frameworks check: the loss, the weights that move, coordinates, the origin."""

from __future__ import annotations

import contextlib
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from collectors.errors import LandscapeError
from collectors.networks.weight_space import WeightSpace
from collectors.shapes import Float64

from ..errors import CallbackFunctionError, FrozenNetworkError, NondeterministicLossError, SamplesError
from ..measurement_options import MeasurementOptions
from ..metric_names import EXTREMES, metric_of
from ..pool import OriginValues
from ..samples.batches import Batch
from ..users_code import place_of
from .memory_shortage import is_memory_shortage

_Plane = TypeVar("_Plane")
_CLOSE = 1e-5
# Of a sample's loss. Rounding has no sign, so that a mean over many samples is much nearer.
_CLOSE_LOW_PRECISION = 2e-2
# A small loss is a difference of larger numbers (logits), whose rounding shows in it: a share of the loss elsewhere.
_NOISE = 1e-3
_OTHER_ARGUMENTS = ("required positional argument", "positional arguments but", "unexpected keyword argument")


def find_loss(model: object, expected: str) -> Callable[..., Any]:
    loss = getattr(model, "loss_fn", model)
    if isinstance(loss, type) or not callable(loss):
        raise wrong_loss(expected, loss)
    return loss


def wrong_loss(expected: str, loss: object) -> CallbackFunctionError:
    if isinstance(loss, type):
        shown = f"the class {loss.__name__} (make an object of it)"
    else:
        shown = f"{reprlib.repr(loss)} ({type(loss).__name__})"
    return CallbackFunctionError(f"the first item that callback_fn returns must be {expected}, but is {shown}.")


def check_movable(space: WeightSpace, remedy: str) -> None:
    if not space.trainable:
        raise FrozenNetworkError(
            f"network {space.network} has no trainable parameter, so there is no plane through its weights; {remedy}. "
            "callback_fn returns (loss or model, network, dataset, metrics), in this order."
        )
    wrong = [info.name for info in space.trainable if info.dtype.startswith("complex")]
    if wrong:
        raise TypeError(f"network must have real parameters, but {wrong} are complex; view them as real numbers.")


def check_own_options(
    options: MeasurementOptions,
    framework: str,
    seeding: str,  # a sentence on what there is instead of seeds at each point
    *,
    precisions: Sequence[str] = ("float32",),
    recalibrates: bool = False,  # whether statistics are
) -> None:
    """Checks that options ask for nothing that a framework lacks."""
    if options.precision not in precisions:
        raise ValueError(
            f'precision="{options.precision}" is not available for {framework}. '
            'Use precision="float32" (it computes as it was built), and build the network itself in a lower precision '
            "if that is what you want to see; loss and metrics are computed in float32 then too."
        )
    if options.seed_each_point:
        raise ValueError(
            f"seed_each_point=True is available for PyTorch only, and this network is one of {framework}. {seeding}"
        )
    if options.buffers == "recalibrate" and not recalibrates:
        raise ValueError(
            f'buffers="recalibrate" is not available for {framework}; use buffers="fixed" (the origin\'s '
            "statistics everywhere)."
        )


def check_recalibration(has_statistics: bool, batches: Sequence[Batch]) -> list[str]:
    """Checks that running statistics can be recalibrated; returns what the user should know."""
    if not has_statistics:
        return ['buffers="recalibrate" changes nothing: the network has no normalization statistics.']
    if all(batch.size < 2 for batch in batches):
        raise SamplesError(
            'buffers="recalibrate" needs batches of at least two samples for its statistics, but the data set '
            'gives single ones; use more samples, larger batches or buffers="fixed".'
        )
    return []


def check_loaded(plane: _Plane | None) -> _Plane:
    """Returns what an evaluator keeps of the loaded plane."""
    if plane is None:
        raise RuntimeError("no plane is loaded; call load(origin, directions, buffers) before measuring.")
    return plane


def check_points(points: ArrayLike, axes: int | None) -> Float64[np.ndarray, "points axes"]:
    coordinates, count = np.asarray(points, np.float64), check_loaded(axes)
    if coordinates.ndim != 2 or coordinates.shape[1] != count:
        raise ValueError(f"points must have shape (points, {count}), but got {coordinates.shape}.")
    return coordinates


@dataclass(frozen=True)
class Closeness:
    """How close two equal values are that were added up over two partitions of the samples."""

    relative: float  # of the value
    noise: float  # of the largest value anywhere, because a small loss is a difference of larger numbers
    spread: float | None  # of the batches' standard deviation, where that shows more than noise; None does not ask
    telling: float  # how many times as much as is allowed batches must differ, for an agreement to mean something
    of_batch: float  # of the value of one batch

    def allowed(self, value: float, scale: float, spread: float = 0.0) -> float:
        """Returns how much equal values may differ; ``scale`` is the largest anywhere, ``spread`` that of batches."""
        noise = self.noise * scale
        share = self.relative * abs(value) if math.isfinite(value) else 0.0
        if self.spread is not None and spread > self.telling * noise:
            share = min(share, self.spread * spread)
        return noise + share


def partition_closeness(space: WeightSpace, samples: int, precision: str = "float32") -> Closeness:
    """Returns how close a network's values over two partitions of its samples are where they are equal."""
    if precision != "float32" or any(info.dtype not in ("float32", "float64") for info in space.trainable):
        relative = _CLOSE_LOW_PRECISION / math.sqrt(samples)
        return Closeness(relative, 0.1 * relative, None, 10.0, _CLOSE_LOW_PRECISION)
    return Closeness(_CLOSE, 0.1 * _CLOSE, 1e-3, 100.0, _CLOSE)


@contextlib.contextmanager
def callback_errors(what: str = "evaluated") -> Iterator[None]:
    """Turns what the user's network, loss and metrics raise into a CallbackFunctionError; a LandscapeError passes."""
    try:
        yield
    except LandscapeError:
        raise
    except Exception as error:
        remedy = ""
        if is_memory_shortage(error):
            remedy = " Memory ran out; give the data set in smaller batches, such as DataLoader(..., batch_size=16)."
        elif "same device" in str(error):
            remedy = (
                " A network whose parameters are on several devices stays as callback_fn has placed it: its forward "
                "must move activations from part to part. Or put all of it on one device."
            )
        elif isinstance(error, TypeError) and any(text in str(error) for text in _OTHER_ARGUMENTS):
            remedy = (
                " Batches are (inputs, targets); inputs that are a tuple are the network's arguments, and a dict's "
                "entries are its keywords. For a PyTorch network that is called in another way, return an OwnLoss "
                "(from workers) in place of the loss."
            )
        elif "Inference tensor" in str(error):
            remedy = " Leave torch.inference_mode before the network is built and measured."
        raise CallbackFunctionError(
            f"the network, loss and metrics that callback_fn returned cannot be {what} on its data set: "
            f"{type(error).__name__}: {error}{place_of(error)}{remedy}"
        ) from error


def closeness_elsewhere(precision: str, *, same_kind: bool = True) -> float:
    """Returns by what share a value may differ that other hardware (``same_kind`` or not) or other code computes."""
    if precision != "float32":
        # Each sample is rounded, and one that another class is given by that changes an accuracy at once.
        return _CLOSE_LOW_PRECISION
    return _CLOSE if same_kind else 10 * _CLOSE


def check_determinism(origins: Sequence[OriginValues], precision: str = "float32") -> dict[str, float]:
    """Compares origins within and between workers, NaN equal to NaN; returns the first worker's first measurement."""
    first, expected = origins[0], origins[0].measured.values[0]
    for origin in origins:
        tolerance = closeness_elsewhere(precision, same_kind=origin.device == first.device)
        where, elsewhere = f"on {origin.worker}", first.measured.elsewhere
        for values in origin.measured.values:
            check_same_values("the origin", expected, values, where, tolerance, elsewhere=elsewhere)
            check_same_values("the origin", origin.measured.values[0], values, where, elsewhere=elsewhere)
        for values in origin.measured.repeated:
            before = origin.measured.repeated[0]
            check_same_values("the origin", before, values, where, elsewhere=origin.measured.elsewhere)
    return expected


def check_same_values(
    what: str,
    expected: Mapping[str, float],
    again: Mapping[str, float],
    where: str,
    tolerance: float = _CLOSE,
    *,
    elsewhere: Mapping[str, float] | None = None,
) -> None:
    """Compares two measurements of one set of weights, NaN equal to NaN; ``elsewhere`` shows how large values get."""
    for name, value in expected.items():
        if name in EXTREMES:
            continue  # a search that ends a step earlier differs by its tolerance; products are checked by themselves
        other, far = again[name], abs((elsewhere or {}).get(name, 0.0))
        # A standard error is a difference of nearly equal sums, so it is looser than the values it comes from.
        allowed = tolerance if metric_of(name) != "loss_stderr" else 100 * tolerance
        noise = _NOISE * allowed * far if math.isfinite(far) else 0.0
        if not np.isclose(value, other, rtol=allowed, atol=noise, equal_nan=True):
            raise NondeterministicLossError(
                f"{what} was measured twice with the same weights and samples, but {name} is {value!r} and then "
                f"{other!r} {where}. Likely causes: a forward pass that draws random numbers in eval mode, a "
                "callback_fn that builds another data set or loss each time (set its seeds), a network that changes "
                "its own state while it is evaluated, or other hardware with other kernels. Make the evaluation "
                "deterministic and run again. Where a PyTorch network's loss draws on purpose (a VAE, diffusion, "
                "dropout that stays on), seed_each_point=True lets it draw the same numbers at every point, unless it "
                "draws them from a generator of its own."
            )
