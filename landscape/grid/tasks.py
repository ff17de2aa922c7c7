"""The tasks of a survey: what is still to be measured, and where the results go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from collectors.weights.aligned import NetworkState
from collectors.weights.safetensors_file import portable
from workers.pool import PointTask, Result, StateTask, Task

from ..planes.plane import Plane
from ..record.checks import PointStatus
from .data import LOSS_ERROR, LandscapeData

if TYPE_CHECKING:
    from jaxtyping import Float64, UInt8

_CHECKPOINT_PARTS = {
    "own": ("metrics", "status"),
    "projected": ("projected", "projected_status"),
    "with_plane_buffers": ("with_plane_buffers", "with_plane_buffers_status"),
}

UNMEASURED = (PointStatus.PENDING, PointStatus.FAILED)
"""What is still to be measured, or once more."""


def checkpoint_tasks(plane: Plane, data: LandscapeData, same: Collection[tuple[str, int]] = ()) -> list[Task]:
    """Returns what is unmeasured, and not in ``same``, of the plane's checkpoints, which are the data's first rows."""
    path = data.checkpoints
    if path is None:
        return []
    return [
        _checkpoint_task(plane, data, part, index)
        for part, (_, status_name) in _CHECKPOINT_PARTS.items()
        if (status := getattr(path, status_name)) is not None
        for index in range(len(plane.checkpoints))
        if status[index] in UNMEASURED and (part, index) not in same
    ]


def checkpoint_part(
    data: LandscapeData, part: str
) -> tuple[dict[str, Float64[np.ndarray, " n"]], UInt8[np.ndarray, " n"] | None]:
    """Returns the values and the statuses of one kind of a checkpoint's losses; None where there is no such kind."""
    metrics_name, status_name = _CHECKPOINT_PARTS[part]
    return getattr(data.checkpoints, metrics_name), getattr(data.checkpoints, status_name)


def grid_tasks(data: LandscapeData, points: Iterable[int]) -> Iterator[Task]:
    """Yields the tasks of grid points, given by flat indices in C order."""
    for flat in points:
        place = np.unravel_index(flat, data.shape)
        coordinates = [float(data.x[place[-1]])]
        if data.y is not None:
            coordinates.append(float(data.y[place[0]]))
        yield PointTask(("grid", int(flat)), tuple(coordinates))


def forget_unmeasured(data: LandscapeData) -> None:
    """Makes pending again what an earlier run interpolated, and what failed in it."""
    again = (data.status == PointStatus.INTERPOLATED) | (data.status == PointStatus.FAILED)
    data.status[again] = PointStatus.PENDING
    data.metrics.pop(LOSS_ERROR, None)
    for values in data.metrics.values():
        values[again] = np.nan


def keep(data: LandscapeData, result: Result) -> None:
    """Writes a result to its place."""
    part, index = cast("tuple[str, int]", result.key)
    if result.values is None:
        note_failure(data, part, index, result.error)
        return
    metrics, status, place, label = _place(data, part, index)
    for name, value in result.values.items():
        metrics[name][place] = value
    if part == "grid" and result.samples is not None:
        for set_name, losses in result.samples.items():
            # Like the names of metrics, results do not say what the main data set is called; it is the first one.
            data.kept_samples[set_name or next(iter(data.kept_samples))].store(index, losses)
    status[place] = PointStatus.MEASURED
    data.errors.pop(label, None)


def note_failure(data: LandscapeData, part: str, index: int, error: str | None) -> None:
    """Marks what could not be measured, and keeps its traceback."""
    _, status, place, label = _place(data, part, index)
    status[place] = PointStatus.FAILED
    data.errors[label] = error or "no traceback"


def _place(
    data: LandscapeData, part: str, index: int
) -> tuple[dict[str, Float64[np.ndarray, "*_"]], UInt8[np.ndarray, "*_"], tuple[int, ...], str]:
    if part == "grid":
        place = tuple(int(item) for item in np.unravel_index(index, data.shape))
        return data.metrics, data.status, place, "grid/" + ",".join(map(str, place))
    metrics, status = checkpoint_part(data, part)
    assert status is not None
    return metrics, status, (index,), f"checkpoints/{index}/{part}"


def _checkpoint_task(plane: Plane, data: LandscapeData, part: str, index: int) -> Task:
    path = data.checkpoints
    assert path is not None
    coordinates = tuple(float(axis[index]) for axis in (path.x, path.y) if axis is not None)
    if part == "projected":
        return PointTask((part, index), coordinates)
    reader, own = plane.checkpoints[index], part == "own"
    policy = data.attributes["buffers"]
    buffers = None if own or policy == "fixed" else plane.known_buffers(coordinates, policy)
    elsewhere = portable(reader)
    return StateTask(
        (part, index),
        NetworkState(lambda: reader, plane.space, own, buffers),
        None if elsewhere is None else NetworkState(elsewhere, plane.space, own, buffers),
    )
