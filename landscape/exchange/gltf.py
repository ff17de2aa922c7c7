"""glTF 2.0 of the Khronos Group, for Blender, three.js and web pages: one file, binary (.glb) or text (.gltf)."""

from __future__ import annotations

import base64
import json
import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .formats import ExportFormat, Images
from .solids import Solid, landscape_solids

if TYPE_CHECKING:
    from ..grid.data import LandscapeData


_PROGRAM = "a glTF scene"
# trimesh writes colours as bytes, which shows steps in the dark; further columns it writes as they are.
_COLOR, _COLOR_COLUMN = "COLOR_0", "_COLOR_0"
# What a part of the buffer is for, in OpenGL's numbers.
_VERTICES, _TRIANGLES = 34962, 34963


def glb_images(landscape: LandscapeData, path: Path, metric: str) -> Images:
    """Returns what makes a binary glTF file, in metres with y up: each solid is a node with mesh and material."""
    return {path: _binary(landscape, metric, "glb")}


def gltf_images(landscape: LandscapeData, path: Path, metric: str) -> Images:
    """Returns what makes a glTF file of text, with its numbers inside as base64; otherwise as ``glb_images``."""
    binary = _binary(landscape, metric, "gltf")

    def image() -> bytes:
        content = binary()
        # Twelve bytes of head; then the text and the numbers, each after its length and its kind.
        (size,) = struct.unpack_from("<I", content, 12)
        tree, numbers = json.loads(content[20 : 20 + size]), content[28 + size :]
        encoded = base64.b64encode(numbers).decode("ascii")
        tree["buffers"] = [{"byteLength": len(numbers), "uri": f"data:application/octet-stream;base64,{encoded}"}]
        return json.dumps(tree, separators=(",", ":")).encode("ascii")

    return {path: image}


def _binary(landscape: LandscapeData, metric: str, format: str) -> Callable[[], bytes]:
    solids, facts = landscape_solids(landscape, metric, _PROGRAM)
    try:
        import trimesh
    except ImportError as error:
        raise ImportError(f"the format {format} needs trimesh: pip install 'summary-landscape[meshes]'") from error
    scene = trimesh.Scene()
    named = dict(zip(_different([solid.name for solid in solids]), solids, strict=True))
    for name, solid in named.items():
        scene.add_geometry(_geometry(trimesh, solid), node_name=name, geom_name=name)

    def image() -> bytes:
        from trimesh.exchange.gltf import export_glb

        return bytes(
            export_glb(scene, include_normals=True, tree_postprocessor=lambda tree: _finish(tree, named, facts))
        )

    return image


def _geometry(trimesh: Any, solid: Solid) -> Any:
    columns = {f"_{name}": column for name, column in _as_float32(solid).items()}
    if solid.colors.ndim > 1:
        columns[_COLOR_COLUMN] = np.column_stack([_linear(solid.colors), np.ones(len(solid.vertices))])
    return trimesh.Trimesh(
        _y_up(solid.vertices), solid.triangles, vertex_normals=_y_up(solid.normals), process=False,
        vertex_attributes={name: column.astype(np.float32) for name, column in columns.items()},
        metadata=dict(solid.facts),
    )  # fmt: skip


def _as_float32(solid: Solid) -> dict[str, NDArray[Any]]:
    with np.errstate(over="ignore"):
        columns = {name: np.asarray(column, np.float32) for name, column in solid.columns.items()}
    for name in [name for name, column in columns.items() if not np.isfinite(column).all()]:
        del columns[name]
        warnings.warn(
            f"the column {name!r} is left out of {_PROGRAM}, which holds float32 numbers only: some are too large.",
            stacklevel=2,
        )
    return columns


def _finish(tree: dict[str, Any], solids: dict[str, Solid], facts: dict[str, Any]) -> None:
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
        primitive["material"] = len(tree["materials"])
        tree["materials"].append(_material(mesh["name"], solids[mesh["name"]]))


def _material(name: str, solid: Solid) -> dict[str, Any]:
    color = [1.0, 1.0, 1.0] if solid.colors.ndim > 1 else _linear(solid.colors).tolist()
    return {
        "name": name,
        # A surface is seen from below too.
        "doubleSided": not solid.is_path,
        "pbrMetallicRoughness": {"baseColorFactor": [*color, 1.0], "metallicFactor": 0.0, "roughnessFactor": 0.7},
    }


def _linear(colors: NDArray[Any]) -> NDArray[Any]:
    """Returns sRGB colours as glTF has them: proportional to light."""
    return np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)


def _y_up(points: NDArray[Any]) -> NDArray[Any]:
    return points[:, [0, 2, 1]] * (1, 1, -1)


def _different(names: Sequence[str]) -> list[str]:
    """Returns the names, with a number behind each that occurred before."""
    found: list[str] = []
    for name in names:
        count, free = 2, name
        while free in found:
            free, count = f"{name} ({count})", count + 1
        found.append(free)
    return found


GLB = ExportFormat(".glb", True, glb_images)
GLTF = ExportFormat(".gltf", True, gltf_images)
