"""Files of plain arrays: NetCDF-4 as xarray writes it with h5netcdf, NumPy's archives, tables of text."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..grid.data import LandscapeData
from ..grid.landscape_file import checkpoint_columns
from ..grid.samples import KeptLosses
from ..record.checks import PointStatus
from .descriptions import describe
from .formats import Images, needing

if TYPE_CHECKING:
    import xarray

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
        groups["checkpoints"] = describe(whole, landscape, "checkpoints")
    # xarray would take a single number named like a dimension for that dimension.
    origin = {
        f"{name}_coordinate" if name in "xy" else name: value for name, value in _origin_values(landscape).items()
    }
    role = {name: getattr(landscape.origin, name) for name in ("role", "name", "run")}
    groups["origin"] = describe(xarray.Dataset(origin, attrs=role), landscape, "origin")

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
    return describe(xarray.Dataset(values, axes, attributes), landscape)


def with_samples(dataset: xarray.Dataset, landscape: LandscapeData, samples: KeptLosses) -> xarray.Dataset:
    columns = {"target": samples.targets, "weight": samples.weights}
    known = {name: ("sample", np.array(values)) for name, values in columns.items() if values is not None}
    axes = tuple(name for name in ("y", "x") if name in dataset.coords)
    more = dataset.assign(sample_loss=((*axes, "sample"), samples.losses())).assign_coords(known)
    return describe(more, landscape)


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
