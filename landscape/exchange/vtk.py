"""VTK's files, for ParaView and pyvista: a structured grid, and the trajectory as a line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..file.encoding import trajectory_columns
from .formats import ExportFormat, Writers, plane_axes

if TYPE_CHECKING:
    from ..file.data import LandscapeData


_PROGRAM = "a VTK surface"


def vtk_writers(landscape: LandscapeData, path: Path, _metric: str) -> Writers:
    """Returns what writes ``<stem>.vts`` and ``<stem>_trajectory.vtp``.

    Both lie flat at z = 0, with every metric and the status as point data: users choose the
    scale of the heights with ParaView's filter "Warp By Scalar", and NaN is no height. On the surface, the path's
    height is ``projected_loss``. In the names of metrics an underscore stands for &, <, > and quotes, which VTK cannot
    write.

    Raises:
        LandscapeExportError: the landscape is a line.
        ImportError: pyvista is not installed.
    """
    x, y = plane_axes(landscape, _PROGRAM)
    try:
        import pyvista
    except ImportError as error:
        raise ImportError("the format vtk needs pyvista: pip install 'summary-landscape[vtk]'") from error
    # VTK's first index, x, runs fastest: the order of rows y and columns x.
    columns, rows = np.meshgrid(x, y)
    grid = pyvista.StructuredGrid()
    grid.points = _flat(columns.ravel(), rows.ravel())
    grid.dimensions = (len(x), len(y), 1)
    for name, values in (*landscape.metrics.items(), ("status", landscape.status)):
        _put(grid.point_data, name, np.array(values).ravel())
    grid.field_data["attributes"] = [json.dumps(dict(landscape.attributes), sort_keys=True)]
    writers: Writers = {path: _saving(grid, ".vts")}
    trajectory = landscape.trajectory
    if trajectory is not None and trajectory.y is not None and len(trajectory.number):
        line = pyvista.PolyData()
        line.points = _flat(trajectory.x, trajectory.y)
        count = len(trajectory.number)
        line.lines = np.concatenate(([count], np.arange(count)))
        for name, values in trajectory_columns(trajectory).items():
            if name not in ("x", "y"):
                _put(line.point_data, name, np.array(values))
        writers[path.with_name(f"{path.stem}_trajectory.vtp")] = _saving(line, ".vtp")
    return writers


def _put(point_data: Any, name: str, values: NDArray[Any]) -> None:
    # VTK writes names into its XML as they are.
    name = re.sub("[&<>\"']", "_", name)
    while name in point_data:
        name += "_"
    point_data[name] = values


def _flat(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    return np.column_stack((x, y, np.zeros(len(x))))


def _saving(dataset: Any, suffix: str) -> Callable[[Path], None]:
    def save(file: Path) -> None:
        # pyvista chooses the format by the name. VTK reports a failed write only on its own console.
        named = file.with_suffix(suffix)
        try:
            dataset.save(named)
            named.replace(file)
        finally:
            named.unlink(missing_ok=True)

    return save


VTK = ExportFormat(".vts", False, vtk_writers)
