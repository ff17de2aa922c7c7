"""Principal directions of a trajectory through weight space, streamed from its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from collectors.networks.weight_space import WeightSpace, direction_dtype, numpy_dtype
from collectors.shapes import Float64
from collectors.validation import check_choice
from collectors.weights.safetensors_file import StateReader
from workers.users_code import warn_user

from ..errors import DegenerateTrajectoryError
from .directions import Direction, empty_direction, parts_of
from .passes import HERE, Passes, Piece, added, shards_of
from .projection import difference_blocks

ALMOST_NOTHING = 1e-3
"""Below this share of the path's variance, what lies across the path is hardly the course of the training."""

CENTERINGS = ("none", "mean")
_MOST_DIGITS = 10
# What float64 leaves between 1 and shares that add up to it.
_ROUNDING = 1e-13
# Below this share of the largest singular value, float64 sums of squares no longer tell a direction from zero.
_RANK_TOLERANCE = 1e-6
_SCALE_BLOCK = 2**20


@dataclass(frozen=True, eq=False)
class PrincipalDirections:
    directions: tuple[Direction, ...]  # unit vectors, orthogonal to each other, the most important first
    explained_variance_ratio: Float64[np.ndarray, " components"]  # of the sum of squares, each direction's
    singular_values: Float64[np.ndarray, " components"]  # of the matrix of differences
    # Of the checkpoints, from the last one, but for the rounding of the directions.
    coordinates: Float64[np.ndarray, "checkpoints components"]
    notes: tuple[str, ...] = ()  # what a reader must know of them


def principal_directions(
    checkpoints: Sequence[StateReader],
    space: WeightSpace,
    *,
    centering: str = "none",
    components: int = 2,
    passes: Passes = HERE,
) -> PrincipalDirections:
    """Computes the leading principal directions of checkpoints, the last one last, over all trainable elements.

    With "none" the rows are the differences to the last checkpoint as they are, so that the directions span the
    plane through the last checkpoint that keeps most of the path. With "mean" they equal
    ``sklearn.decomposition.PCA`` of all checkpoints, the last one included. In each direction the element of
    largest absolute value is positive, as scikit-learn's ``svd_flip`` has it.

    Source: Li, Xu, Taylor, Studer, Goldstein 2018, section 7.2 (which is "mean"); the Gram matrix as in Sirovich 1987.
    """
    centering = check_choice("centering", centering, CENTERINGS)
    count = len(checkpoints)
    if count < components + 1:
        raise DegenerateTrajectoryError(
            f"{components} principal directions need at least {components + 1} checkpoints, but there are {count}. "
            "Save checkpoints more often or choose a longer interval; for two checkpoints use a line between them, "
            "for one a random plane."
        )
    parts = [(shard, centering) for shard in shards_of(space)]
    gram, squared_rounding = added(passes.each(_gram_of_shard, checkpoints, parts))
    total = float(np.trace(gram))
    with threadpool_limits(1, "blas"):
        eigenvalues, eigenvectors = np.linalg.eigh(gram)
    leading = np.sqrt(np.clip(eigenvalues[::-1][:components], 0.0, None))
    _check_rank(leading, count, centering)
    notes = _notes_on(leading, math.sqrt(squared_rounding) * math.sqrt(count), total)
    for note in notes:
        warn_user(note)
    coefficients = (eigenvectors[:, ::-1][:, :components] / leading).T
    directions, lengths = _rebuild(checkpoints, space, centering, coefficients, passes)
    singular_values = leading * np.abs(lengths)
    coordinates = (gram - gram[-1]) @ coefficients.T / lengths
    return PrincipalDirections(directions, singular_values**2 / total, singular_values, coordinates, notes)


def _gram_of_shard(
    checkpoints: Sequence[StateReader], shard: Sequence[Piece], centering: str
) -> tuple[Float64[np.ndarray, "checkpoints checkpoints"], float]:
    """Returns the Gram matrix, and the square of the norm that rounding alone gives a checkpoint."""
    last = checkpoints[-1]
    gram = np.zeros((len(checkpoints), len(checkpoints)))
    squared_rounding = 0.0
    for block in difference_blocks(checkpoints, last, shard):
        rows = _centered(block.differences, centering)
        gram += rows @ rows.T
        unit = float(ml_dtypes.finfo(numpy_dtype(last.dtypes[shard[block.piece].name])).eps) / 2
        squared_rounding += unit**2 * float(block.origin @ block.origin)
    return gram, squared_rounding


def _check_rank(leading: Float64[np.ndarray, " components"], count: int, centering: str) -> None:
    if leading[0] == 0:
        raise DegenerateTrajectoryError(
            f"all {count} checkpoints hold the same trainable weights, so they have no principal direction. Check "
            "that training moved them (learning rate, requires_grad), choose another interval, or use a random plane."
        )
    independent = int(np.sum(leading > _RANK_TOLERANCE * leading[0]))
    if independent < len(leading):
        what = "differences to the last" if centering == "none" else "differences to their mean"
        raise DegenerateTrajectoryError(
            f"the {count} checkpoints have only {independent} independent {what}, but {len(leading)} are needed: they "
            "lie on a line or repeat each other. Choose a longer interval, save more often, use a line between two "
            "checkpoints, or a random plane."
        )


def _notes_on(leading: Float64[np.ndarray, " components"], rounding: float, total: float) -> tuple[str, ...]:
    """Returns what to know of a last direction that is hardly one."""
    count, share = len(leading), float(leading[-1] ** 2 / total)
    if leading[-1] <= rounding:
        return (
            f"principal direction {count} of this trajectory is as short as the rounding of the stored weights "
            f"(singular value {leading[-1]:.3g}), so it may show rounding rather than training; choose a longer "
            "interval or a line.",
        )
    if count == 2 and share < ALMOST_NOTHING:
        return (
            f"the path is nearly straight: its second principal direction explains only {percentages([share])[0]} of "
            "its variance, so shapes across the path are about the noise of the training; choose a longer interval, a "
            "line between two checkpoints, or a random plane.",
        )
    return ()


def _rebuild(
    checkpoints: Sequence[StateReader],
    space: WeightSpace,
    centering: str,
    coefficients: Float64[np.ndarray, "components checkpoints"],
    passes: Passes,
) -> tuple[tuple[Direction, ...], Float64[np.ndarray, " components"]]:
    """Returns the combinations of the rows with unit norm and scikit-learn's sign, and what they were divided by."""
    directions = tuple(empty_direction(space) for _ in coefficients)
    squares = np.zeros(len(coefficients))
    largest = np.zeros(len(coefficients))
    shards = shards_of(space)
    found = passes.each(_rows_of_shard, checkpoints, [(shard, centering, coefficients) for shard in shards])
    for shard, (rows, more, candidates) in zip(shards, found, strict=True):
        for parts, those in zip(parts_of(directions, shard), rows, strict=True):
            for part, row in zip(parts, those, strict=True):
                part[:] = row
        squares += more
        largest = np.where(np.abs(candidates) > np.abs(largest), candidates, largest)
    lengths = np.sign(largest) * np.sqrt(squares)
    for direction, factor in zip(directions, 1 / lengths, strict=True):
        # In float64: a factor rounded to float32 would move the norm of the whole direction away from 1.
        for values in direction.values():
            flat = values.reshape(-1)
            for start in range(0, len(flat), _SCALE_BLOCK):
                flat[start : start + _SCALE_BLOCK] = flat[start : start + _SCALE_BLOCK].astype(np.float64) * factor
    return directions, lengths


def _rows_of_shard(
    checkpoints: Sequence[StateReader],
    shard: Sequence[Piece],
    centering: str,
    coefficients: Float64[np.ndarray, "components checkpoints"],
) -> tuple[list[NDArray[Any]], Float64[np.ndarray, " components"], Float64[np.ndarray, " components"]]:
    """Returns the combinations for each piece, their sums of squares, and their elements of largest absolute value."""
    count, dtypes = len(coefficients), checkpoints[-1].dtypes
    combined = [np.empty((count, stop - start), direction_dtype(dtypes[name])) for name, start, stop in shard]
    squares, largest = np.zeros(count), np.zeros(count)
    for block in difference_blocks(checkpoints, checkpoints[-1], shard):
        rows = coefficients @ _centered(block.differences, centering)
        combined[block.piece][:, block.place] = rows
        for index, row in enumerate(rows):
            squares[index] += row @ row
            candidate = row[np.argmax(np.abs(row))]
            if abs(candidate) > abs(largest[index]):
                largest[index] = candidate
    return combined, squares, largest


def _centered(rows: Float64[np.ndarray, "rows elements"], centering: str) -> Float64[np.ndarray, "rows elements"]:
    if centering == "mean":
        rows -= rows.mean(axis=0)
    return rows


def percentages(shares: Iterable[float], digits: int = 1) -> list[str]:
    """Returns shares as per cent, in as many digits as it takes that none reads as 0 or as 100 without being it."""
    values = [float(share) for share in shares]
    distances = [distance for value in values for distance in (value, 1 - value) if _ROUNDING < distance < 1]
    smallest = 100 * min(distances, default=1.0)
    needed = next((count for count in range(digits, _MOST_DIGITS) if 10**count * smallest > 0.95), _MOST_DIGITS)
    return [f"{100 * value:.{needed}f} %" for value in values]


def is_almost_nothing(ratio: Sequence[float] | Float64[np.ndarray, " d"]) -> bool:
    """Returns whether the second direction explains so little of the path that shapes across it are about noise."""
    return len(ratio) > 1 and float(ratio[1]) < ALMOST_NOTHING
