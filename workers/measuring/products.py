"""Samples dealt out to fixed shares, so that no sum over them depends on who computes which; products over these."""

from __future__ import annotations

import contextlib
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from collectors.errors import LandscapeError
from collectors.networks.weight_space import State, WeightSpace, direction_dtype
from collectors.shapes import Float64

from ..curvature.products import (
    COMPUTED_IN_FLOAT32,
    SHARE_FOR_VECTORS,
    SHARES,
    WITHOUT_GRADIENTS,
    Layout,
    ProductSettings,
    ShareProducts,
    Vector,
)
from ..errors import CurvatureError
from ..hardware import free_memory
from ..samples.batches import Batch, cut
from .measured_set import MeasuredSet
from .memory_shortage import halved, is_memory_shortage

Measuring: TypeAlias = Callable[[], contextlib.AbstractContextManager[None]]
"""Makes the context in which everything is computed."""
_Result = TypeVar("_Result")
# Fewer samples at once cost more each; two workers always get halves.
_FEWEST_SAMPLES = 256
_MOST_JOINED = 4


@dataclass(frozen=True)
class Piece:
    """Samples of one share in one batch: of the batch with this number, these."""

    batch: int
    samples: range


class SharedBatches:
    """Batches in pieces, numbered in order, of which none belongs to two shares."""

    def __init__(self, batches: Sequence[Batch], shares: int, *, whole: bool, longest: int | None = None) -> None:
        self._batches, self._whole = batches, whole
        sizes = [batch.size for batch in batches]
        begins = [0, *itertools.accumulate(sizes)]
        self.count = begins[-1]  # how many samples there are
        self.pieces: list[Piece] = []
        self.shares: list[range] = []  # of each share, the numbers of its pieces
        # Of few samples, two or four neighbouring shares are one, and the others of these have none.
        joined = 1
        while not whole and 2 * joined <= _MOST_JOINED and self.count * joined < shares * _FEWEST_SAMPLES:
            joined *= 2
        for share in range(shares):
            first = len(self.pieces)
            # Batches to which a loss belongs are kept; otherwise shares have the same samples in any batch size.
            if whole:
                numbers = range(len(sizes) * share // shares, len(sizes) * (share + 1) // shares)
                self.pieces += [Piece(number, range(sizes[number])) for number in numbers]
            else:
                start, stop = (self.count * (end // joined * joined) // shares for end in (share, share + joined))
                stop = start if share % joined else stop
                # Pieces are counted from where their share begins: few lengths, where each is compiled for.
                for number, (begin, size) in enumerate(zip(begins, sizes, strict=False)):
                    parts = range(max(start - begin, 0), min(stop - begin, size), longest or max(size, 1))
                    self.pieces += [Piece(number, range(at, min(at + parts.step, parts.stop))) for at in parts]
            self.shares.append(range(first, len(self.pieces)))

    def batch(self, number: int) -> Batch:
        piece = self.pieces[number]
        batch = self._batches[piece.batch]
        return batch if self._whole else cut(batch, piece.samples.start, piece.samples.stop)

    def parts(self, share: int, few: int) -> Iterator[tuple[int, Batch]]:
        """Yields a share's samples, a few at a time, with the number of their piece; pieces that are whole stay so."""
        for number in self.shares[share]:
            piece = self.batch(number)
            if self._whole:
                yield number, piece
                continue
            for start in range(0, piece.size, few):
                yield number, cut(piece, start, min(start + few, piece.size))


class BatchedProducts(ShareProducts):
    """Products of a framework, made batch by batch, in smaller batches where memory runs out."""

    def __init__(self, settings: ProductSettings, batch_size: int | None, *, is_widened: bool) -> None:
        self._settings = settings
        self._use_batch_size(batch_size)
        self._notes = [COMPUTED_IN_FLOAT32] if is_widened else []

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    @property
    def memory_for_vectors(self) -> float:
        """This worker's part of a quarter of the host's free memory, whatever else products take."""
        return SHARE_FOR_VECTORS * free_memory() / self._settings.neighbours

    def loss(self, share: int) -> tuple[float, float | None]:
        def add() -> tuple[float, float | None]:
            parts = [self._loss_of(number) for number in self._samples.shares[share]]
            weights = [weight for _, weight in parts if weight is not None]
            return sum((value for value, _ in parts), 0.0), sum(weights) if weights else None

        return self._within_memory(add)

    @abstractmethod
    def _loss_of(self, number: int) -> tuple[float, float | None]:
        """Returns the sum of losses of a piece with this number, and its weight, as ``loss`` does."""

    def samples_in(self, share: int) -> int:
        return sum(len(self._samples.pieces[number].samples) for number in self._samples.shares[share])

    @abstractmethod
    def _shared(self, batch_size: int | None) -> SharedBatches:
        """Returns the samples in batches of that size; None for the data set's own batches."""

    def _use_batch_size(self, batch_size: int | None) -> None:
        self._batch_size, self._samples = batch_size, self._shared(batch_size)

    def _keeps_memory(self) -> bool:
        """Returns whether ``_free_memory`` would free memory."""
        return False

    def _free_memory(self) -> None:
        """Frees what is kept from product to product."""

    def _within_memory(self, work: Callable[[], _Result]) -> _Result:
        """Returns what some work gives: with less that is kept, then in smaller batches, where memory runs out."""
        while True:
            try:
                with self.together():
                    return work()
            except Exception as error:
                size, keeps_memory = self._batch_size, self._keeps_memory()
                if not is_memory_shortage(error) or not (keeps_memory or (size is not None and size > 1)):
                    raise
            self._free_memory()
            if not keeps_memory and size is not None:
                smaller = halved(size, self._samples.count)
                self._notes.append(f"memory ran out: the curvature is computed in batches of {smaller} samples.")
                self._use_batch_size(smaller)


class ArrayGradients(BatchedProducts):
    """Gradients in at least float32, added up over single batches; of which products are made, a subclass says."""

    # What cannot differentiate everything, what it raises then, and a sentence on what to replace, with a space behind.
    differentiator: str
    times = "twice"  # how often products need that
    refusals: tuple[type[Exception], ...] = (TypeError, ValueError, NotImplementedError)
    remedy = ""
    to_array: Callable[[Any], Any] = staticmethod(np.asarray)
    normalizes_by_batch = False  # whether the network computes with the statistics of each batch

    def __init__(
        self, space: WeightSpace, measured: MeasuredSet, measuring: Measuring, settings: ProductSettings
    ) -> None:
        trainable = [info for info in space.trainable if info.size]
        self.dtypes = {info.name: direction_dtype(info.dtype) for info in trainable}
        dtype = "float64" if np.dtype(np.float64) in self.dtypes.values() else "float32"
        self._layout = Layout(tuple(self.dtypes), tuple(info.shape for info in trainable), dtype)
        self._measured, self._measuring = measured, measuring
        is_widened = any(self.dtypes[info.name].name != info.dtype for info in trainable)
        super().__init__(settings, measured.batch_size, is_widened=is_widened)

    @abstractmethod
    def loss_of(self, batch: Batch) -> tuple[Any, Any]:
        """Returns a batch's sum of losses and its weight, as ``Total.differentiable`` does."""

    @abstractmethod
    def slope_of(self, batch: Batch) -> tuple[Any, Any, Sequence[Any]]:
        """Returns what ``loss_of`` does, and the gradient of the sum, an array for each of the layout's names."""

    @property
    def layout(self) -> Layout:
        return self._layout

    def _loss_of(self, number: int) -> tuple[float, float | None]:
        return self._as_numbers(*self.loss_of(self._samples.batch(number)))

    def gradient(self, share: int) -> Float64[np.ndarray, " weights"]:
        return self._sum(share, lambda batch: self.slope_of(batch)[2])

    def loss_and_gradient(self, batch: Batch) -> tuple[float, float | None, Float64[np.ndarray, " weights"]]:
        """Returns a batch's sum of losses, its weight, and the gradient of the sum, shape (weights,)."""
        *numbers, slope = self.slope_of(batch)
        return *self._as_numbers(*numbers), self._flat(slope)

    def _as_numbers(self, value: Any, weight: Any) -> tuple[float, float | None]:
        return float(self.to_array(value)), None if weight is None else float(self.to_array(weight))

    def _flat(self, arrays: Sequence[Any]) -> Float64[np.ndarray, " weights"]:
        return np.concatenate([np.ravel(self.to_array(array)) for array in arrays]).astype(np.float64, copy=False)

    def _sum(self, share: int, part: Callable[[Batch], Sequence[Any]]) -> Float64[np.ndarray, " weights"]:
        def add() -> Float64[np.ndarray, " weights"]:
            total = np.zeros(self._layout.dimension)
            for number in self._samples.shares[share]:
                total += self._flat(part(self._samples.batch(number)))
            return total

        return self._within_memory(add)

    def _shared(self, batch_size: int | None) -> SharedBatches:
        samples = self._measured.samples
        # One batch of all samples is a view of them; its pieces have three lengths at most.
        batches = samples.batches(None if batch_size is None else samples.count)
        return SharedBatches(batches, SHARES, whole=batch_size is None, longest=batch_size)

    def together(self) -> contextlib.AbstractContextManager[None]:
        return self.differentiating(self.times, f"Or {WITHOUT_GRADIENTS}.", CurvatureError)

    @contextlib.contextmanager
    def differentiating(self, times: str, instead: str, kind: type[LandscapeError]) -> Iterator[None]:
        """Computes in the network's settings; what cannot be differentiated is an error of that kind."""
        with self._measuring():
            try:
                yield
            except CurvatureError as error:
                if kind is CurvatureError:
                    raise
                raise kind(str(error)) from error
            except self.refusals as error:
                raise kind(
                    f"{self.differentiator} cannot differentiate the network or the loss {times} ({error}). "
                    f"{self.remedy}{instead}"
                ) from error


class WrittenGradients(ArrayGradients):
    """Gradients of an ``ArrayNetwork``, which is moved by writing its weights, and ends as it was found."""

    framework: str
    without_gauss_newton: str  # a clause on why the network has no Gauss-Newton matrix

    def __init__(self, network: Any, measured: MeasuredSet, measuring: Measuring, settings: ProductSettings) -> None:
        if settings.matrix != "hessian":
            raise CurvatureError(
                f'matrix must be "hessian" for a {self.framework} network, but is {settings.matrix!r}: the '
                f"Gauss-Newton matrix {self.without_gauss_newton}."
            )
        check_precise(network.space, CurvatureError, f"Or {WITHOUT_GRADIENTS}.")
        self._network, self._before = network, network.read()
        super().__init__(network.space, measured, measuring, settings)

    def move(self, parameters: State, buffers: State | None) -> None:
        self._network.write({**parameters, **(buffers or {})})

    def close(self) -> None:
        self._network.write(self._before)


class ArrayProducts(ArrayGradients):
    """Products in at least float32, made of the second derivatives of single batches."""

    @abstractmethod
    def product_of(self, batch: Batch, along: Mapping[str, Vector]) -> Sequence[Any]:
        """Returns the matrix of a batch's sum of losses times a vector, in arrays as the gradient."""

    def product(self, vector: Vector, share: int, *, few: int = 0) -> Float64[np.ndarray, " weights"]:
        # Of all samples, however few suffice: some frameworks compile for each length of a batch.
        along = {name: part.astype(self.dtypes[name]) for name, part in self.layout.as_state(vector).items()}
        return self._sum(share, lambda batch: self.product_of(batch, along))


def check_precise(space: WeightSpace, kind: type[LandscapeError], instead: str) -> None:
    """Raises an error of that kind where weights have too few digits for derivatives, with a sentence on what to do."""
    dtypes = {info.dtype for info in space.trainable if info.size}
    if narrow := sorted(dtype for dtype in dtypes if direction_dtype(dtype).name != dtype):
        raise kind(
            f"the network's weights are {narrow[0]}, in which derivatives are rounding; build it in float32, into "
            f"which the same checkpoints are loaded. {instead}"
        )
