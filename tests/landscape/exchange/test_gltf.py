"""glTF files, read by VTK, which has a reader of its own, and by hand."""

import base64
import json
import struct

import numpy as np
import pytest
from figure_cases import build as build_picture
from figure_cases import build_unfinished
from landscape_examples import build
from matplotlib import colormaps
from surfaces import landscape, surface
from who_is_there import with_runs

from landscape import Landscape
from landscape.record.checks import PointStatus
from landscape.rendering.meshes import choose_space, surface_mesh, vertex_normals

pytest.importorskip("trimesh")

_TYPES = {5126: "<f4", 5125: "<u4"}
_WIDTHS = {"SCALAR": 1, "VEC3": 3, "VEC4": 4}


class Scene:
    """A glTF file, read as its specification says."""

    def __init__(self, path):
        content = path.read_bytes()
        if path.suffix == ".glb":
            magic, version, length, size, kind = struct.unpack_from("<4sIII4s", content)
            assert (magic, version, length, kind) == (b"glTF", 2, len(content), b"JSON")
            assert size % 4 == 0
            self.tree = json.loads(content[20 : 20 + size])
            numbers, kind = struct.unpack_from("<I4s", content, 20 + size)
            assert kind == b"BIN\0"
            self.buffer = content[28 + size : 28 + size + numbers]
        else:
            self.tree = json.loads(content)
            (buffer,) = self.tree["buffers"]
            self.buffer = base64.b64decode(buffer["uri"].partition(",")[2])
        assert self.tree["buffers"][0]["byteLength"] == len(self.buffer)
        self.meshes = {mesh["name"]: mesh for mesh in self.tree["meshes"]}

    def column(self, mesh, name):
        (primitive,) = self.meshes[mesh]["primitives"]
        index = primitive["indices"] if name == "indices" else primitive["attributes"][name]
        accessor = self.tree["accessors"][index]
        view = self.tree["bufferViews"][accessor["bufferView"]]
        start = view.get("byteOffset", 0) + accessor.get("byteOffset", 0)
        width, dtype = _WIDTHS[accessor["type"]], _TYPES[accessor["componentType"]]
        found = np.frombuffer(self.buffer, dtype, accessor["count"] * width, start)
        return found.reshape(-1, width) if width > 1 else found

    def material(self, mesh):
        return self.tree["materials"][self.meshes[mesh]["primitives"][0]["material"]]


def exported(data, folder, name="a.glb", **options):
    return Scene(Landscape(data).export(folder / name, **options)[0])


@pytest.mark.parametrize("name", ["a.glb", "a.gltf"])
def test_the_surface_is_the_grid_with_y_up(name, tmp_path):
    data = build_picture()
    scene = exported(data, tmp_path, name)
    mesh = surface_mesh(choose_space(data))
    places = scene.column("loss surface", "POSITION")
    normals, triangles = (scene.column("loss surface", name).reshape(-1, 3) for name in ("NORMAL", "indices"))
    np.testing.assert_allclose(places, mesh.vertices[:, [0, 2, 1]] * (1, 1, -1), atol=1e-6)
    expected = vertex_normals(mesh.vertices, mesh.triangles)
    np.testing.assert_allclose(normals, expected[:, [0, 2, 1]] * (1, 1, -1), atol=1e-6)
    np.testing.assert_array_equal(triangles, mesh.triangles)
    np.testing.assert_array_equal(scene.column("loss surface", "_loss"), data.loss.ravel().astype(np.float32))
    assert set(scene.column("loss surface", "_status")) == {float(PointStatus.MEASURED)}
    corners = places[triangles]
    assert (np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])[:, 1] > 0).all()


def test_colours_are_proportional_to_light(tmp_path):
    data = build_picture()
    linear = exported(data, tmp_path).column("loss surface", "COLOR_0").astype(np.float64)
    seen = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)[:, :3]
    expected = colormaps["viridis"](surface_mesh(choose_space(data)).shares)[:, :3]
    np.testing.assert_allclose(seen, expected, atol=1e-4)
    assert (linear[:, 3] == 1).all()


def test_nodes_have_the_words_of_figures(tmp_path):
    scene = exported(with_runs(), tmp_path)
    nodes = {node["name"] for node in scene.tree["nodes"]}
    assert {"loss surface", "SGD", "Adam", "checkpoints of SGD", "checkpoints of Adam"} <= nodes
    assert all(scene.material(name)["name"] == name for name in scene.meshes)
    assert scene.material("loss surface")["doubleSided"] is True
    colors = [tuple(scene.material(name)["pbrMetallicRoughness"]["baseColorFactor"]) for name in ("SGD", "Adam")]
    assert colors[0] != colors[1]
    assert scene.meshes["checkpoints of SGD"]["extras"]["number"] == with_runs().checkpoints.number[:5].tolist()
    assert "number" not in scene.meshes["SGD"]["extras"]


def test_extras_hold_the_facts(tmp_path):
    data = build_picture(versions={"numpy": "2.0"})
    scene = exported(data, tmp_path)
    facts = scene.tree["asset"]["extras"]
    assert (facts["metric"], facts["scale"]["kind"], facts["scale"]["text"]) == ("loss", "log", "loss (log scale)")
    assert facts["clip"] == {"below": False, "above": False}
    assert facts["versions"] == {"numpy": "2.0"}
    assert facts["points"]["measured"] == 600
    # What the facts say takes a vertex back to its value.
    units, heights = facts["units"], scene.column("loss surface", "POSITION")[:, 1].astype(np.float64)
    values = units["value_at_height_0"] * 10 ** (units["height_per_unit"] * heights)
    np.testing.assert_allclose(values, data.loss.ravel(), rtol=1e-5)
    across = scene.column("loss surface", "POSITION")[:, 0].astype(np.float64)
    np.testing.assert_allclose(np.ptp(across) * units["horizontal_per_unit"][0], 4.5, rtol=1e-6)


def test_gaps_stay_holes_and_single_points_are_balls(tmp_path):
    data = build_unfinished()
    scene = exported(data, tmp_path)
    mesh = surface_mesh(choose_space(data))
    triangles, places = scene.column("loss surface", "indices"), scene.column("loss surface", "POSITION")
    assert len(places) == mesh.used.sum()
    corners = mesh.vertices[mesh.triangles.ravel()][:, [0, 2, 1]] * (1, 1, -1)
    np.testing.assert_allclose(places[triangles], corners, atol=1e-6)
    assert set(scene.column("loss surface", "_status")) == {1.0, 2.0}
    singles = scene.column("loss at single points", "_loss")
    np.testing.assert_array_equal(np.unique(singles), np.unique(mesh.values[mesh.alone].astype(np.float32)))


def test_another_metric(tmp_path):
    scene = exported(surface(), tmp_path, metric="accuracy")
    assert "_accuracy" in scene.meshes["accuracy surface"]["primitives"][0]["attributes"]
    assert scene.tree["asset"]["extras"]["scale"]["kind"] == "linear"
    assert "trajectory" in scene.meshes


def test_odd_names_and_numbers(tmp_path):
    data = build()
    for values in data.metrics.values():
        values[...] = np.abs(values)
    data.metrics["loss"][1:, 1:] = [[1, 2, 3, 4], [5, 6, 1e60, 8]]
    data.status[:] = PointStatus.MEASURED
    with pytest.warns(UserWarning, match="the column 'loss' is left out of a glTF scene, which holds float32"):
        scene = exported(data, tmp_path)
    assert "SGD é" in scene.meshes
    assert "_loss" not in scene.meshes["loss surface"]["primitives"][0]["attributes"]
    assert np.isfinite(scene.column("loss surface", "POSITION")).all()


def test_vtk_reads_it(tmp_path):
    pyvista = pytest.importorskip("pyvista")
    for name in ("a.glb", "a.gltf"):
        path = landscape().export(tmp_path / name)[0]
        blocks = pyvista.read(path).combine()
        assert blocks.n_cells > 2 * 6 * 10
        assert np.isfinite(blocks.points).all()
        # Higher than the middle of the grid is what is up.
        assert blocks.bounds[3] == pytest.approx(1.5 / 1.35, abs=0.05)
