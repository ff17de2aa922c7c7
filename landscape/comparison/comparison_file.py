"""The comparison file (HDF5): whole at every moment, and nothing in it depends on when or by whom it was written."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from collectors.files.remote_path import RemotePath

from ..file.attributes import check_attributes
from ..file.contents import write_digest
from ..file.hdf5_reading import BoundedReader, read_attributes, read_errors
from ..file.hdf5_writing import as_text, as_texts, file_in, put, put_group, write_attributes, write_errors
from ..file.kind import COMPARISON
from ..file.whole_file import path_of, read_whole
from .data import SCALARS, ComparisonData

_TEXTS = ("recipe", "name", "sha256")


def comparison_bytes(data: ComparisonData) -> bytes:
    """Returns a comparison as the bytes of its file; equal data give equal bytes.

    Raises:
        TypeError: an attribute is no JSON value, or has the wrong type.
        ValueError: shapes, types or values do not fit together.
    """
    data.validate()
    check_attributes(data.attributes)
    buffer = io.BytesIO()
    with file_in(buffer) as file:
        write_attributes(file, COMPARISON, data.attributes, complete=data.complete)
        put(file, "t", data.t).make_scale("t")
        put(file, "loss", data.loss).dims[2].attach_scale(file["t"])
        put(file, "status", data.status)
        network = put_group(file, "network")
        for name in _TEXTS:
            put(network, name, as_texts([as_text(text) for text in getattr(data, name)]))
        for name in SCALARS:
            put(network, name, getattr(data, name))
        # HDF5 keeps no data of an array without elements, and would not say what its shape was.
        if data.block_size.size:
            blocks = put_group(file, "blocks")
            put(blocks, "rise", data.block_rise)
            put(blocks, "size", data.block_size)
        write_errors(file, data.errors)
        write_digest(file)
    return buffer.getvalue()


def read_comparison(path: str | os.PathLike[str] | RemotePath) -> ComparisonData:
    """Reads a comparison file into memory and closes it; nothing on the disk changes.

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
    data = read_whole(place, COMPARISON, _read)
    data.path = place
    return data


def _read(file: Any, size: int) -> ComparisonData:
    reader = BoundedReader(size, axes=3)
    arrays, groups = reader.members(file)
    network, _ = reader.members(groups["network"], _TEXTS)
    blocks, _ = reader.members(groups["blocks"]) if "blocks" in groups else ({}, {})
    attributes = read_attributes(file)
    check_attributes(attributes)
    nothing = np.full((*arrays["status"].shape, 0), np.nan)
    columns: dict[str, Any] = {name: network[name] for name in SCALARS}
    columns |= {name: tuple(text.decode("utf-8") for text in network[name]) for name in _TEXTS}
    data = ComparisonData(
        **columns,
        t=arrays["t"],
        status=arrays["status"],
        loss=arrays["loss"],
        block_rise=blocks.get("rise", nothing),
        block_size=blocks.get("size", np.zeros(0)),
        errors=read_errors(reader, groups["errors"]),
        attributes=attributes,
    )
    data.validate()
    return data
