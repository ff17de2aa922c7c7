"""What a landscape is in a program for three dimensions: named solids with colours, and the facts about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.texts import metric_text
from ..meshes.path_mesh import ball_mesh, path_lines, path_marks, path_mesh
from ..meshes.space import Space
from ..meshes.surface_mesh import surface_mesh, vertex_normals
from .raised import facts_in_space, raised

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64

    from ..grid.data import LandscapeData

# In the units of a space, in which a square plane is 2 wide.
_TUBE, _CHECKPOINT, _SINGLE = 0.008, 0.016, 0.012
# The last checkpoint is often the origin too, whose ball then holds the smaller one.
_MARKS = {"start": 0.026, "end": 0.026, "network": 0.028, "origin": 0.032}


@dataclass(frozen=True)
class Solid:
    """A part of a landscape, as triangles with z up."""

    name: str  # in the words of figures, such as "loss surface"
    is_path: bool  # whether it belongs to the path and its marks, or to the surface
    vertices: Float64[np.ndarray, "n 3"]
    triangles: Int64[np.ndarray, "m 3"]  # counter-clockwise seen from outside or above
    normals: Float64[np.ndarray, "n 3"]  # unit vectors
    colors: Float64[np.ndarray, "*n 3"]  # red, green, blue (sRGB), 0 to 1: one for all, (3,), or one each, (n, 3)
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # further numbers of each vertex by name, (n,)
    facts: Mapping[str, Any] = field(default_factory=dict)  # further facts as JSON values


def landscape_solids(landscape: LandscapeData, metric: str, program: str) -> tuple[list[Solid], dict[str, Any]]:
    """Returns the surface, the paths, the checkpoints on them and the marks, and what all of it shows."""
    space = raised(landscape, metric, program)
    return [*_surface(space), *_paths(space)], facts_in_space(space)


def _surface(space: Space) -> list[Solid]:
    mesh = surface_mesh(space)
    words, column = metric_text(space.landscape, space.metric, str), column_name(space.metric)
    colors, status = mesh.colors()[:, :3], space.landscape.status.ravel().astype(np.float32)
    facts = {"metric": space.metric, "scale": space.scale.tall.label(words)}
    used, alone = mesh.used, np.flatnonzero(mesh.alone)
    solids = []
    if used.any():
        whole = mesh.compact()
        columns = {column: whole.values, "status": status[used]}
        solids.append(
            Solid(
                f"{words} surface", False, whole.vertices, whole.triangles, whole.normals, colors[used], columns, facts
            )
        )
    if len(alone):
        vertices, triangles = ball_mesh(mesh.vertices[alone], _SINGLE)
        rows = np.repeat(alone, len(vertices) // len(alone))
        columns = {column: mesh.values[rows], "status": status[rows]}
        name = f"{words} at single points"
        solids.append(_solid(name, vertices, triangles, colors[rows], columns, facts, path=False))
    return solids


def _paths(space: Space) -> list[Solid]:
    words = f"projected {metric_text(space.landscape, space.metric, str)}"
    found = space.landscape.checkpoints
    solids = []
    for line in path_lines(space):
        assert found is not None
        color = _color(line.color)
        facts = {"heights": words}
        solids.append(_solid(line.name, *path_mesh(line.points, _TUBE), color, {}, facts))
        balls = ball_mesh(line.checkpoints, _CHECKPOINT)
        facts = facts | {"number": found.number[line.rows].tolist(), words: line.values.tolist()}
        solids.append(_solid(f"checkpoints of {line.name}", *balls, color, {}, facts))
    for mark in path_marks(space):
        ball = ball_mesh(mark.point[None], _MARKS[mark.kind])
        solids.append(_solid(mark.name, *ball, _color(mark.color), {}, {"kind": mark.kind, space.metric: mark.value}))
    return solids


def _solid(
    name: str, vertices: Any, triangles: Any, colors: Any, columns: Any, facts: Any, *, path: bool = True
) -> Solid:
    return Solid(name, path, vertices, triangles, vertex_normals(vertices, triangles), colors, columns, facts)


def column_name(metric: str) -> str:
    """Returns a metric's name in letters that every format takes: "loss_test" for "loss@test"."""
    return re.sub(r"\W+", "_", metric, flags=re.ASCII).strip("_") or "value"


def _color(text: str) -> NDArray[Any]:
    from matplotlib.colors import to_rgb

    return np.array(to_rgb(text))
