"""The archives of Landscaper 1.3, written for it and read from it; nothing in a file is trusted."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_choice

from ..errors import LandscapeFormatError
from ..grid.data import LandscapeData
from ..record.checks import PointStatus
from .formats import Images, check_square, foreign_landscape, plane_axes, reading, warn_of_gaps, warn_of_interpolated

AXIS_ORDER = "axis_order"
"""A member that Landscaper does not read: the order of the axes of ``loss``, "yx" or "xy"."""

_PROGRAM = "Landscaper's archive"
# Numbers are float64 in memory, whatever they are in the file: 4,096 x 4,096 points.
_LARGEST = 128 * 1024**2
_LONGEST_TEXT = 64
_LONGEST_HEADER = 16 * 1024
_NOTE = (
    "Landscaper 1.3 puts the mean and the extremes in place of NaN and inf, adds noise to the largest values, and its "
    "coordinates differ from the displacements that it measured."
)


def landscaper_images(landscape: LandscapeData, path: Path, metric: str) -> Images:
    x, y = plane_axes(landscape, _PROGRAM)
    check_square(landscape, _PROGRAM)
    values = landscape[metric]
    warn_of_interpolated(landscape, _PROGRAM)
    warn_of_gaps(values, metric, _PROGRAM, "Landscaper's figures and its topology take finite numbers only.")

    # Rows are y, as Landscaper's figures and topology take them; its ``compute`` stores the transpose, so shows x as y.
    members = {"loss": values, "coordinates": np.stack((x, y)), AXIS_ORDER: np.array("yx")}
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **members)
    return {path: stream.getvalue()}


def read_landscaper_archive(path: Path, axis_order: str | None = None) -> LandscapeData:
    """Reads an archive's surface, with axes "xy" as Landscaper's ``compute`` makes them or "yx" as its figures do."""
    if axis_order is not None:
        check_choice("axis_order", axis_order, ("xy", "yx"))
    with reading(path, _PROGRAM), zipfile.ZipFile(path) as archive:
        names = {name.removesuffix(".npy") for name in archive.namelist()}
        if not {"loss", "coordinates"} <= names:
            raise LandscapeFormatError(
                f"{path} is no {_PROGRAM}: it must hold 'loss' and 'coordinates', but has {sorted(names)[:8]}."
            )
        loss, coordinates = _member(archive, "loss"), _member(archive, "coordinates")
        ours = AXIS_ORDER in names
        if axis_order is None and ours:
            stored_order = _member(archive, AXIS_ORDER, kinds="U", largest=_LONGEST_TEXT)
            axis_order = check_choice(AXIS_ORDER, str(stored_order), ("xy", "yx"))
        if coordinates.shape[:1] != (2,):
            raise LandscapeFormatError(
                f"{path} must have two dimensions to become a landscape, but its coordinates have the shape "
                f"{coordinates.shape}."
            )
        loss = loss if axis_order == "yx" else loss.T
        status = np.full(loss.shape, PointStatus.MEASURED, np.uint8)
        imported = {"format": "landscaper", "file": path.name, "axis_order": axis_order or "xy"}
        notes = [] if ours else [_NOTE]
        return foreign_landscape(coordinates[0], coordinates[1], {"loss": loss}, status, imported, notes)


def _member(archive: zipfile.ZipFile, name: str, kinds: str = "fiu", largest: int = _LARGEST) -> NDArray[Any]:
    """Reads one array, provided that the member has as many bytes as its header claims, and that these are not many."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # The others claim the memory that unpacking them takes.
        raise ValueError(f"{name!r} is compressed in a way that NumPy does not use")
    if info.file_size > largest + _LONGEST_HEADER:
        raise ValueError(f"{name!r} claims {info.file_size} bytes, more than the {largest} that are read")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
    if dtype.kind not in kinds:
        raise ValueError(f"{name!r} has the type {dtype}")
    if len(shape) > 2 or math.prod(shape) * dtype.itemsize > info.file_size:
        raise ValueError(f"{name!r} claims the shape {shape}, more than its {info.file_size} bytes hold")
    unpacked = math.prod(shape) * max(dtype.itemsize, 1 if dtype.kind == "U" else 8)
    if unpacked > largest:
        raise ValueError(f"{name!r} has the shape {shape}, {unpacked} bytes in memory; at most {largest} are read")
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
