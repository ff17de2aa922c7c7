"""Samples dealt out to fixed shares, so that no sum over them depends on who computes which; products over these."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..curvature.products import COMPUTED_IN_FLOAT32, SHARE_FOR_VECTORS, ProductSettings, ShareProducts
from ..hardware import free_memory
from ..samples.batches import Batch, cut
from .memory_shortage import halved, is_memory_shortage

_Result = TypeVar("_Result")
# Fewer samples at once cost more each; two workers always get halves.
_FEWEST_SAMPLES = 256
_MOST_JOINED = 4


@dataclass(frozen=True)
class Piece:
    """Samples of one share in one batch: of the batch with this number, from ``start`` to ``stop``."""

    batch: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


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
                self.pieces += [Piece(number, 0, sizes[number]) for number in numbers]
            else:
                start, stop = (self.count * (end // joined * joined) // shares for end in (share, share + joined))
                stop = start if share % joined else stop
                # Pieces are counted from where their share begins: few lengths, where each is compiled for.
                for number, (begin, size) in enumerate(zip(begins, sizes, strict=False)):
                    parts = range(max(start - begin, 0), min(stop - begin, size), longest or max(size, 1))
                    self.pieces += [Piece(number, piece, min(piece + parts.step, parts.stop)) for piece in parts]
            self.shares.append(range(first, len(self.pieces)))

    def batch(self, number: int) -> Batch:
        piece = self.pieces[number]
        batch = self._batches[piece.batch]
        return batch if self._whole else cut(batch, piece.start, piece.stop)

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
        return sum(self._samples.pieces[number].size for number in self._samples.shares[share])

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
