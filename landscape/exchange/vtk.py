"""VTK's files, for ParaView and pyvista: the surface raised to its heights, and paths and networks on it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LandscapeExportError
from ..grid.checkpoints import CheckpointsData
from ..grid.data import LandscapeData
from ..grid.landscape_file import checkpoint_columns
from ..rendering.meshes import PathLine, Space, path_lines
from .formats import Images, facts_in_space, needing, raised, warn_of_unknown_heights

_PROGRAM = "a VTK surface"
# What VTK calls a point that is there but not shown.
_HIDDEN = 2


def vtk_images(landscape: LandscapeData, path: Path, metric: str) -> Images:
    """Returns ``<stem>.vts`` and, where they exist, ``<stem>_checkpoints.vtp`` and ``<stem>_path.vtp``."""
    space = raised(landscape, metric, _PROGRAM)
    with needing("vtk", "pyvista", "summary-landscape[vtk]"):
        import pyvista
    facts = json.dumps(facts_in_space(space, _units(space)), sort_keys=True)
    images: Images = {path: _image_of(_grid(pyvista, space, facts), "vtkXMLStructuredGridWriter")}
    found = landscape.checkpoints
    if found is None or found.y is None or metric not in found.projected:
        return images
    places = space.place(found.x, found.y, found.projected[metric])
    known = np.isfinite(places).all(axis=1)
    if not known.all():
        warn_of_unknown_heights(found.number[~known], metric, _PROGRAM)
    if known.any():
        points = _checkpoints(pyvista, found, np.flatnonzero(known), _sized(space, places[known]))
        images[path.with_name(f"{path.stem}_checkpoints.vtp")] = _image_of(points, "vtkXMLPolyDataWriter")
    if lines := [line for line in path_lines(space) if len(line.rows) > 1]:
        drawn = _paths(pyvista, space, lines, found)
        images[path.with_name(f"{path.stem}_path.vtp")] = _image_of(drawn, "vtkXMLPolyDataWriter")
    return images


def _grid(pyvista: Any, space: Space, facts: str) -> Any:
    """Returns the surface; VTK's first index, x, runs fastest: the order of rows y and columns x."""
    landscape, (x, y), values = space.landscape, space.plane, space.values
    known = np.isfinite(values)
    places = space.place(x[None, :], y[:, None], space.scale.shown(values))
    # VTK takes no place without numbers; at the lowest height what is hidden leaves the bounds as they are.
    places[~known, 2] = places[known, 2].min()
    grid = pyvista.StructuredGrid()
    grid.points = _sized(space, places.reshape(-1, 3))
    grid.dimensions = (len(x), len(y), 1)
    columns, rows = np.meshgrid(x, y)
    for name, column in (("x", columns), ("y", rows), *landscape.metrics.items(), ("status", landscape.status)):
        _put(grid.point_data, name, np.array(column).ravel())
    if not known.all():
        grid.point_data["vtkGhostType"] = np.where(known, 0, _HIDDEN).astype(np.uint8).ravel()
    grid.field_data["attributes"] = [json.dumps(dict(landscape.attributes), sort_keys=True)]
    grid.field_data["heights"] = [facts]
    return grid


def _checkpoints(pyvista: Any, found: CheckpointsData, rows: NDArray[Any], places: NDArray[Any]) -> Any:
    points = pyvista.PolyData()
    points.points = places
    points.verts = np.column_stack([np.ones(len(rows), np.int64), np.arange(len(rows))]).ravel()
    for name, values in checkpoint_columns(found).items():
        _put(points.point_data, name, np.array(values)[rows])
    points.field_data["names"] = [json.dumps({"runs": found.runs, "names": [found.name[row] for row in rows]})]
    return points


def _paths(pyvista: Any, space: Space, lines: list[PathLine], found: CheckpointsData) -> Any:
    drawn, points = pyvista.PolyData(), np.vstack([line.points for line in lines])
    drawn.points = _sized(space, points)
    ends = np.cumsum([len(line.points) for line in lines])
    drawn.lines = np.concatenate([np.append(len(rows), rows) for rows in np.split(np.arange(len(points)), ends[:-1])])
    drawn.cell_data["run"] = np.array([found.run[line.rows[0]] for line in lines])
    drawn.field_data["names"] = [json.dumps({"runs": found.runs})]
    return drawn


def _units(space: Space) -> NDArray[Any]:
    """Returns how many units of a space are one of the file: upwards the mean of both axes, where these differ."""
    across, up, _ = space.factors
    return np.array([across, up, math.sqrt(across * up)])


def _sized(space: Space, places: NDArray[Any]) -> NDArray[Any]:
    """Returns places in the units of the file, with the plane's origin at x = y = 0."""
    return np.asarray(places / _units(space) + space.middle * (1, 1, 0))


def _put(point_data: Any, name: str, values: NDArray[Any]) -> None:
    # VTK writes names into its XML as they are.
    name = re.sub("[&<>\"']", "_", name)
    while name in point_data:
        name += "_"
    point_data[name] = values


def _image_of(dataset: Any, writer: str) -> bytes:
    from vtkmodules import vtkIOXML

    # Into memory: VTK reports a failed write only on its own console.
    chosen = getattr(vtkIOXML, writer)()
    chosen.SetInputData(dataset)
    chosen.SetDataModeToBinary()
    chosen.WriteToOutputStringOn()
    if not chosen.Write():
        raise LandscapeExportError(f"VTK's {writer} failed, and does not say why.")
    return str(chosen.GetOutputString()).encode("utf-8")
