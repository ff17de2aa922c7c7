"""NetCDF-4, as xarray writes it with h5netcdf."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..landscape_data import PointStatus
from ..landscape_encoding import trajectory_columns
from .export_format import ExportFormat, Writers
from .npz import convergence_values

if TYPE_CHECKING:
    from ..surface import Landscape


def netcdf_writers(landscape: Landscape, path: Path, _metric: str) -> Writers:
    """Returns what writes one file: the grid, and the groups ``trajectory`` and ``convergence``.

    Dimensions are (y, x), or (x,) for a line; the trajectory's is ``number``. ``status`` says in the words of the CF
    conventions what its values mean. Attributes that are no number or text are JSON.

    Raises:
        ImportError: xarray or h5netcdf is not installed.
    """
    try:
        import xarray

        importlib.import_module("h5netcdf")
    except ImportError as error:
        raise ImportError(
            "the format netcdf needs xarray and h5netcdf: pip install 'summary-landscape[xarray]'"
        ) from error
    grid = landscape.to_xarray().assign_attrs({name: _plain(value) for name, value in landscape.attributes.items()})
    groups: dict[str | None, xarray.Dataset] = {None: grid}
    if landscape.trajectory is not None:
        columns = trajectory_columns(landscape.trajectory)
        number = columns.pop("number")
        values = {name: ("number", np.array(column)) for name, column in columns.items()}
        groups["trajectory"] = xarray.Dataset(values, coords={"number": np.array(number)})
    # A single number of a dimension's name would be taken for that dimension.
    origin = {
        f"{name}_coordinate" if name in "xy" else name: value for name, value in convergence_values(landscape).items()
    }
    groups["convergence"] = xarray.Dataset(origin)
    for dataset in groups.values():
        for name in dataset.data_vars:
            if name == "status" or str(name).endswith("_status"):
                dataset[name].attrs |= {
                    "flag_values": np.array([int(status) for status in PointStatus], np.uint8),
                    "flag_meanings": " ".join(status.name.lower() for status in PointStatus),
                }

    def write(file: Path) -> None:
        for group, dataset in groups.items():
            # A fill value would claim that a NaN which was measured is missing.
            encoding = {name: {"_FillValue": None} for name in dataset.variables}
            mode = "w" if group is None else "a"
            dataset.to_netcdf(file, mode=mode, group=group, engine="h5netcdf", encoding=encoding)

    return {path: write}


def _plain(value: Any) -> Any:
    # NetCDF attributes have 64 bits, and their texts no NUL.
    fits = -(2**63) <= value < 2**63 if isinstance(value, int) else isinstance(value, float)
    text = isinstance(value, str) and "\0" not in value
    return value if text or (fits and not isinstance(value, bool)) else json.dumps(value, sort_keys=True)


NETCDF = ExportFormat("NetCDF", ".nc", False, netcdf_writers)
