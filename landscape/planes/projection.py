"""Networks as a plane sees them: their coordinates, their distance to it, and the differences they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectors.errors import CheckpointError
from collectors.networks.weight_space import WeightSpace
from collectors.shapes import Float64, Int64
from collectors.weights.safetensors_file import StateReader

from ..errors import PlaneError
from .directions import Direction, parts_of
from .passes import HERE, Passes, Piece, added, shards_of

# Of all checkpoints together, read at a time.
_BLOCK_BYTES = 64 * 2**20
# Of each checkpoint in float32, however many there are: each read opens a file, on a server perhaps.
_FEWEST_ELEMENTS = 2**18
# Elements of each checkpoint that are computed with at a time: what fits the cache takes a quarter of the time.
_PANEL = 4096
# One minus the squared cosine below which two directions count as one (an angle of a millionth).
_PARALLEL = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Projection:
    x: Float64[np.ndarray, " n"]  # coordinates along the first direction
    y: Float64[np.ndarray, " n"] | None  # coordinates along the second direction, or None on a line
    residual: Float64[np.ndarray, " n"]  # from the checkpoint to its foot, over all trainable elements
    norm: Float64[np.ndarray, " n"]  # distance from the checkpoint to the origin

    def __repr__(self) -> str:
        count = len(self.x)
        onto = "line" if self.y is None else "plane"
        farthest = f"; at most {self.residual.max():.4g} from it" if count else ""
        return f"Projection({count} network{'s' * (count != 1)} on a {onto}{farthest})"

    @property
    def coordinates(self) -> list[Float64[np.ndarray, " n"]]:
        """Those along each direction."""
        return [self.x] if self.y is None else [self.x, self.y]

    def followed_by(self, other: Projection) -> Projection:
        pairs: Any = zip(vars(self).values(), vars(other).values(), strict=True)
        columns: list[Any] = [None if one is None else np.concatenate([one, more]) for one, more in pairs]
        return Projection(*columns)


@dataclass(frozen=True, eq=False)
class ProjectedCheckpoints:
    """Where n checkpoints lie, seen from a plane or a line of d directions; nothing of them is measured.

    Attributes:
        coordinates: of each one's foot on the plane, shape (n, d), in units of the directions.
        residuals: distance from the checkpoint to its foot, over all trainable elements, shape (n,).
        norms: distance from the checkpoint to the plane's origin, shape (n,).
        numbers: of the checkpoints (epochs or steps), shape (n,).
        runs: n names of runs; "" for a single run without a name.
    """

    coordinates: Float64[np.ndarray, "n d"]
    residuals: Float64[np.ndarray, " n"]
    norms: Float64[np.ndarray, " n"]
    numbers: Int64[np.ndarray, " n"]
    runs: tuple[str, ...]

    @property
    def x(self) -> Float64[np.ndarray, " n"]:
        """The coordinates along the first direction."""
        return self.coordinates[:, 0]

    @property
    def y(self) -> Float64[np.ndarray, " n"] | None:
        """The coordinates along the second direction; None on a line."""
        return self.coordinates[:, 1] if self.coordinates.shape[1] == 2 else None


def project(
    checkpoints: Sequence[StateReader],
    origin: StateReader,
    directions: Sequence[Direction],
    space: WeightSpace,
    near: Float64[np.ndarray, "n dimension"] | None = None,
    *,
    is_exact: bool = False,
    passes: Passes = HERE,
) -> Projection:
    """Projects checkpoints by least squares on one or two independent directions; the origin gets zeros.

    Coordinates that are known but for rounding, ``near``, save one of two passes over the checkpoints; those that are
    exact stay as they are.
    """
    coordinates = np.zeros((len(checkpoints), len(directions))) if near is None else near
    gained = np.zeros(len(checkpoints))
    for _ in range(2 if near is None else 1):
        parts = [(shard, parts_of(directions, shard), coordinates) for shard in shards_of(space)]
        sums = _Sums(*added(passes.each(_sums_of_shard, (checkpoints, origin), parts)))
        if not is_exact:
            norms = np.sqrt(np.diag(sums.gram))
            # Scaled to unit directions first: lengths that differ by many orders of magnitude must cost no digits.
            steps = np.linalg.solve(sums.gram / np.outer(norms, norms), (sums.products / norms).T).T / norms
            coordinates = coordinates + steps
            # What the last steps gain is no more than rounding, so that nearly nothing is subtracted.
            gained = np.einsum("ij,jk,ik->i", steps, sums.gram, steps)
    x, *others = (column + 0.0 for column in coordinates.T)
    residual = np.sqrt(np.maximum(sums.residual - gained, 0.0))
    return Projection(x, others[0] if others else None, residual, np.sqrt(sums.norm))


class _Sums(NamedTuple):
    """Of squares and products over all elements; a rest is what leads from a point of the plane to a checkpoint."""

    norm: Float64[np.ndarray, " n"]  # of the differences to the origin
    residual: Float64[np.ndarray, " n"]  # of the rests
    products: Float64[np.ndarray, "n dimension"]  # of the rests with the directions
    gram: Float64[np.ndarray, "dimension dimension"]  # of the directions


def _sums_of_shard(
    readers: tuple[Sequence[StateReader], StateReader],  # the checkpoints and the origin
    shard: Sequence[Piece],
    parts: Sequence[Sequence[NDArray[Any]]],  # of the directions, for each piece of the shard
    coordinates: Float64[np.ndarray, "n dimension"],
) -> _Sums:
    # The rests themselves are summed, not norms subtracted from each other, so that a checkpoint close to the plane
    # keeps its digits.
    count, dimension = coordinates.shape
    sums = _Sums(np.zeros(count), np.zeros(count), np.zeros((count, dimension)), np.zeros((dimension, dimension)))
    for block in difference_blocks(*readers, shard):
        rows, rest = block.of(parts), block.differences
        sums.norm[:] += np.einsum("ij,ij->i", rest, rest)
        rest -= coordinates @ rows
        sums.residual[:] += np.einsum("ij,ij->i", rest, rest)
        sums.products[:] += rest @ rows.T
        sums.gram[:] += rows @ rows.T
    return sums


def check_independent(norms: Sequence[float] | Float64[np.ndarray, " dimension"], cosine: float | None) -> None:
    for index, norm in enumerate(norms):
        if not 0 < norm < np.inf:
            raise PlaneError(
                f"direction {index} has the norm {norm}, but a direction must be finite and not zero: what it was made "
                "from holds the same weights twice, only zeros, or values that are not finite."
            )
    if cosine is not None and not 1 - cosine**2 > _PARALLEL:
        raise PlaneError(
            f"the two directions are parallel (cosine {cosine:.9f}), so they span a line and no plane; "
            "give two that differ, or use a line."
        )


class DifferenceBlock(NamedTuple):
    """Neighbouring elements of a shard's piece over all checkpoints."""

    piece: int  # which of the shard
    place: slice  # the elements, counted from the first one of the piece
    origin: Float64[np.ndarray, " elements"]  # the origin's values
    differences: Float64[np.ndarray, "checkpoints elements"]  # the checkpoints minus the origin

    def of(self, parts: Sequence[Sequence[NDArray[Any]]]) -> Float64[np.ndarray, "dimension elements"]:
        """Returns the same elements of directions, of which there is a part for each piece."""
        return np.stack([part[self.place] for part in parts[self.piece]]).astype(np.float64)


def difference_blocks(
    checkpoints: Sequence[StateReader], origin: StateReader, shard: Sequence[Piece]
) -> Iterator[DifferenceBlock]:
    """Yields float64 differences to the origin in the shard's order, as few elements as a processor's cache holds.

    The next block takes the place of the one before.
    """
    step = max(_FEWEST_ELEMENTS, _BLOCK_BYTES // (8 * max(1, len(checkpoints))))
    # One for all: new memory from the system would take as long as the computation.
    panel = np.empty((len(checkpoints), _PANEL))
    for number, piece in enumerate(shard):
        for start in range(piece.start, piece.stop, step):
            stop = min(start + step, piece.stop)
            read = [
                check_finite(reader.read_block(piece.name, start, stop), reader.label, piece.name)
                for reader in (origin, *checkpoints)
            ]
            for first in range(0, stop - start, _PANEL):
                base, *rows = (block[first : first + _PANEL] for block in read)
                base = base.astype(np.float64)
                differences = panel[:, : len(base)]
                for difference, row in zip(differences, rows, strict=True):
                    # Converted while it is subtracted: a float64 copy of its own would cost as much as the reading.
                    np.subtract(row, base, out=difference)
                place = start - piece.start + first
                yield DifferenceBlock(number, slice(place, place + len(base)), base, differences)


def check_finite(array: NDArray[Any], label: str, name: str) -> NDArray[Any]:
    if not np.isfinite(array).all():
        raise CheckpointError(
            f"{label} holds NaN or infinite values in {name!r}, so no direction can be computed from it; "
            "leave this checkpoint out (end the interval before training diverged)."
        )
    return array
