"""The loss of each sample at the points of a landscape, as it is kept, and as a user reads it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Bool, Float32, Float64
from workers.evaluator import KeptSamples
from workers.measuring.sample_loss import mean_and_stderr

from .sample_chunks import ITEM, Chunks, SpooledChunks, packed, unpacked

UNNAMED = "main"
"""What the data set is called in a file whose only one has no name."""
LARGEST_BYTES = 2**31
"""Of all losses of samples in one file, before they are compressed."""


@dataclass(eq=False, repr=False)
class KeptLosses:
    """The loss of each sample of one data set at every measured point; nothing is read before it is asked for.

    Attributes:
        name: of the data set.
        count: how many samples.
        targets: of each, int64[samples]; None where targets are not one whole number for each sample.
        weights: how much each counts in the mean, float64[samples]; None where all count alike.
        is_sum: whether the loss of all samples is a sum, and no mean.
    """

    name: str
    shape: tuple[int, ...]
    count: int
    targets: NDArray[np.int64] | None = None
    weights: NDArray[np.float64] | None = None
    chunks: Chunks = field(default_factory=SpooledChunks)
    is_sum: bool = False

    def __post_init__(self) -> None:
        for array in (self.targets, self.weights):
            if array is not None:
                array.flags.writeable = False

    def __repr__(self) -> str:
        grid = " x ".join(map(str, self.shape))
        return f"KeptLosses({self.name!r}: {self.count} samples at {len(self.chunks)} of {grid} points)"

    def __deepcopy__(self, memo: object) -> KeptLosses:
        # What is kept is only added to, so that both may read it.
        return replace(self, chunks=self.chunks.twin())

    @property
    def measured(self) -> Bool[np.ndarray, "*grid"]:
        """Which points have losses of samples, shape (ny, nx)."""
        found = np.zeros(self.shape, np.bool_)
        found.reshape(-1)[list(self.chunks)] = True
        return found

    def at(self, *place: int) -> Float32[np.ndarray, " samples"]:
        """Returns each sample's loss at one point, shape (samples,); NaN where it is not measured.

        Args:
            place: row and column of the point, as in ``loss[row, column]``; on a line its index alone.

        Raises:
            IndexError: the grid has no such point.
            LandscapeError: the landscape's file was changed or removed since it was read.
        """
        if len(place) != len(self.shape):
            raise IndexError(f"a point of this grid has {len(self.shape)} indices, but got {place}.")
        inside = [range(size)[index] for index, size in zip(place, self.shape, strict=True)]
        flat = int(np.ravel_multi_index(inside, self.shape))
        if flat not in self.chunks:
            return np.full(self.count, np.nan, np.float32)
        ((_, chunk),) = self.chunks.items([flat])
        return unpacked(chunk, self.count)

    def losses(self) -> Float32[np.ndarray, "*grid samples"]:
        """Returns each sample's loss at every point, shape (ny, nx, samples); NaN where it is not measured.

        Raises:
            LandscapeError: the landscape's file was changed or removed since it was read.
        """
        found = np.full((math.prod(self.shape), self.count), np.nan, np.float32)
        for flat, chunk in self.chunks.items():
            found[flat] = unpacked(chunk, self.count)
        return found.reshape(*self.shape, self.count)

    def difference(self, first: tuple[int, ...] | int, second: tuple[int, ...] | int) -> tuple[float, float]:
        """Returns by how much the loss differs between two points, and the standard error of that over samples.

        The same samples are compared at both points, so that what makes one sample harder than another drops out; the
        standard errors of the two losses alone do not know that, and are often several times as large.

        Args:
            first: row and column of a point; on a line its index.
            second: of the point whose loss is subtracted.
        """
        places = [place if isinstance(place, tuple) else (place,) for place in (first, second)]
        return self._paired(*(self.at(*place) for place in places))

    @property
    def counted(self) -> Bool[np.ndarray, " samples"]:
        """Which samples count; the loss of others, of an ignored target for instance, is NaN."""
        return np.ones(self.count, bool) if self.weights is None else self.weights > 0

    def paired_errors(self, other: KeptLosses) -> Float64[np.ndarray, "*grid"]:
        """Returns the standard error of this loss minus another of the same samples; NaN where either is missing."""
        found = np.full(math.prod(self.shape), np.nan)
        both = [flat for flat in self.chunks if flat in other.chunks]
        for (flat, chunk), (_, others) in zip(self.chunks.items(both), other.chunks.items(both), strict=True):
            found[flat] = self._paired(unpacked(chunk, self.count), unpacked(others, self.count))[1]
        return found.reshape(self.shape)

    def _paired(self, first: NDArray[np.float32], second: NDArray[np.float32]) -> tuple[float, float]:
        weights = np.ones(self.count) if self.weights is None else self.weights
        with np.errstate(invalid="ignore"):
            gaps = np.where(self.counted, first.astype(np.float64) - second, 0.0)
        _, difference, error = mean_and_stderr(gaps * weights, weights, "sum" if self.is_sum else "mean")
        return float(difference), float(error)

    def store(self, flat: int, losses: Float32[np.ndarray, " samples"]) -> None:
        """Keeps the losses at a point, by its flat index in C order."""
        if losses.shape != (self.count,):
            raise ValueError(f"losses must have the shape ({self.count},), but got {losses.shape}.")
        self.chunks.add(flat, packed(losses))

    def take(self, other: KeptLosses, flats: Iterable[int]) -> None:
        """Keeps the losses that another one has at points, by their flat indices in C order."""
        for flat, chunk in other.chunks.items(flats):
            self.chunks.add(flat, chunk)

    def moved(self, shape: tuple[int, ...], places: Mapping[int, int]) -> KeptLosses:
        """Returns the losses on another grid; ``places`` maps the flat index of each kept point to a new one."""
        kept = self.chunks.items(flat for flat in self.chunks if flat in places)
        return replace(self, shape=shape, chunks=SpooledChunks((places[flat], chunk) for flat, chunk in kept))

    def detached(self) -> KeptLosses:
        """Returns the losses apart from any landscape file, so that their file can be replaced."""
        is_apart = isinstance(self.chunks, SpooledChunks)
        return self if is_apart else replace(self, chunks=SpooledChunks(self.chunks.readable()))

    def check(self, shape: tuple[int, ...]) -> None:
        if self.shape != shape:
            raise ValueError(f"losses of samples must be of the grid {shape}, but are of {self.shape}.")
        for label, array in (("targets", self.targets), ("weights", self.weights)):
            if array is not None and array.shape != (self.count,):
                raise ValueError(f"{label} of samples must have the shape ({self.count},), but got {array.shape}.")


def kept_losses(description: Iterable[KeptSamples], shape: tuple[int, ...]) -> dict[str, KeptLosses]:
    """Returns what a survey fills with the losses of samples, by the data set's name, the main one first."""
    found = {}
    check_size(shape, {item.name or UNNAMED: item.count for item in description})
    for item in description:
        targets = np.frombuffer(item.targets, "<i8").astype(np.int64) if item.targets else None
        weights = np.frombuffer(item.weights, "<f8").astype(np.float64) if item.weights else None
        name = item.name or UNNAMED
        found[name] = KeptLosses(name, shape, item.count, targets, weights, is_sum=item.is_sum)
    return found


def check_size(shape: tuple[int, ...], counts: Mapping[str, int]) -> None:
    """Raises a ValueError where the losses of samples would take more than 2 GiB in one file."""
    points, samples = math.prod(shape), sum(counts.values())
    size = points * samples * ITEM
    if size > LARGEST_BYTES:
        fewer = LARGEST_BYTES // (samples * ITEM)
        raise ValueError(
            f"keep_samples would take {size / 2**30:.3g} GiB for {' x '.join(map(str, shape))} points of {samples:,} "
            f"samples, but at most {LARGEST_BYTES / 2**30:.3g} GiB are kept. Measure a smaller grid (at most {fewer:,} "
            "points) or fewer samples (num_samples), or leave keep_samples out."
        )


def kept_text(kept: Mapping[str, KeptLosses]) -> str | None:
    """Returns of which samples losses are kept, and how many bytes these have; None where there are none."""
    texts = [
        f"{item.count:,}" + ("" if name == UNNAMED else f" of {name}") + f" at {len(item.chunks):,} points, "
        f"{item.chunks.nbytes / 1e6:.2g} MB"
        for name, item in kept.items()
    ]
    return "; ".join(texts) or None
