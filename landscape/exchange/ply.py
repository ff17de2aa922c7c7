"""The Stanford polygon format (PLY), for Blender, MeshLab and scans: a surface, and beside it the path."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .formats import ExportFormat, Images
from .gltf import import_trimesh
from .solids import Solid, landscape_solids

if TYPE_CHECKING:
    from ..file.data import LandscapeData


_PROGRAM = "a PLY surface"


def ply_images(landscape: LandscapeData, path: Path, metric: str) -> Images:
    """Returns what makes ``<stem>.ply``, the surface, and ``<stem>_path.ply``, the paths and marks, if there are any.

    A file of this format is one mesh: binary, z up, with a normal and a colour at each vertex. The surface has the
    values as measured and the status of each vertex too. Comments in its head hold the facts as JSON.

    Raises:
        LandscapeExportError: the landscape is a line, or has no finite value.
        ImportError: trimesh is not installed.
    """
    solids, facts = landscape_solids(landscape, metric, _PROGRAM)
    trimesh = import_trimesh("ply")
    images = {path: _image(trimesh, [solid for solid in solids if not solid.is_path], facts)}
    if paths := [solid for solid in solids if solid.is_path]:
        images[path.with_name(f"{path.stem}_path.ply")] = _image(trimesh, paths, facts)
    return images


def _image(trimesh: Any, solids: Sequence[Solid], facts: dict[str, Any]) -> Callable[[], bytes]:
    def image() -> bytes:
        from trimesh.exchange.ply import export_ply

        starts = np.cumsum([0, *(len(solid.vertices) for solid in solids)])
        shades = [np.broadcast_to(solid.colors, solid.vertices.shape) for solid in solids]
        mesh = trimesh.Trimesh(
            np.vstack([solid.vertices for solid in solids]),
            np.vstack([solid.triangles + start for solid, start in zip(solids, starts, strict=False)]),
            vertex_normals=np.vstack([solid.normals for solid in solids]),
            vertex_colors=np.round(255 * np.vstack(shades)).astype(np.uint8),
            vertex_attributes={
                name: np.concatenate([solid.columns[name] for solid in solids]) for name in solids[0].columns
            },
            process=False,
        )
        content = bytes(export_ply(mesh, vertex_normal=True))
        head, end, body = content.partition(b"end_header\n")
        said = {"names": [solid.name for solid in solids], **facts}
        comments = [f"comment {name} {json.dumps(value)}\n" for name, value in said.items()]
        return head + "".join(comments).encode("ascii") + end + body

    return image


PLY = ExportFormat(".ply", True, ply_images)
