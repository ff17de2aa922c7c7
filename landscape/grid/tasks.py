"""The tasks of a grid: what is still to be measured, which of it is one measurement, and where results go."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np

from collectors.networks.weight_space import State, WeightSpace
from collectors.shapes import Bool, Float64
from collectors.weights.aligned import NetworkState
from collectors.weights.safetensors_file import StateReader, portable
from workers.pool import PointTask, Result, StateTask, Task

from ..planes.curved_line import CurvedLine
from ..planes.plane import Plane
from ..record.checks import PointStatus
from .checkpoints import PARTS, CheckpointsData
from .data import LOSS_ERROR, LandscapeData
from .sample_chunks import place_on_grid

UNMEASURED = (PointStatus.PENDING, PointStatus.FAILED)
"""What is still to be measured, or once more."""

Place: TypeAlias = tuple[str, int]
"""A kind of loss ("own", "projected" or "with_plane_buffers") and the row of a checkpoint."""

ORIGIN: Place = ("origin", 0)


def checkpoint_tasks(plane: Plane, data: LandscapeData, same: Collection[Place]) -> Iterator[Task]:
    """Yields what is unmeasured, and not in ``same``, of the plane's checkpoints, which are the data's first rows."""
    for part, row in itertools.product(PARTS, range(len(plane.checkpoints))):
        if not _is_wanted(data, part, row) or (part, row) in same:
            continue
        assert data.checkpoints is not None
        foot, own = _foot(data.checkpoints, row), part == "own"
        if part == "projected":
            yield PointTask((part, row), shares(plane, foot))
        else:
            policy = data.attributes["buffers"]
            buffers = None if own or policy == "fixed" else plane.known_buffers(foot, policy)
            yield StateTask((part, row), *openers(plane.checkpoints[row], plane.space, own, buffers))


def openers(
    reader: StateReader, space: WeightSpace, own_buffers: bool = True, buffers: State | None = None
) -> tuple[NetworkState, NetworkState | None]:
    """Returns what reads weights in this process, and in another one; None where that cannot."""
    elsewhere = portable(reader)
    here = NetworkState(lambda: reader, space, own_buffers, buffers)
    return here, None if elsewhere is None else replace(here, open=elsewhere)


def shares(plane: Plane, coordinates: Sequence[float]) -> tuple[float, ...]:
    """Returns how much of each direction there is at a place; on a curve that bends these are no coordinates."""
    if isinstance(plane, CurvedLine):
        return tuple(plane.shape.weights(coordinates[0])[0, 1:].tolist())
    return tuple(coordinates)


def grid_tasks(plane: Plane, data: LandscapeData, points: Iterable[int]) -> Iterator[Task]:
    """Yields the tasks of grid points, given by flat indices in C order."""
    for flat in points:
        place = place_on_grid(flat, data.shape)
        coordinates = [float(data.x[place[-1]])]
        if data.y is not None:
            coordinates.append(float(data.y[place[0]]))
        yield PointTask(("grid", int(flat)), shares(plane, coordinates))


def forget(data: LandscapeData, *statuses: PointStatus) -> None:
    """Makes the points of the grid pending again that have one of the statuses, or lack losses of samples."""
    _make_pending(data, np.isin(data.status, statuses))
    # The file that has these is about to be replaced.
    data.kept_samples = {name: samples.detached() for name, samples in data.kept_samples.items()}
    forget_without_samples(data)


def forget_without_samples(data: LandscapeData) -> None:
    """Makes the measured points pending again that lack losses of samples, as when only the file was copied."""
    for samples in data.kept_samples.values():
        _make_pending(data, (data.status == PointStatus.MEASURED) & ~samples.measured)


def _make_pending(data: LandscapeData, again: Bool[np.ndarray, "*grid"]) -> None:
    data.status[again] = PointStatus.PENDING
    data.metrics.pop(LOSS_ERROR, None)
    for values in data.metrics.values():
        values[again] = np.nan


def keep_result(data: LandscapeData, result: Result) -> None:
    part, index = cast("tuple[str, int]", result.key)
    metrics, status = values_and_status(data, part)
    place = place_on_grid(index, data.shape) if part == "grid" else (index,)
    label = error_label(part, place)
    if result.values is None:
        status[place] = PointStatus.FAILED
        data.errors[label] = result.error or "no traceback"
        return
    for name, value in result.values.items():
        metrics[name][place] = value
    if part == "grid" and result.samples is not None:
        for set_name, losses in result.samples.items():
            # Like the names of metrics, results do not say what the main data set is called; it is the first one.
            data.kept_samples[set_name or next(iter(data.kept_samples))].store(index, losses)
    status[place] = PointStatus.MEASURED
    data.errors.pop(label, None)


def error_label(part: str, place: tuple[int, ...]) -> str:
    numbers = ",".join(map(str, place))
    return f"grid/{numbers}" if part == "grid" else f"checkpoints/{numbers}/{part}"


def values_and_status(data: LandscapeData, part: str) -> tuple[dict[str, Float64[np.ndarray, "*_"]], Any]:
    """Returns the losses of the grid or of a kind of checkpoints; the status is None where there is no such kind."""
    if part == "grid":
        return data.metrics, data.status
    metrics, status = PARTS[part]
    return getattr(data.checkpoints, metrics), getattr(data.checkpoints, status)


def _foot(path: CheckpointsData, row: int) -> tuple[float, ...]:
    return tuple(float(axis[row]) for axis in (path.x, path.y) if axis is not None)


def same_losses(plane: Plane, data: LandscapeData) -> dict[Place, Place]:
    """Maps each unmeasured loss of a checkpoint that, by its weights' bits, is another one's to the place of that."""
    # A foot at the origin is the origin. A checkpoint whose buffers are the plane's has one loss with both; it is the
    # origin's if it has the origin's parameters. Where statistics are recalibrated the plane's are others, but at the
    # networks that it goes through.
    path = data.checkpoints
    found: dict[Place, Place] = {}
    for row, reader in enumerate(plane.checkpoints):
        assert path is not None
        wanted = {(part, row) for part in PARTS if _is_wanted(data, part, row)}
        if not wanted:
            continue  # a checkpoint is not even opened
        foot = _foot(path, row)
        same: dict[Place, Place] = {}
        if not any(foot):
            same["projected", row] = ORIGIN
        is_origin = not any(foot) and path.norm[row] == 0 and _holds(reader, plane.origin)
        if is_origin:
            same["with_plane_buffers", row] = ORIGIN
        buffers = plane.known_buffers(foot, data.attributes["buffers"])
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
            columns, statuses = values_and_status(data, source)
            values = {name: float(column[place]) for name, column in columns.items()}
            outcome = PointStatus(statuses[place])
        if outcome == PointStatus.MEASURED:
            keep_result(data, Result((part, row), values))
            copied += 1
        elif outcome == PointStatus.FAILED:
            keep_result(data, Result((part, row), None, data.errors.get(f"checkpoints/{place}/{source}")))
    return copied


def _is_wanted(data: LandscapeData, part: str, row: int) -> bool:
    _, status = values_and_status(data, part)
    return status is not None and status[row] in UNMEASURED


def _holds(reader: StateReader, state: State) -> bool:
    """Returns whether a checkpoint holds exactly these arrays; stops at the first that differs."""
    return all(reader.read(name).tobytes() == np.asarray(array).tobytes() for name, array in state.items())
