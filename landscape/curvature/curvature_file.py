"""The curvature file (HDF5): whole at every moment, and nothing in it depends on when or by whom it was written."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from collectors.files.remote_path import RemotePath
from collectors.validation import check_choice, check_float, check_instance, check_int, wrong_type
from workers.curvature.products import MATRICES

from ..file.attributes import check_attributes
from ..file.contents import write_digest
from ..file.hdf5_reading import BoundedReader, read_attributes, read_errors
from ..file.hdf5_writing import as_text, as_texts, file_in, put, put_group, write_attributes, write_errors
from ..file.kind import CURVATURE
from ..file.whole_file import path_of, read_whole
from .data import SHARE_SEEN, CurvatureData

_TEXTS = ("sha256",)
_DENSITY = {"density_nodes": "nodes", "density_weights": "weights"}
_NEEDED = ("matrix", "unit", "top", "bottom", "weights")


def curvature_bytes(data: CurvatureData) -> bytes:
    """Returns curvature as the bytes of its file; equal data give equal bytes.

    Raises:
        TypeError: an attribute is no JSON value, or has the wrong type.
        ValueError: shapes, types or values do not fit together.
    """
    data.validate()
    _check_attributes(data.attributes)
    buffer = io.BytesIO()
    with file_in(buffer) as file:
        write_attributes(file, CURVATURE, data.attributes, complete=data.complete)
        columns = data.columns
        put(file, "number", columns.pop("number")).make_scale("number")
        put(file, "sha256", as_texts([as_text(text) for text in data.sha256])).dims[0].attach_scale(file["number"])
        density = {name: columns.pop(name) for name in _DENSITY}
        if np.isnan(columns[SHARE_SEEN]).all():
            del columns[SHARE_SEEN]
        for name, values in columns.items():
            # HDF5 keeps no data of an array without elements, and would not say what its shape was.
            if values.size:
                put(file, name, values).dims[0].attach_scale(file["number"])
        if data.density_nodes.size:
            group = put_group(file, "density")
            for name, values in density.items():
                put(group, _DENSITY[name], values).dims[0].attach_scale(file["number"])
        write_errors(file, data.errors)
        write_digest(file)
    return buffer.getvalue()


def read_curvature(path: str | os.PathLike[str] | RemotePath) -> CurvatureData:
    """Reads a curvature file into memory and closes it; nothing on the disk changes.

    Args:
        path: of the file, or its fsspec URL.

    Raises:
        LandscapeNotFoundError: there is no such file.
        LandscapeLockedError: another program has the file open for writing.
        LandscapeDamagedError: it is truncated, no HDF5 file, or its contents do not fit together.
        LandscapeFormatError: it is another program's, a landscape's, or another version's with another format.
        LandscapeError: the operating system refuses to open it.
    """
    place = path_of(path)
    data = read_whole(place, CURVATURE, _read)
    data.path = place
    return data


def _read(file: Any, size: int) -> CurvatureData:
    reader = BoundedReader(size, axes=3)
    arrays, groups = reader.members(file, _TEXTS)
    density, _ = reader.members(groups["density"]) if "density" in groups else ({}, {})
    attributes = read_attributes(file)
    _check_attributes(attributes)
    texts = arrays.pop("sha256")
    count = len(arrays["number"])
    missing = CurvatureData.empty(range(count), [""] * count, pairs=0)
    columns: dict[str, Any] = {name: arrays.get(name, values) for name, values in missing.columns.items()}
    columns |= {name: density[own] for name, own in _DENSITY.items() if density}
    if SHARE_SEEN not in arrays:
        columns[SHARE_SEEN] = np.full(columns["eigenvalues"].shape, np.nan)
    data = CurvatureData(
        **columns,
        sha256=tuple(text.decode("utf-8") for text in texts),
        errors=read_errors(reader, groups["errors"]),
        attributes=attributes,
    )
    data.validate()
    return data


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    """Checks those attributes that are computed with.

    Raises:
        TypeError: one has the wrong type.
        ValueError: one has a wrong value, or is missing.
    """
    check_attributes(attributes)
    if missing := [name for name in _NEEDED if attributes.get(name) is None]:
        raise ValueError(f"the attributes lack {missing}.")
    check_choice("matrix", attributes["matrix"], MATRICES)
    check_instance("unit", attributes["unit"], str, "a str")
    for name in ("top", "bottom", "weights"):
        check_int(name, attributes[name], minimum=0)
    for name in ("tolerance",):
        if attributes.get(name) is not None:
            check_float(name, attributes[name])
    for name in ("identity", "versions"):
        if not isinstance(attributes.get(name, {}), Mapping):
            raise wrong_type(name, "a dict", attributes[name])
