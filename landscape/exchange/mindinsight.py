"""MindInsight's summary file: an event file whose one value is a landscape (MindSpore 2.10, MindInsight 2.3)."""

from __future__ import annotations

import re
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.event_records import record
from collectors.network_state import Array

from ..errors import LandscapeExportError
from .export_format import ExportFormat, Writers, plain_text, plane_axes, warn_of_interpolated
from .mindspore_messages import FLOAT32, messages

if TYPE_CHECKING:
    from ..surface import Landscape

PROGRAM = "MindInsight's summary file"
_NAME = re.compile(r"summary\.\d+")
_LARGEST = 10_000_000
_DECOMPOSITIONS = {"pca": "PCA", "random": "Random"}


def mindinsight_writers(landscape: Landscape, path: Path, metric: str) -> Writers:
    """Returns what writes the event file.

    A directory as ``path`` gets a file whose name MindInsight recognizes. With a trajectory the landscape is on the
    analysis page ("interval"), its path at the heights of the projected checkpoints; without one on the comparison
    page ("final"). Numbers are float32, the only type that MindInsight reads.

    Raises:
        LandscapeExportError: the landscape is a line, has values without a number, or is constant: MindInsight's
            page cannot show those.
        ValueError: MindInsight would not take the file for a summary file.
    """
    x, y = plane_axes(landscape, PROGRAM)
    z = landscape[metric]
    _check_values(z, metric)
    warn_of_interpolated(landscape, PROGRAM)
    moment = _moment(landscape.attributes.get("created"))
    types = messages()
    message = types.LossLandscape()
    _fill(message.landscape, x, y, z)
    numbers = _fill_path(message.loss_path, landscape, metric)
    metadata = message.metadata
    decomposition = plain_text(landscape.attributes.get("decomposition"))
    metadata.decomposition = _DECOMPOSITIONS.get(decomposition, decomposition)
    metadata.unit = plain_text(landscape.attributes.get("unit"))
    if landscape.attributes.get("step_per_epoch") is not None:
        metadata.step_per_epoch = int(landscape.attributes["step_per_epoch"])
    origin = landscape.convergence
    if metric in origin.metrics and np.isfinite(origin.metrics[metric]):
        _fill(message.convergence_point, *(np.array([value]) for value in (origin.x, origin.y, origin.metrics[metric])))
    value = types.Value(tag=f"landscape_{numbers}", loss_landscape=message)
    event = types.Event(wall_time=moment, step=0, summary=types.Summary(value=[value])).SerializeToString()
    version = types.Event(wall_time=moment, version="MindSpore.Event:1").SerializeToString()
    content = record(version) + record(event)
    return {_file(path, moment, landscape): lambda file: _write(file, content)}


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def _file(path: Path, moment: float, landscape: Landscape) -> Path:
    if path.is_dir():
        stem = landscape.path.stem if landscape.path is not None else "landscape"
        return path / f"events.out.events.summary.{int(moment)}.0.{stem}_MS"
    if not _NAME.search(path.name) or path.name.endswith("_lineage"):
        raise ValueError(
            "path must be a directory that exists, or a file whose name has 'summary.' and a number in it and does not "
            f"end with '_lineage' (MindInsight passes over others), but got {path.name!r}. "
            "Such a name is 'events.out.events.summary.1.landscape_MS'."
        )
    return path


def _check_values(z: Array, metric: str) -> None:
    if z.size > _LARGEST:
        raise LandscapeExportError(
            f"{PROGRAM} holds at most {_LARGEST} points (MindInsight drops larger ones), but the landscape has "
            f"{z.size}. Measure a coarser grid."
        )
    with np.errstate(over="ignore"):
        seen = z.astype(np.float32)
    gaps = int((~np.isfinite(seen)).sum())
    if gaps:
        raise LandscapeExportError(
            f"{PROGRAM} holds finite float32 numbers only (its page stays empty otherwise), but {gaps} of {z.size} "
            f"points have none for {metric!r}. Finish the survey or measure a smaller range, or export as csv, npz, "
            "netcdf or vtk, which keep such points."
        )
    if seen.min() == seen.max():
        raise LandscapeExportError(
            f"{metric!r} is {seen.min()} (as float32) at every point, and MindInsight's page never ends drawing the "
            "contours of a constant surface. Choose another metric or format."
        )


def _fill_path(loss_path: Any, landscape: Landscape, metric: str) -> list[int]:
    """Fills in the trajectory and returns the numbers by which the landscape is known."""
    trajectory = landscape.trajectory
    if trajectory is None or trajectory.y is None or metric not in trajectory.projected:
        intervals = landscape.attributes.get("intervals") or [[]]
        return [int(number) for number in (*intervals[0][:1], *intervals[-1][-1:])][-1:]
    heights = trajectory.projected[metric]
    known = np.isfinite(heights.astype(np.float32))
    if not known.all():
        warnings.warn(
            f"the checkpoints {trajectory.number[~known].tolist()} are left out of {PROGRAM}'s path: their projected "
            f"{metric} is no finite number.",
            stacklevel=3,
        )
    loss_path.intervals.extend(trajectory.number[known].tolist())
    _fill(loss_path.points, trajectory.x[known], trajectory.y[known], heights[known])
    numbers = trajectory.number.tolist()
    return [numbers[0], numbers[-1]] if numbers else []


def _fill(point: Any, x: Array, y: Array, z: Array) -> None:
    for tensor, values in ((point.x, x), (point.y, y), (point.z, z)):
        tensor.dims.extend(values.shape)
        tensor.data_type = FLOAT32
        tensor.float_data.extend(values.ravel().tolist())


def _moment(created: Any) -> float:
    # Of the measurement, so that equal landscapes give equal files.
    try:
        moment = datetime.fromisoformat(created)
    except (TypeError, ValueError):
        return time.time()
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


MINDINSIGHT = ExportFormat("MindInsight", "", True, mindinsight_writers)
