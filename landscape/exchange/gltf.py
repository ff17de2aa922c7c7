"""glTF 2.0 of the Khronos Group, for Blender, three.js and web pages: one file, binary (.glb) or text (.gltf)."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64, Int64
from workers.users_code import warn_user

from ..drawing.appearance import find_colormap
from ..drawing.texts import metric_text
from ..grid.data import LandscapeData
from ..rendering.meshes import Space, ball_mesh, path_lines, path_marks, path_mesh, surface_mesh, vertex_normals
from .formats import Images, facts_in_space, needing, raised

_PROGRAM = "a glTF scene"
# trimesh writes colours as bytes, which shows steps in the dark; further columns it writes as they are.
_COLOR, _COLOR_COLUMN = "COLOR_0", "_COLOR_0"
# What a part of the buffer is for, in OpenGL's numbers.
_VERTICES, _TRIANGLES = 34962, 34963
# In the units of a space, in which a square plane is 2 wide.
_TUBE, _CHECKPOINT, _SINGLE = 0.008, 0.016, 0.012
# The last checkpoint is often the origin too, whose ball then holds the smaller one.
_MARKS = {"start": 0.026, "end": 0.026, "network": 0.028, "origin": 0.032}


@dataclass(frozen=True)
class _Solid:
    """A node of the scene: a part of a landscape, as triangles with z up."""

    name: str  # in the words of figures, such as "loss surface"
    vertices: Float64[np.ndarray, "n 3"]
    triangles: Int64[np.ndarray, "m 3"]  # counter-clockwise seen from outside or above
    colors: Float64[np.ndarray, "*n 3"]  # red, green, blue (sRGB), 0 to 1: one for all, (3,), or one each, (n, 3)
    facts: Mapping[str, Any]  # as JSON values
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # further numbers of each vertex by name, (n,)
    is_seen_from_below: bool = False


def gltf_images(landscape: LandscapeData, path: Path, metric: str) -> Images:
    """Returns a glTF file, in metres with y up: each solid is a node; of .gltf, a text, the numbers are base64."""
    space, name = raised(landscape, metric, _PROGRAM), path.suffix.lower().removeprefix(".")
    solids, facts = [*_surface(space), *_paths(space)], facts_in_space(space)
    with needing(name, "trimesh", "summary-landscape[meshes]"):
        import trimesh
        from trimesh.exchange.gltf import export_glb
    scene = trimesh.Scene()
    named = dict(zip(_different([solid.name for solid in solids]), solids, strict=True))
    for node, solid in named.items():
        scene.add_geometry(_geometry(trimesh, solid), node_name=node, geom_name=node)
    content = export_glb(scene, include_normals=True, tree_postprocessor=lambda tree: _finish(tree, named, facts))
    if name == "glb":
        return {path: bytes(content)}
    # Twelve bytes of head; then the text and the numbers, each after its length and its kind.
    (size,) = struct.unpack_from("<I", content, 12)
    tree, numbers = json.loads(content[20 : 20 + size]), content[28 + size :]
    encoded = base64.b64encode(numbers).decode("ascii")
    tree["buffers"] = [{"byteLength": len(numbers), "uri": f"data:application/octet-stream;base64,{encoded}"}]
    return {path: json.dumps(tree, separators=(",", ":")).encode("ascii")}


def _geometry(trimesh: Any, solid: _Solid) -> Any:
    columns = {}
    for name, column in solid.columns.items():
        with np.errstate(over="ignore"):
            narrow = np.asarray(column, np.float32)
        if np.isfinite(narrow).all():
            columns[f"_{name}"] = narrow
        else:
            warn_user(
                f"the column {name!r} is left out of {_PROGRAM}, which holds float32 numbers only: some are too large."
            )
    normals = vertex_normals(solid.vertices, solid.triangles)
    if solid.colors.ndim > 1:
        columns[_COLOR_COLUMN] = np.column_stack([_linear(solid.colors), np.ones(len(solid.vertices))])
    return trimesh.Trimesh(
        _y_up(solid.vertices), solid.triangles, vertex_normals=_y_up(normals), process=False,
        vertex_attributes={name: column.astype(np.float32) for name, column in columns.items()},
        metadata=dict(solid.facts),
    )  # fmt: skip


def _finish(tree: dict[str, Any], solids: dict[str, _Solid], facts: dict[str, Any]) -> None:
    tree["asset"] |= {"generator": "summary-landscape, trimesh", "extras": facts}
    tree["scenes"][0]["name"] = facts["title"]
    tree["materials"] = []
    for mesh in tree["meshes"]:
        (primitive,) = mesh["primitives"]
        attributes = primitive["attributes"]
        if _COLOR_COLUMN in attributes:
            attributes[_COLOR] = attributes.pop(_COLOR_COLUMN)
        for accessor in attributes.values():
            tree["bufferViews"][tree["accessors"][accessor]["bufferView"]]["target"] = _VERTICES
        tree["bufferViews"][tree["accessors"][primitive["indices"]]["bufferView"]]["target"] = _TRIANGLES
        solid = solids[mesh["name"]]
        color = [1.0, 1.0, 1.0] if solid.colors.ndim > 1 else _linear(solid.colors).tolist()
        look = {"baseColorFactor": [*color, 1.0], "metallicFactor": 0.0, "roughnessFactor": 0.7}
        material = {"name": mesh["name"], "doubleSided": solid.is_seen_from_below, "pbrMetallicRoughness": look}
        primitive["material"] = len(tree["materials"])
        tree["materials"].append(material)


def _linear(colors: NDArray[Any]) -> NDArray[Any]:
    """Returns sRGB colours as glTF has them: proportional to light."""
    return np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)


def _y_up(points: NDArray[Any]) -> NDArray[Any]:
    return points[:, [0, 2, 1]] * (1, 1, -1)


def _different(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        count, free = 2, name
        while free in found:
            free, count = f"{name} ({count})", count + 1
        found.append(free)
    return found


def _surface(space: Space) -> list[_Solid]:
    mesh = surface_mesh(space)
    words = metric_text(space.landscape, space.metric, str)
    # In letters that a glTF attribute takes: "loss_test" for "loss@test".
    column = re.sub(r"\W+", "_", space.metric, flags=re.ASCII).strip("_") or "value"
    colors = find_colormap("viridis")(mesh.shares)[:, :3]
    status = space.landscape.status.ravel().astype(np.float32)
    facts = {"metric": space.metric, "scale": space.scale.tall.label(words)}
    used, alone = mesh.used, np.flatnonzero(mesh.alone)
    solids = []
    if used.any():
        # Without the vertices that no triangle has, every number is finite.
        places = mesh.vertices[used], (np.cumsum(used) - 1)[mesh.triangles]
        columns = {column: mesh.values[used], "status": status[used]}
        solids.append(_Solid(f"{words} surface", *places, colors[used], facts, columns, is_seen_from_below=True))
    if len(alone):
        vertices, triangles = ball_mesh(mesh.vertices[alone], _SINGLE)
        rows = np.repeat(alone, len(vertices) // len(alone))
        columns = {column: mesh.values[rows], "status": status[rows]}
        name = f"{words} at single points"
        solids.append(_Solid(name, vertices, triangles, colors[rows], facts, columns, is_seen_from_below=True))
    return solids


def _paths(space: Space) -> list[_Solid]:
    from matplotlib.colors import to_rgb

    words = f"projected {metric_text(space.landscape, space.metric, str)}"
    found = space.landscape.checkpoints
    solids = []
    for line in path_lines(space):
        assert found is not None
        color, facts = np.array(to_rgb(line.color)), {"heights": words}
        solids.append(_Solid(line.name, *path_mesh(line.points, _TUBE), color, facts))
        numbers = {"number": found.number[line.rows].tolist(), words: line.values.tolist()}
        balls = ball_mesh(line.checkpoints, _CHECKPOINT)
        solids.append(_Solid(f"checkpoints of {line.name}", *balls, color, facts | numbers))
    for mark in path_marks(space):
        ball, color = ball_mesh(mark.point[None], _MARKS[mark.kind]), np.array(to_rgb(mark.color))
        solids.append(_Solid(mark.name, *ball, color, {"kind": mark.kind, space.metric: mark.value}))
    return solids
