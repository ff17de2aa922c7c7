"""Files of plain arrays: NetCDF-4 as xarray writes it with h5netcdf, NumPy's archives, tables of text.

The variables of a Dataset have long names, units ("1" for all numbers, which are pure), flags and errors, in the words
of the CF conventions.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workers.metric_names import PLANE_BUFFERS_SUFFIX, PROJECTED_PREFIX, MetricName

from ..drawing.texts import axis_label, main_dataset, unescaped, unit_of
from ..grid.data import LandscapeData
from ..grid.landscape_file import checkpoint_columns
from ..grid.samples import KeptLosses
from ..record.checks import PointStatus
from .formats import Images, needing

if TYPE_CHECKING:
    import xarray

_QUANTITIES = {
    "loss_error": "estimated error of the interpolated loss",
    "max_eigenvalue": "largest eigenvalue of the Hessian",
    "min_eigenvalue": "smallest eigenvalue of the Hessian",
    "convexity_ratio": "ratio of the sizes of the smallest and the largest eigenvalue of the Hessian",
}
_OF_NETWORKS = {
    "residual": "distance in weight space from the network to its foot on the plane",
    "norm": "distance in weight space from the network to the origin",
    "run": "place of the run in the attribute runs, -1 for a network of no run",
    "final": "whether training ended with these weights",
    "name": "name of the network",
    "role": "which network it is",
}
_OF_SAMPLES = {"sample_loss": "loss of each sample", "target": "target of the sample", "weight": "weight of the sample"}
# What is before and after the name of a metric where a checkpoint is measured, the status there, and words for it.
_PLACES = (
    (PROJECTED_PREFIX, "", f"{PROJECTED_PREFIX}status", " at the foot on the plane"),
    ("", PLANE_BUFFERS_SUFFIX, "with_plane_buffers_status", " with the plane's buffers"),
    ("", "", "status", ""),
)
_STATUS = {status: f"status of the measurement{at_place}" for *_, status, at_place in _PLACES}
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def netcdf_images(landscape: LandscapeData, path: Path, _metric: str) -> Images:
    """Returns one file: the grid over (y, x), or (x,), and the groups ``checkpoints`` and ``origin``."""
    with needing("netcdf", "xarray and h5netcdf", "summary-landscape[xarray]"):
        import h5netcdf
        import xarray
        from xarray.backends import H5NetCDFStore
    groups: dict[str | None, xarray.Dataset] = {None: grid_dataset(landscape)}
    if landscape.checkpoints is not None:
        found = landscape.checkpoints
        columns = {**checkpoint_columns(found), "name": np.array(found.name, str)}
        number = columns.pop("number")
        values = {name: ("number", np.array(column)) for name, column in columns.items()}
        whole = xarray.Dataset(values, {"number": np.array(number)}, {"runs": json.dumps(found.runs)})
        groups["checkpoints"] = _described(whole, landscape, "checkpoints")
    # xarray would take a single number named like a dimension for that dimension.
    origin = {
        f"{name}_coordinate" if name in "xy" else name: value for name, value in _origin_values(landscape).items()
    }
    role = {name: getattr(landscape.origin, name) for name in ("role", "name", "run")}
    groups["origin"] = _described(xarray.Dataset(origin, attrs=role), landscape, "origin")

    stream = io.BytesIO()
    # Not to_netcdf, which wants a file; when a disk is full, HDF5 ends the process as it closes one.
    with h5netcdf.File(stream, "w") as file:
        for place, dataset in groups.items():
            store = H5NetCDFStore(file, place, "a")
            # A fill value would claim that a NaN which was measured is missing.
            dataset.dump_to_store(store, encoding={name: {"_FillValue": None} for name in dataset.variables})
            store.sync()
    return {path: stream.getvalue()}


def npz_images(landscape: LandscapeData, path: Path, _metric: str) -> Images:
    """Returns the archive, which ``numpy.load`` opens with ``allow_pickle=False``."""
    arrays: dict[str, NDArray[Any]] = {"x": landscape.x, **landscape.metrics, "status": landscape.status}
    if landscape.y is not None:
        arrays["y"] = landscape.y
    if landscape.checkpoints is not None:
        found = landscape.checkpoints
        arrays |= {f"checkpoints/{name}": values for name, values in checkpoint_columns(found).items()}
        arrays |= {"checkpoints/name": np.array(found.name, str), "checkpoints/run_name": np.array(found.runs, str)}
    arrays |= {f"origin/{name}": np.array(getattr(landscape.origin, name)) for name in ("role", "name", "run")}
    arrays |= {f"origin/{name}": np.array(value) for name, value in _origin_values(landscape).items()}
    # A metric's name has no slash, so none is overwritten.
    arrays["attributes/json"] = np.array(json.dumps(dict(landscape.attributes), sort_keys=True))

    stream = io.BytesIO()
    # numpy.savez takes the names as keywords, so none could be "file", and it stores the time.
    with zipfile.ZipFile(stream, "w") as archive:
        for name, values in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
    return {path: stream.getvalue()}


def csv_images(landscape: LandscapeData, path: Path, _metric: str) -> Images:
    """Returns the table: x, y (not for a line), each metric, and the status in words; x runs fastest."""
    axes = (landscape.x,) if landscape.y is None else tuple(np.meshgrid(landscape.x, landscape.y))
    columns = [values.ravel().tolist() for values in (*axes, *landscape.metrics.values())]
    statuses = [PointStatus(number).name.lower() for number in landscape.status.ravel()]
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow([*("x", "y")[: len(axes)], *landscape.metrics, "status"])
    # The shortest texts that read back as the same float64.
    table.writerows(zip(*columns, statuses, strict=True))
    return {path: stream.getvalue().encode("utf-8")}


def grid_dataset(landscape: LandscapeData) -> xarray.Dataset:
    """Returns a Dataset of copies of metrics and status, with units; attributes that NetCDF cannot hold are JSON."""
    import xarray

    axes = {"x": landscape.x} if landscape.y is None else {"y": landscape.y, "x": landscape.x}
    columns = {**landscape.metrics, "status": landscape.status}
    values = {name: (tuple(axes), np.array(array)) for name, array in columns.items()}
    attributes = {name: _plain(value) for name, value in landscape.attributes.items()}
    return _described(xarray.Dataset(values, axes, attributes), landscape)


def with_samples(dataset: xarray.Dataset, landscape: LandscapeData, samples: KeptLosses) -> xarray.Dataset:
    columns = {"target": samples.targets, "weight": samples.weights}
    known = {name: ("sample", np.array(values)) for name, values in columns.items() if values is not None}
    axes = tuple(name for name in ("y", "x") if name in dataset.coords)
    more = dataset.assign(sample_loss=((*axes, "sample"), samples.losses())).assign_coords(known)
    return _described(more, landscape)


def _origin_values(landscape: LandscapeData) -> dict[str, float]:
    point = landscape.origin
    place = {"x": point.x} if point.y is None else {"x": point.x, "y": point.y}
    number = {} if point.number is None else {"number": point.number}
    return {**place, **number, **point.metrics, "status": int(point.status)}


def _plain(value: Any) -> Any:
    # Integers have 64 bits in NetCDF, and texts neither NUL nor half a character.
    fits = -(2**63) <= value < 2**63 if isinstance(value, int) else isinstance(value, float)
    text = isinstance(value, str) and not _UNSTORABLE.search(value)
    return value if text or (fits and not isinstance(value, bool)) else json.dumps(value, sort_keys=True)


def _described(dataset: xarray.Dataset, landscape: LandscapeData, group: str = "") -> xarray.Dataset:
    """Writes long name and unit of each variable and coordinate into a dataset, which it returns."""
    for name in map(str, dataset.variables):
        variable = dataset[name]
        attributes: dict[str, Any] = {"long_name": _long_name(name, landscape, group)}
        if variable.dtype.kind not in "OSU":
            attributes["units"] = "1"
        if name.removesuffix("_coordinate") in ("x", "y"):
            attributes["comment"] = "a multiple of the direction"
        if name in _STATUS:
            attributes |= {
                "flag_values": np.array([int(status) for status in PointStatus], np.uint8),
                "flag_meanings": " ".join(status.name.lower() for status in PointStatus),
            }
        if name == "final":
            attributes |= {"flag_values": np.array([0, 1], np.uint8), "flag_meanings": "no yes"}
        if related := _related(name, landscape, dataset.variables):
            attributes["ancillary_variables"] = related
        variable.attrs.update(attributes)
    return dataset


def _long_name(name: str, landscape: LandscapeData, group: str) -> str:
    place = name.removesuffix("_coordinate")
    if place in ("x", "y"):
        along = unescaped(axis_label(landscape, "xy".index(place)))
        at = {"": "", "checkpoints": ", at the foot of the network on the plane", "origin": ", at the origin"}
        return along + at[group]
    if name == "number":
        unit = unit_of(landscape)
        return "number of the checkpoint" if unit == "checkpoint" else f"{unit} of the checkpoint"
    if found := _OF_SAMPLES.get(name) or _STATUS.get(name) or (_OF_NETWORKS.get(name) if group else None):
        return found
    prefix, suffix, _, at_place = _place(name)
    metric = MetricName.read(name.removeprefix(prefix).removesuffix(suffix), landscape.metrics)
    words = metric.text(main_dataset(landscape))
    quantity = _QUANTITIES.get(metric.quantity, metric.quantity)
    if quantity.endswith("_stderr"):
        quantity = f"standard error of the {quantity.removesuffix('_stderr')}"
    return quantity + words.removeprefix(metric.quantity) + at_place


def _place(name: str) -> tuple[str, str, str, str]:
    return next(place for place in _PLACES if name.startswith(place[0]) and name.endswith(place[1]))


def _related(name: str, landscape: LandscapeData, among: Container[Any]) -> str:
    """Returns the variables that say how exact a metric is, and whether it was measured at all."""
    is_metric = name in landscape.metrics
    prefix, suffix, status, _ = _PLACES[-1] if is_metric else _place(name)
    if not is_metric and (name in _STATUS or status == "status"):
        return ""
    metric = MetricName.read(name.removeprefix(prefix).removesuffix(suffix), landscape.metrics)
    errors = [] if metric.is_error else [metric.standard_error, *(["loss_error"] if str(metric) == "loss" else [])]
    return " ".join(each for each in (*(f"{prefix}{error}{suffix}" for error in errors), status) if each in among)
