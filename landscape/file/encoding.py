"""Turns a landscape into the bytes of its file: equal data, equal bytes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.metric_names import PLANE_BUFFERS_SUFFIX, PROJECTED_PREFIX

from .attributes import check_attributes
from .checkpoints import CheckpointsData, OriginData
from .checks import ordered
from .contents import write_digest
from .data import LandscapeData
from .hdf5_writing import as_text, as_texts, file_in, put, put_group, write_attributes, write_errors
from .kind import LANDSCAPE
from .samples_in_file import write_samples


def landscape_bytes(data: LandscapeData) -> bytes:
    """Returns a landscape as the bytes of its file."""
    # In memory, a full disk meets ordinary writing, not HDF5, which leaves its handles open when it fails in closing.
    data.validate()
    check_attributes(data.attributes)
    buffer = io.BytesIO()
    with file_in(buffer) as file:
        write_attributes(file, LANDSCAPE, data.attributes, complete=data.complete)
        write_samples(file, data.kept_samples, _write_grid(file, data))
        write_errors(file, data.errors)
        _write_checkpoints(file, data)
        _write_origin(file, data.origin)
        directions = put_group(file, "directions")
        for name, values in vars(data.directions).items():
            if values is not None:
                put(directions, name, np.asarray(values, np.float64))
        write_digest(file)
    return buffer.getvalue()


def _write_grid(file: Any, data: LandscapeData) -> list[Any]:
    put(file, "x", data.x).make_scale("x")
    scales = [file["x"]]
    if data.y is not None:
        put(file, "y", data.y).make_scale("y")
        scales.insert(0, file["y"])
    for name, values in (*ordered(data.metrics).items(), ("status", data.status)):
        dataset = put(file, name, values)
        for axis, scale in enumerate(scales):
            dataset.dims[axis].attach_scale(scale)
    return scales


def checkpoint_columns(checkpoints: CheckpointsData) -> dict[str, NDArray[Any]]:
    """Returns the numbers of n checkpoints as columns by the names that they have in the file, ``number`` first."""
    columns: dict[str, NDArray[Any]] = {"number": checkpoints.number, "x": checkpoints.x}
    if checkpoints.y is not None:
        columns["y"] = checkpoints.y
    columns |= {"residual": checkpoints.residual, "norm": checkpoints.norm, "run": checkpoints.run}
    columns |= {"final": checkpoints.final.astype(np.uint8), "status": checkpoints.status}
    columns |= ordered(checkpoints.metrics)
    columns |= {PROJECTED_PREFIX + name: values for name, values in ordered(checkpoints.projected).items()}
    columns[f"{PROJECTED_PREFIX}status"] = checkpoints.projected_status
    if checkpoints.with_plane_buffers_status is not None:
        kept = ordered(checkpoints.with_plane_buffers)
        columns |= {name + PLANE_BUFFERS_SUFFIX: values for name, values in kept.items()}
        columns["with_plane_buffers_status"] = checkpoints.with_plane_buffers_status
    return columns


def _write_checkpoints(file: Any, data: LandscapeData) -> None:
    if data.checkpoints is None:
        return
    group = put_group(file, "checkpoints")
    columns = checkpoint_columns(data.checkpoints)
    put(group, "number", columns.pop("number")).make_scale("number")
    for texts in ("name", "sha256"):
        columns[texts] = as_texts([as_text(text) for text in getattr(data.checkpoints, texts)])
    for name, values in columns.items():
        put(group, name, values).dims[0].attach_scale(group["number"])
    # A dimension of its own, without which xarray would not open the group.
    put(group, "run_name", as_texts([as_text(name) for name in data.checkpoints.runs])).make_scale("run_name")


def _write_origin(file: Any, origin: OriginData) -> None:
    group = put_group(file, "origin")
    for name, value in {"x": origin.x, "y": origin.y, **ordered(origin.metrics)}.items():
        if value is not None:
            put(group, name, np.float64(value))
    put(group, "status", np.uint8(origin.status))
    for name in ("role", "name", "run"):
        put(group, name, as_texts([as_text(getattr(origin, name))])[0])
    if origin.number is not None:
        put(group, "number", np.int64(origin.number))
