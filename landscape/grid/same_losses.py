"""Which losses of checkpoints are one and the same measurement, so that it is made once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from collectors.weights.safetensors_file import StateReader

from ..planes.plane import Plane
from ..record.checks import PointStatus
from .data import LandscapeData
from .tasks import UNMEASURED, checkpoint_part, note_failure

if TYPE_CHECKING:
    from collectors.networks.weight_space import State

Place: TypeAlias = tuple[str, int]
"""A kind of loss ("own", "projected" or "with_plane_buffers") and the row of a checkpoint."""

ORIGIN: Place = ("origin", 0)


def same_losses(plane: Plane, data: LandscapeData) -> dict[Place, Place]:
    """Maps each unmeasured loss of a checkpoint that, by its weights' bits, is another one's to the place of that."""
    # A foot at the origin is the origin. A checkpoint whose buffers are the plane's has one loss with both; it is the
    # origin's if it has the origin's parameters. Where statistics are recalibrated the plane's are others, but at the
    # networks that it goes through.
    path = data.checkpoints
    found: dict[Place, Place] = {}
    for row, reader in enumerate(plane.checkpoints if path is not None else ()):
        assert path is not None
        parts = ("own", "projected", "with_plane_buffers")
        wanted = {(part, row) for part in parts if _is_wanted(data, part, row)}
        if not wanted:
            continue  # a checkpoint is not even opened
        coordinates = tuple(float(axis[row]) for axis in (path.x, path.y) if axis is not None)
        same: dict[Place, Place] = {}
        if not any(coordinates):
            same["projected", row] = ORIGIN
        is_origin = not any(coordinates) and path.norm[row] == 0 and _holds(reader, plane.origin)
        if is_origin:
            same["with_plane_buffers", row] = ORIGIN
        buffers = plane.known_buffers(coordinates, data.attributes["buffers"])
        if buffers is not None and _holds(reader, buffers):
            same |= {("own", row): ORIGIN} if is_origin else {("with_plane_buffers", row): ("own", row)}
        found |= {place: source for place, source in same.items() if place in wanted}
    return found


def copy_same(data: LandscapeData, same: Mapping[Place, Place]) -> int:
    """Copies each loss, or its failure, from the place that ``same`` maps it to, and returns how many it copied."""
    copied = 0
    for (part, row), (source, place) in same.items():
        if not _is_wanted(data, part, row):
            continue
        if source == "origin":
            values, outcome = data.origin.metrics, data.origin.status
        else:
            columns, statuses = checkpoint_part(data, source)
            assert statuses is not None
            values = {name: float(column[place]) for name, column in columns.items()}
            outcome = PointStatus(statuses[place])
        metrics, status = checkpoint_part(data, part)
        assert status is not None
        if outcome == PointStatus.MEASURED:
            for name, value in values.items():
                metrics[name][row] = value
            status[row] = PointStatus.MEASURED
            data.errors.pop(f"checkpoints/{row}/{part}", None)
            copied += 1
        elif outcome == PointStatus.FAILED:
            note_failure(data, part, row, data.errors.get(f"checkpoints/{place}/{source}"))
    return copied


def _is_wanted(data: LandscapeData, part: str, row: int) -> bool:
    status = checkpoint_part(data, part)[1]
    return status is not None and status[row] in UNMEASURED


def _holds(reader: StateReader, state: State) -> bool:
    """Returns whether a checkpoint holds exactly these arrays; stops at the first that differs."""
    return all(reader.read(name).tobytes() == np.asarray(array).tobytes() for name, array in state.items())
