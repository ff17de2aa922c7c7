"""VTK's files, for ParaView and pyvista: a structured grid, each run's path as a line, and networks as points."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LandscapeExportError
from ..file.encoding import checkpoint_columns
from .formats import ExportFormat, Images, plane_axes

if TYPE_CHECKING:
    from ..file.data import LandscapeData


_PROGRAM = "a VTK surface"


def vtk_images(landscape: LandscapeData, path: Path, _metric: str) -> Images:
    """Returns what makes ``<stem>.vts`` and ``<stem>_checkpoints.vtp``.

    Both lie flat at z = 0, with every metric and the status as point data: users choose the
    scale of the heights with ParaView's filter "Warp By Scalar", and NaN is no height. On the surface, a checkpoint's
    height is ``projected_loss``; ``run`` says which run it belongs to (-1: none). In the names of metrics an underscore
    stands for &, <, > and quotes, which VTK cannot write.

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
    images: Images = {path: _image_of(grid, "vtkXMLStructuredGridWriter")}
    found = landscape.checkpoints
    if found is not None and found.y is not None and len(found.number):
        lines = pyvista.PolyData()
        lines.points = _flat(found.x, found.y)
        # A network of no run is a point that no line joins with another.
        lines.lines = np.concatenate([np.empty(0, np.int64), *(np.append(len(rows), rows) for rows in found.paths)])
        lines.verts = np.concatenate([np.empty(0, np.int64), *(np.array([1, row]) for row in found.networks)])
        for name, values in checkpoint_columns(found).items():
            if name not in ("x", "y"):
                _put(lines.point_data, name, np.array(values))
        lines.field_data["names"] = [json.dumps({"runs": found.runs, "networks": found.name})]
        images[path.with_name(f"{path.stem}_checkpoints.vtp")] = _image_of(lines, "vtkXMLPolyDataWriter")
    return images


def _put(point_data: Any, name: str, values: NDArray[Any]) -> None:
    # VTK writes names into its XML as they are.
    name = re.sub("[&<>\"']", "_", name)
    while name in point_data:
        name += "_"
    point_data[name] = values


def _flat(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    return np.column_stack((x, y, np.zeros(len(x))))


def _image_of(dataset: Any, writer: str) -> Callable[[], bytes]:
    def image() -> bytes:
        from vtkmodules import vtkIOXML

        # Into memory: VTK reports a failed write only on its own console.
        chosen = getattr(vtkIOXML, writer)()
        chosen.SetInputData(dataset)
        chosen.SetDataModeToBinary()
        chosen.WriteToOutputStringOn()
        if not chosen.Write():
            raise LandscapeExportError(f"VTK's {writer} failed, and does not say why.")
        return str(chosen.GetOutputString()).encode("utf-8")

    return image


VTK = ExportFormat(".vts", False, vtk_images)
