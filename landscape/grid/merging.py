"""Several files of one landscape, such as the shares that the jobs of an array measured, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from workers.measuring.checks import check_same_values, closeness_elsewhere

from ..errors import LandscapeGridError
from ..record.checks import PointStatus
from ..record.identity import check_identity
from .checkpoints import PARTS
from .data import LOSS_ERROR, LandscapeData
from .resume import Overlap, grid_text, note_changes
from .tasks import forget_unmeasured, values_and_status

_SAME_LANDSCAPE = "Merge files of one landscape: the same call with another share."


def merge_landscapes(landscapes: Sequence[LandscapeData]) -> LandscapeData:
    """Returns what any of the landscapes measured; the first one becomes it.

    Raises:
        LandscapeIdentityError: they are different experiments.
        LandscapeGridError: they are on different grids, or other networks are on them.
        NondeterministicLossError: two of them measured a point, with different values.
    """
    first, *others = landscapes
    forget_unmeasured(first)
    first.kept_samples = {name: samples.held() for name, samples in first.kept_samples.items()}
    for other in others:
        _check_mergeable(first, other)
        _take(first, other)
        note_changes(first.attributes, other.attributes)
    finished = not any((status == PointStatus.PENDING).any() for status in first.statuses)
    first.attributes["sampling"] = {"mode": "full", "finished": finished}
    first.path = None
    return first


def _check_mergeable(first: LandscapeData, other: LandscapeData) -> None:
    before, now = (data.attributes.get("identity", {}) for data in (first, other))
    check_identity(before, now, str(first.path), _SAME_LANDSCAPE)
    who = [None if data.checkpoints is None else data.checkpoints.sha256 for data in (first, other)]
    if not Overlap(first, other.x, other.y).is_whole or who[0] != who[1]:
        grids = [grid_text(data.x, data.y) for data in (first, other)]
        differs = f"{grids[0]} and {grids[1]}" if grids[0] != grids[1] else "other checkpoints or networks"
        raise LandscapeGridError(
            f"landscape files {first.path} and {other.path} cannot be merged: they have {differs}. {_SAME_LANDSCAPE}"
        )


def _take(first: LandscapeData, other: LandscapeData) -> None:
    """Copies what only the other one measured; what both did must be equal."""
    plan = first.attributes.get("measurement_plan") or {}
    tolerance = closeness_elsewhere(plan.get("precision", "float32"))
    check_same_values("the origin", first.origin.metrics, other.origin.metrics, f"in {other.path}", tolerance)
    measured = {name: values for name, values in other.metrics.items() if name != LOSS_ERROR}
    taken = _take_column("the point", first.metrics, first.status, measured, other.status, tolerance, other.path)
    for name, samples in other.kept_samples.items():
        first.kept_samples[name].take(samples, taken)
    for part in PARTS if first.checkpoints is not None else ():
        (mine, status), (its, its_status) = values_and_status(first, part), values_and_status(other, part)
        if status is not None and its_status is not None:
            _take_column(f"the {part} loss of checkpoint", mine, status, its, its_status, tolerance, other.path)


def _take_column(
    what: str,
    mine: Mapping[str, NDArray[np.float64]],
    status: NDArray[np.uint8],
    its: Mapping[str, NDArray[np.float64]],
    its_status: NDArray[np.uint8],
    tolerance: float,
    path: object,
) -> list[int]:
    """Returns the flat indices of what was copied."""
    measured, known = its_status == PointStatus.MEASURED, status == PointStatus.MEASURED
    for place in np.argwhere(measured & known):
        index = tuple(place.tolist())
        here, there = ({name: float(values[index]) for name, values in columns.items()} for columns in (mine, its))
        check_same_values(f"{what} {', '.join(map(str, index))}", here, there, f"in {path}", tolerance)
    new = measured & ~known
    for name, values in mine.items():
        values[new] = its[name][new]
    status[new] = PointStatus.MEASURED
    return np.flatnonzero(new).tolist()
