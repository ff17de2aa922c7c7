"""The fixed set of samples that every point is measured on."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from .batches import Batch, cut, leaf_bytes, leaves, map_batch


class Samples:
    """Samples in the loader's own batches or cut anew.

    Args:
        batches: the loader's own batches.
        whole: all samples as one batch, or None where batches do not fit together (padded to their own lengths).
    """

    def __init__(self, batches: list[Batch], whole: Batch | None) -> None:
        self.count = sum(batch.size for batch in batches)
        self._whole = whole
        self.own_batches = batches if whole is None else _cut_like(whole, [batch.size for batch in batches])

    @property
    def can_be_cut(self) -> bool:
        """Whether batches of another size can be made."""
        return self._whole is not None

    def batches(self, batch_size: int | None) -> list[Batch]:
        """Returns the samples in batches of that size (views, no copies); None or ragged: the loader's own."""
        if batch_size is None or self._whole is None:
            return self.own_batches
        return [cut(self._whole, start, start + batch_size) for start in range(0, self.count, batch_size)]

    def other_batches(self) -> list[Batch]:
        """Returns the samples in other batches than the loader's own, of unequal sizes where that is possible."""
        if self._whole is None:
            return [piece for batch in self.own_batches for piece in _two_pieces(batch)]
        largest = max(batch.size for batch in self.own_batches)
        if largest > 2:
            return self.batches((2 * largest + 2) // 3)
        # Batches of one or two samples can only be joined, unless there is no other.
        return self.batches(largest + 1 if len(self.own_batches) > 1 else 1)

    def sha256(self, *, with_batches: bool) -> str:
        """Returns the SHA-256 of all samples.

        Args:
            with_batches: whether the sizes of the loader's own batches count too.
        """
        digest = hashlib.sha256()
        for batch in [self._whole] if self._whole is not None else self.own_batches:
            for leaf in leaves((batch.inputs, batch.targets)):
                kind, values = leaf_bytes(leaf) or (type(leaf).__name__, b"")
                digest.update(kind.encode())
                digest.update(values)
        if with_batches:
            digest.update(repr([batch.size for batch in self.own_batches]).encode())
        return digest.hexdigest()

    def map(self, function: Callable[[Any], Any]) -> Samples:
        """Returns the samples with every array replaced; their number and batches stay."""
        if self._whole is None:
            return Samples([map_batch(function, batch) for batch in self.own_batches], None)
        return Samples(self.own_batches, map_batch(function, self._whole))


def _cut_like(whole: Batch, sizes: Sequence[int]) -> list[Batch]:
    return [cut(whole, start, start + size) for start, size in zip(itertools.accumulate(sizes, initial=0), sizes)]  # noqa: B905


def _two_pieces(batch: Batch) -> list[Batch]:
    if batch.size < 2:
        return [batch]
    middle = min((2 * batch.size + 2) // 3, batch.size - 1)
    return [cut(batch, 0, middle), cut(batch, middle, batch.size)]
