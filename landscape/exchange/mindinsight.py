"""MindInsight's summary file: an event file whose one value is a landscape (MindSpore 2.10, MindInsight 2.3)."""

from __future__ import annotations

import functools
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.files.local_files import naming
from collectors.summary.writer import record
from workers.users_code import warn_user

from ..errors import LandscapeExportError
from ..grid.data import LandscapeData
from ..roles import CHECKPOINT, FINAL_WEIGHTS
from .formats import Images, needing, plane_axes, warn_of_interpolated, warn_of_unknown_heights

_PROGRAM = "MindInsight's summary file"
_FILE_NAME = re.compile(r"summary\.\d+")
_MOST_POINTS = 10_000_000
_DECOMPOSITIONS = {"pca": "PCA", "random": "Random"}
# ``DT_FLOAT32`` of MindSpore's data types; on the wire an enumeration is an integer.
_FLOAT32 = 11
# The fields that are filled in: by message and name, the number and the type in MindSpore's own definition.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Event": {"wall_time": (1, "double"), "step": (2, "int64"), "version": (3, "string"), "summary": (5, "Summary")},
    "Summary": {"value": (1, "repeated Value")},
    "Value": {"tag": (1, "string"), "loss_landscape": (10, "LossLandscape")},
    "LossLandscape": {
        "landscape": (1, "Point"),
        "loss_path": (2, "LossPath"),
        "metadata": (3, "Metadata"),
        "convergence_point": (4, "Point"),
    },
    "Point": {"x": (1, "TensorProto"), "y": (2, "TensorProto"), "z": (3, "TensorProto")},
    "LossPath": {"intervals": (1, "repeated int32"), "points": (2, "Point")},
    "Metadata": {"decomposition": (1, "string"), "unit": (2, "string"), "step_per_epoch": (3, "int32")},
    "TensorProto": {"dims": (1, "repeated int64"), "data_type": (2, "int32"), "float_data": (3, "repeated float")},
}


def mindinsight_images(landscape: LandscapeData, path: Path, metric: str) -> Images:
    """Returns the event file; in a directory it gets a name that MindInsight recognizes."""
    x, y = plane_axes(landscape, _PROGRAM)
    z = landscape[metric]
    _check_values(z, metric)
    warn_of_interpolated(landscape, _PROGRAM)
    moment = _moment(landscape.attributes.get("created"))
    types = messages()
    message = types.LossLandscape()
    _fill(message.landscape, x, y, z)
    numbers = _fill_path(message.loss_path, landscape, metric)
    metadata, attributes, origin = message.metadata, landscape.attributes, landscape.origin
    decomposition = str(attributes.get("decomposition") or "")
    metadata.decomposition = _DECOMPOSITIONS.get(decomposition, decomposition)
    metadata.unit = str(attributes.get("unit") or "")
    if attributes.get("step_per_epoch") is not None:
        metadata.step_per_epoch = int(attributes["step_per_epoch"])
    # Their word for it; an origin of which nothing is known may be no trained network at all.
    trained = origin.role in (CHECKPOINT, FINAL_WEIGHTS)
    if trained and metric in origin.metrics and np.isfinite(origin.metrics[metric]):
        _fill(message.convergence_point, *(np.array([value]) for value in (origin.x, origin.y, origin.metrics[metric])))
    # Two numbers, of a path, show it on the analysis page ("interval"), one on the comparison page ("final").
    value = types.Value(tag=f"landscape_{numbers}", loss_landscape=message)
    event = types.Event(wall_time=moment, step=0, summary=types.Summary(value=[value])).SerializeToString()
    version = types.Event(wall_time=moment, version="MindSpore.Event:1").SerializeToString()
    return {_file(path, moment, landscape): record(version) + record(event)}


def _file(path: Path, moment: float, landscape: LandscapeData) -> Path:
    with naming(path):
        is_folder = path.is_dir()
    if is_folder:
        stem = "landscape" if landscape.path is None else landscape.path.stem
        return path / f"events.out.events.summary.{int(moment)}.0.{stem}_MS"
    if not _FILE_NAME.search(path.name) or path.name.endswith("_lineage"):
        raise ValueError(
            "path must be a directory that exists, or a file whose name has 'summary.' and a number in it and does not "
            f"end with '_lineage' (MindInsight passes over others), but got {path.name!r}. "
            "Such a name is 'events.out.events.summary.1.landscape_MS'."
        )
    return path


def _check_values(z: NDArray[Any], metric: str) -> None:
    if z.size > _MOST_POINTS:
        raise LandscapeExportError(
            f"{_PROGRAM} holds at most {_MOST_POINTS} points (MindInsight drops larger ones), but the landscape has "
            f"{z.size}. Measure a coarser grid."
        )
    with np.errstate(over="ignore"):
        seen = z.astype(np.float32)
    gaps = int((~np.isfinite(seen)).sum())
    if gaps:
        raise LandscapeExportError(
            f"{_PROGRAM} holds finite float32 numbers only (its page stays empty otherwise), but {gaps} of {z.size} "
            f"points have none for {metric!r}. Finish the survey or measure a smaller range, or export as csv, npz, "
            "netcdf or vtk, which keep such points."
        )
    if seen.min() == seen.max():
        raise LandscapeExportError(
            f"{metric!r} is {seen.min()} (as float32) at every point, and MindInsight's page never ends drawing the "
            "contours of a constant surface. Choose another metric or format."
        )


def _fill_path(loss_path: Any, landscape: LandscapeData, metric: str) -> list[int]:
    """Fills in the path of a single run and returns the checkpoint numbers that name the landscape."""
    found = landscape.checkpoints
    paths = [] if found is None else found.paths
    if len(paths) > 1:
        warn_user(
            f"{_PROGRAM} holds the path of one run, but the landscape has {len(paths)}; it is written without paths."
        )
    if found is None or len(paths) != 1 or found.y is None or metric not in found.projected:
        intervals = landscape.attributes.get("intervals") or [[]]
        return [int(number) for number in (*intervals[0][:1], *intervals[-1][-1:])][-1:]
    trajectory = found.part(paths[0])
    assert trajectory.y is not None
    heights = trajectory.projected[metric]
    with np.errstate(over="ignore"):
        known = np.isfinite(heights.astype(np.float32))
    if not known.all():
        warn_of_unknown_heights(trajectory.number[~known], metric, f"{_PROGRAM}'s path")
    loss_path.intervals.extend(trajectory.number[known].tolist())
    _fill(loss_path.points, trajectory.x[known], trajectory.y[known], heights[known])
    numbers = trajectory.number.tolist()
    return [numbers[0], numbers[-1]] if numbers else []


def _fill(point: Any, x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> None:
    for tensor, values in ((point.x, x), (point.y, y), (point.z, z)):
        tensor.dims.extend(values.shape)
        tensor.data_type = _FLOAT32
        tensor.float_data.extend(values.ravel().tolist())


def _moment(created: Any) -> float:
    # The time of the measurement, not of the export: equal landscapes give equal files.
    try:
        moment = datetime.fromisoformat(created)
    except (TypeError, ValueError):
        return time.time()
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@functools.cache
def messages() -> SimpleNamespace:
    with needing("mindinsight", "protobuf", "protobuf>=4.22"):
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="landscape_summary.proto", package="landscape", syntax="proto2")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, (number, text) in fields.items():
            repeated, type_name = text.startswith("repeated "), text.removeprefix("repeated ")
            field = message.field.add(name=name, number=number)
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if type_name in _MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".landscape.{type_name}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{type_name.upper()}")
            if text == "repeated float":
                field.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kinds_by_name = {name: pool.FindMessageTypeByName(f"landscape.{name}") for name in _MESSAGES}
    return SimpleNamespace(**{name: message_factory.GetMessageClass(kind) for name, kind in kinds_by_name.items()})
