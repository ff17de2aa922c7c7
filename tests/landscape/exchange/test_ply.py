"""PLY files, read by VTK and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figure_cases import build, build_unfinished
from matplotlib import colormaps
from surfaces import landscape

from landscape import Landscape
from landscape.meshes.space import choose_space
from landscape.meshes.surface_mesh import surface_mesh

pytest.importorskip("trimesh")

_TYPES = {"float": "<f4", "double": "<f8", "uchar": "u1", "int": "<i4"}


def read(path: Path) -> tuple[dict[str, Any], Any]:
    """Returns the comments and the vertices of a binary file."""
    head, _, body = path.read_bytes().partition(b"end_header\n")
    lines = [line.split(" ", 2) for line in head.decode("ascii").splitlines()]
    comments = {line[1]: json.loads(line[2]) for line in lines if line[0] == "comment" and len(line) > 2}
    columns, count = [], 0
    for line in lines:
        if line[:2] == ["element", "vertex"]:
            count = int(line[2])
        if line[:2] == ["element", "face"]:
            break
        if line[0] == "property":
            columns.append((line[2], _TYPES[line[1]]))
    return comments, np.frombuffer(body, np.dtype(columns), count)


def test_the_surface_has_places_normals_colours_and_values(tmp_path: Path) -> None:
    data = build()
    path = Landscape(data).export(tmp_path / "a.ply")[0]
    mesh = surface_mesh(choose_space(data))
    comments, vertices = read(path)
    for names, expected in (("xyz", mesh.vertices), (("nx", "ny", "nz"), mesh.normals)):
        np.testing.assert_allclose(np.column_stack([vertices[name] for name in names]), expected, atol=1e-6)
    colors = np.column_stack([vertices[name] for name in ("red", "green", "blue", "alpha")])
    np.testing.assert_allclose(colors / 255, colormaps["viridis"](mesh.shares), atol=0.003)
    np.testing.assert_array_equal(vertices["loss"], data.loss.ravel())
    assert set(vertices["status"]) == {1}
    assert comments["metric"] == "loss"
    assert comments["names"] == ["loss surface"]
    assert comments["units"]["height"] == "log10 of loss"


def test_the_path_is_a_file_of_its_own(tmp_path: Path) -> None:
    written = landscape().export(tmp_path / "a.ply")
    assert [path.name for path in written] == ["a.ply", "a_path.ply"]
    comments, vertices = read(written[1])
    assert comments["names"][:2] == ["trajectory", "checkpoints of trajectory"]
    assert (vertices["red"][0], vertices["green"][0], vertices["blue"][0]) == (0xE5, 0x38, 0x3B)


def test_vtk_reads_it(tmp_path: Path) -> None:
    pyvista = pytest.importorskip("pyvista")
    data = build_unfinished()
    mesh = surface_mesh(choose_space(data))
    found = pyvista.read(Landscape(data).export(tmp_path / "a.ply")[0])
    assert found.n_cells > len(mesh.triangles)
    np.testing.assert_array_equal(found.regular_faces[: len(mesh.triangles)], mesh.compact().triangles)
    assert {"RGBA", "Normals"} <= set(found.array_names)
    tube = pyvista.read(tmp_path / "a_path.ply")
    assert tube.n_open_edges == 0
