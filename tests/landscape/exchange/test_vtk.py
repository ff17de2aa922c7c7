"""VTK's files, read back by pyvista."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from landscape_examples import build
from surfaces import landscape, loss, surface
from who_is_there import with_runs

from landscape import Landscape

pyvista = pytest.importorskip("pyvista")


def test_each_point_has_its_place(tmp_path: Path) -> None:
    written = landscape().export(tmp_path / "a.vts")
    assert [path.name for path in written] == ["a.vts", "a_checkpoints.vtp"]
    grid = pyvista.read(written[0])
    assert isinstance(grid, pyvista.StructuredGrid)
    assert grid.dimensions == (11, 7, 1)
    x, y, z = grid.points.T
    assert grid.points.dtype == np.float64
    np.testing.assert_allclose(grid["loss"], loss(x, y), atol=1e-12)
    assert not z.any()
    # pyvista's own view of the indices: (x, y, z).
    assert grid.x[3, 0, 0] == landscape().x[3]
    assert grid.y[0, 3, 0] == landscape().y[3]
    assert json.loads(grid.field_data["attributes"][0])["network"] == "LeNet"
    # A cell's neighbours are the grid's.
    assert grid.n_cells == 6 * 10
    assert grid.get_cell(0).bounds[:4] == pytest.approx((-1, -0.8, 0, 4 / 6))


def test_the_path_lies_on_the_surface(tmp_path: Path) -> None:
    line = pyvista.read(landscape().export(tmp_path / "a.vts")[1])
    assert line.lines.tolist() == [3, 0, 1, 2]
    np.testing.assert_array_equal(line["number"], [2, 5, 9])
    np.testing.assert_allclose(line["projected_loss"], loss(line.points[:, 0], line.points[:, 1]))
    np.testing.assert_array_equal(line["residual"], [0.5, 0.25, 0])


def test_nothing_is_altered(tmp_path: Path) -> None:
    original = Landscape(build())
    grid = pyvista.read(original.export(tmp_path / "a.vts")[0])
    for name, values in original.metrics.items():
        np.testing.assert_array_equal(grid[name], values.ravel())
    np.testing.assert_array_equal(grid["status"], original.status.ravel())
    assert np.isnan(grid["loss"]).sum() == 2
    assert np.isinf(grid["loss"]).sum() == 2


def test_without_a_trajectory(tmp_path: Path) -> None:
    assert [path.name for path in landscape(path=False).export(tmp_path / "a.vts")] == ["a.vts"]


def test_names_that_are_no_xml(tmp_path: Path) -> None:
    data = surface(5, 5)
    names = ['<b>&"x"\'', "<b>&_x_'", "top 5 %", "ä"]
    for number, name in enumerate(names):
        data.metrics[name] = data.metrics["loss"] + number
    grid = pyvista.read(Landscape(data).export(tmp_path / "a.vts")[0])
    for number, name in enumerate(["_b___x__", "_b___x___", "top 5 %", "ä"]):
        np.testing.assert_array_equal(grid[name], data.metrics["loss"].ravel() + number)


def test_runs_are_lines_and_networks_are_points(tmp_path: Path) -> None:
    data = Landscape(with_runs())
    lines = pyvista.read(data.export(tmp_path / "a.vts")[1])
    assert lines.lines.tolist() == [5, *range(5), 8, *range(5, 13)]
    assert lines.verts.tolist() == [1, 13]
    assert lines["run"].tolist() == [0] * 5 + [1] * 8 + [-1]
    assert json.loads(lines.field_data["names"][0])["runs"] == ["SGD", "Adam"]
