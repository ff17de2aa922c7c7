"""Reads the surface files of Li et al.'s scripts (Li et al. 2018), trusting nothing in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from collectors.errors import LandscapeError
from collectors.network_state import Array

from ..bounded_reader import BoundedReader, member_names
from ..errors import LandscapeFormatError
from ..landscape_data import LandscapeData, PointStatus
from ..landscape_encoding import FORMAT
from ..landscape_reader import read_attribute
from .foreign_landscape import damaged, foreign_landscape

PROGRAM = "Li et al.'s surface file"
_AXES = ("xcoordinates", "ycoordinates")
_ALWAYS_POSITIVE = ("train_loss", "train_acc", "test_loss", "test_acc")
_MISSING = -1


def read_li_surface(path: Path, loss: str | None = None) -> LandscapeData:
    """Reads a surface or a line.

    The metric "loss" is the data set that ``loss`` names, by default ``train_loss``; all others of the grid's size
    keep their names, accuracies their percent. A loss of -1 means not measured yet: such points are pending and have
    NaN. Grids that are not square are stored as (nx, ny) but filled as (ny, nx); they are put right. Neither the
    directions nor the path are in the file, and the direction file that it names is not opened.

    Raises:
        LandscapeDamagedError: it is truncated, no HDF5 file, or its sizes do not fit together.
        LandscapeFormatError: it is another kind of HDF5 file, or has no data set of the name ``loss``.
    """
    import h5py

    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            if read_attribute(file, "format") == FORMAT:
                raise LandscapeFormatError(f"{path} is a landscape file of this program. Open it with Landscape.load.")
            return _surface(file, path, loss)
    except LandscapeError:
        raise
    except Exception as error:  # the library reports damage by nearly every kind of exception
        raise damaged(path, PROGRAM, error) from error


def _surface(file: object, path: Path, loss: str | None) -> LandscapeData:
    import h5py

    assert isinstance(file, h5py.File)
    names = member_names(file)
    if "xcoordinates" not in names:
        raise LandscapeFormatError(
            f"{path} is no {PROGRAM}: it has no 'xcoordinates', but {names[:8]}. Give the file that plot_surface.py "
            "wrote, not the directions."
        )
    reader = BoundedReader(path.stat().st_size)
    arrays: dict[str, Array] = {}
    for name in names:
        # The path of the direction file is text of variable length; nothing in it is used.
        if isinstance(file[name], h5py.Dataset) and file[name].dtype.kind in "fiu":
            arrays[name] = reader.array(file[name], name)
    x, y = arrays["xcoordinates"], arrays.get("ycoordinates")
    for axis in (x, y):
        if axis is not None and axis.ndim != 1:
            raise ValueError(f"its coordinates have the shape {axis.shape}")
    shape = (len(x),) if y is None else (len(y), len(x))
    metrics = {
        name: values.ravel().reshape(shape).astype(np.float64)
        for name, values in arrays.items()
        if name not in _AXES and values.size == np.prod(shape)
    }
    loss = "train_loss" if loss is None else loss
    if loss not in metrics:
        raise LandscapeFormatError(
            f"{path} has no values {loss!r} for its grid; it has {sorted(metrics)}. Say which of them is the loss "
            "(loss=, --loss)."
        )
    pending = metrics[loss] == _MISSING
    for name in {loss, *_ALWAYS_POSITIVE} & metrics.keys():
        metrics[name][metrics[name] == _MISSING] = np.nan
    metrics = {"loss": metrics.pop(loss), **metrics}
    status = np.where(pending, PointStatus.PENDING, PointStatus.MEASURED).astype(np.uint8)
    imported = {"format": "li", "file": path.name, "loss": loss}
    return foreign_landscape(x, y, metrics, status, imported, [])
