"""The tasks of a survey: what is still to be measured, and where the results go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import numpy as np

from collectors.networks.weight_space import State
from workers.pool import PointTask, Result, StateTask, Task

from ..file.checks import PointStatus
from ..file.data import LOSS_ERROR, LandscapeData
from ..planes.plane import Plane

_CHECKPOINT_PARTS = {
    "own": ("metrics", "status"),
    "projected": ("projected", "projected_status"),
    "with_plane_buffers": ("with_plane_buffers", "with_plane_buffers_status"),
}


_UNMEASURED = (PointStatus.PENDING, PointStatus.FAILED)


def checkpoint_tasks(plane: Plane, data: LandscapeData) -> list[Task]:
    """Returns what is not measured yet of the checkpoints: themselves, and at their feet."""
    path = data.checkpoints
    if path is None:
        return []
    return [
        _checkpoint_task(plane, data, part, index)
        for part, (_, status_name) in _CHECKPOINT_PARTS.items()
        if (status := getattr(path, status_name)) is not None
        for index in range(len(path.number))
        if status[index] in _UNMEASURED
    ]


def grid_tasks(data: LandscapeData, points: Iterable[int]) -> Iterator[Task]:
    """Yields the measurement of grid points.

    Args:
        data: the landscape.
        points: flat indices in C order.
    """
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
    if part == "grid":
        place = tuple(int(item) for item in np.unravel_index(index, data.shape))
        metrics, status, label = data.metrics, data.status, "grid/" + ",".join(map(str, place))
    else:
        metrics_name, status_name = _CHECKPOINT_PARTS[part]
        metrics, status = getattr(data.checkpoints, metrics_name), getattr(data.checkpoints, status_name)
        place, label = (index,), f"checkpoints/{index}/{part}"
    if result.values is None:
        status[place] = PointStatus.FAILED
        data.errors[label] = result.error or "no traceback"
        return
    for name, value in result.values.items():
        metrics[name][place] = value
    status[place] = PointStatus.MEASURED
    data.errors.pop(label, None)


def _checkpoint_task(plane: Plane, data: LandscapeData, part: str, index: int) -> Task:
    path = data.checkpoints
    assert path is not None
    coordinates = tuple(float(axis[index]) for axis in (path.x, path.y) if axis is not None)
    if part == "projected":
        return PointTask((part, index), coordinates)
    reader, policy = plane.checkpoints[index], str(data.attributes["buffers"])

    def read() -> tuple[State, State | None]:
        parameters = {tensor.name: reader.read(tensor.name) for tensor in plane.space.parameters}
        if part == "own":
            return parameters, {tensor.name: reader.read(tensor.name) for tensor in plane.space.buffers}
        return parameters, plane.buffers_at(coordinates) if policy == "interpolate" else None

    return StateTask((part, index), read)
