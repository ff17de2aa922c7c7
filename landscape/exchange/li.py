"""Li et al. 2018's surface, direction and projection files in HDF5 (github.com/tomgoldstein/loss-landscape)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.weights.safetensors_file import CheckpointFile
from workers.metric_names import other_datasets
from workers.users_code import warn_user

from ..errors import LandscapeFormatError
from ..grid.data import LandscapeData
from ..grid.kept_plane import find_kept
from ..planes.plane_file import directions_path
from ..record.checks import PointStatus
from ..record.hdf5 import LANDSCAPE, BoundedReader, member_names, put, read_attribute
from .formats import Images, check_square, foreign_landscape, reading, warn_of_gaps, warn_of_interpolated

_PROGRAM = "Li et al.'s surface file"
_AXES = ("xcoordinates", "ycoordinates")
_THEIR_NAMES = (*_AXES, "dir_file", "train_loss")
_ALWAYS_POSITIVE = ("train_loss", "train_acc", "test_loss", "test_acc")
_NOT_MEASURED = -1
# As plot_hessian_eigen.py calls them.
_EIGENVALUES = {"max_eigenvalue": "max_eig", "min_eigenvalue": "min_eig"}


def li_images(landscape: LandscapeData, path: Path, _metric: str) -> Images:
    """Returns ``<stem>.h5`` and, where there are such data, its direction file and each run's projection."""
    check_square(landscape, _PROGRAM)
    surface = _surface(landscape)
    warn_of_interpolated(landscape, _PROGRAM)
    warn_of_gaps(landscape.loss, "loss", _PROGRAM, "The scripts leave them blank.")
    if taken_for_missing := int((landscape.loss <= 0).sum()):
        warn_user(
            f"{taken_for_missing} of {landscape.loss.size} points have a loss of 0 or less; they are written as they "
            "are, but Li et al.'s plot_surface.py takes them for missing and would measure them again, and logarithmic "
            "plots leave them out."
        )
    directions, found = _directions(landscape), landscape.checkpoints
    direction_path = path.with_name(f"{path.stem}_directions.h5")
    images: Images = {path: _hdf5({"dir_file": direction_path.name if directions else "", **surface})}
    if directions:
        images[direction_path] = _hdf5(directions)
    if found is not None and found.y is not None:
        for index, rows in enumerate(found.paths):
            # Their scripts join all points of a file by one line, so each run has a file of its own.
            which = f"_run_{index}" if len(found.paths) > 1 else ""
            projection = {"proj_xcoord": found.x[rows], "proj_ycoord": found.y[rows]}
            images[path.with_name(f"{direction_path.name}{which}_proj_cos.h5")] = _hdf5(projection)
    return images


def read_li_surface(path: Path, loss: str | None = None) -> LandscapeData:
    """Reads a surface or line of ``plot_surface.py``; ``loss`` names the data set of the loss, else train_loss."""
    import h5py

    with reading(path, _PROGRAM), h5py.File(path, "r", locking="best-effort") as file:
        if read_attribute(file, "format") == LANDSCAPE.format:
            raise LandscapeFormatError(f"{path} is a landscape file of this program already. Open it as it is.")
        names = member_names(file)
        if "xcoordinates" not in names:
            raise LandscapeFormatError(
                f"{path} is no {_PROGRAM}: it has no 'xcoordinates', but {names[:8]}. Give the file that "
                "plot_surface.py wrote, not the directions."
            )
        reader = BoundedReader(path.stat().st_size)
        # The path of the direction file is text of variable length; nothing in it is used.
        arrays = {
            name: reader.array(file[name], name)
            for name in names
            if isinstance(file[name], h5py.Dataset) and file[name].dtype.kind in "fiu"
        }
        return _landscape(arrays, path, loss)


def _surface(landscape: LandscapeData) -> dict[str, NDArray[Any]]:
    axes = [landscape.x] if landscape.y is None else [landscape.x, landscape.y]
    values = dict(zip((*_AXES[: len(axes)], "train_loss"), (*axes, landscape.loss), strict=True))
    # The data set that is their test set; None where there is none, or nobody knows which.
    others = other_datasets(landscape.metrics)
    test = "test" if "test" in others else others[0] if len(others) == 1 else None
    theirs = {"loss"} if test is None else {"loss", f"loss@{test}"}
    if test is not None:
        values["test_loss"] = landscape[f"loss@{test}"]
    for name, metric in landscape.metrics.items():
        if name in _THEIR_NAMES or (name in values and name not in theirs):
            warn_user(f"the metric {name!r} is left out of {_PROGRAM}, which uses that name itself.")
        elif name not in theirs:
            values[_EIGENVALUES.get(name, name)] = metric
    # Theirs are in percent.
    accuracies = [("train_acc", "accuracy")] + ([] if test is None else [("test_acc", f"accuracy@{test}")])
    for percent, share in accuracies:
        if share in landscape.metrics and percent not in landscape.metrics:
            values[percent] = 100 * landscape[share]
    if landscape.y is None and "train_acc" not in values:
        warn_user("the landscape has neither 'accuracy' nor 'train_acc', without which plot_1D.py stops.")
    return values


def _directions(landscape: LandscapeData) -> dict[str, NDArray[Any]]:
    ratio = landscape.explained_variance_ratio
    members = {} if ratio is None or len(ratio) != 2 else {"explained_variance_ratio_": ratio}
    path = find_kept(landscape)
    if path is None and landscape.path is not None and directions_path(landscape.path).exists():
        warn_user(f"the directions in {directions_path(landscape.path)} are left out: they are another landscape's.")
    return members if path is None else members | _vectors(CheckpointFile(path))


def _vectors(file: CheckpointFile) -> dict[str, NDArray[Any]]:
    """Returns both directions as lists of all parameters in the network's order; frozen ones do not move."""
    if "parameters" not in file.metadata:
        warn_user(f"the directions in {file.label} are left out: the file does not say the order of the parameters.")
        return {}
    parameters = json.loads(file.metadata["parameters"])
    vectors: dict[str, NDArray[Any]] = {}
    for axis, group in enumerate(("xdirection", "ydirection")):
        if not any(name.startswith(f"direction_{axis}/") for name in file.shapes):
            continue
        for index, (name, shape) in enumerate(parameters):
            key = f"direction_{axis}/{name}"
            values = file.read(key) if key in file.shapes else np.zeros(shape)
            vectors[f"{group}/{index}"] = values.astype(np.float32)
    return vectors


def _hdf5(members: Mapping[str, Any]) -> bytes:
    import h5py

    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for name, values in members.items():
            put(file, name, values)
    return stream.getvalue()


def _landscape(arrays: Mapping[str, NDArray[Any]], path: Path, loss: str | None) -> LandscapeData:
    x, y = arrays["xcoordinates"], arrays.get("ycoordinates")
    for axis in (x, y):
        if axis is not None and axis.ndim != 1:
            raise ValueError(f"its coordinates have the shape {axis.shape}")
    # Grids that are not square are stored as (nx, ny) but filled as (ny, nx).
    shape = (len(x),) if y is None else (len(y), len(x))
    metrics = {
        name: values.ravel().reshape(shape).astype(np.float64)
        for name, values in arrays.items()
        if name not in _AXES and values.size == np.prod(shape)
    }
    loss = "train_loss" if loss is None else loss
    if loss not in metrics:
        raise LandscapeFormatError(
            f"{path} has no values {loss!r} for its grid; it has {sorted(metrics)}. Say with loss= which of them is "
            "the loss."
        )
    pending = metrics[loss] == _NOT_MEASURED
    for name, values in metrics.items():
        # Where the loss is there, -1 may be a value, such as an eigenvalue.
        missing = pending | (name in (loss, *_ALWAYS_POSITIVE))
        values[missing & (values == _NOT_MEASURED)] = np.nan
    metrics = {"loss": metrics.pop(loss), **metrics}
    if loss == "train_loss" and "test_loss" in metrics:
        # Two data sets of ours, whose surfaces are drawn on one scale.
        metrics["loss@test"] = metrics.pop("test_loss")
    status = np.where(pending, PointStatus.PENDING, PointStatus.MEASURED).astype(np.uint8)
    imported = {"format": "li", "file": path.name, "loss": loss}
    return foreign_landscape(x, y, metrics, status, imported, [])
