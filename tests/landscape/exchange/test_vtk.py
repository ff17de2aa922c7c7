"""VTK's files, read back by pyvista."""

import json

import numpy as np
import pytest
from landscape_examples import build
from surfaces import landscape, loss, surface
from who_is_there import with_runs

from landscape import Landscape
from landscape.record.checks import PointStatus

pyvista = pytest.importorskip("pyvista")
vtkGeometryFilter = pytest.importorskip("vtkmodules.vtkFiltersGeometry").vtkGeometryFilter


def exported(data, folder, **options):
    """Returns the surface's grid, and where there are some the checkpoints and the paths."""
    return [pyvista.read(path) for path in Landscape(data).export(folder / "a.vts", **options)]


def test_each_point_has_its_place(tmp_path):
    written = landscape().export(tmp_path / "a.vts")
    assert [path.name for path in written] == ["a.vts", "a_checkpoints.vtp", "a_path.vtp"]
    grid = pyvista.read(written[0])
    assert isinstance(grid, pyvista.StructuredGrid)
    assert grid.dimensions == (11, 7, 1)
    x, y, _ = grid.points.T
    assert grid.points.dtype == np.float64
    np.testing.assert_allclose(grid["loss"], loss(x, y), atol=1e-12)
    np.testing.assert_allclose(grid["x"], x, atol=1e-12)
    np.testing.assert_allclose(grid["y"], y, atol=1e-12)
    # pyvista's own view of the indices: (x, y, z).
    assert grid.x[3, 0, 0] == pytest.approx(landscape().x[3])
    assert grid.y[0, 3, 0] == pytest.approx(landscape().y[3])
    assert json.loads(grid.field_data["attributes"][0])["network"] == "LeNet"
    # A cell's neighbours are the grid's.
    assert grid.n_cells == 6 * 10
    assert grid.get_cell(0).bounds[:4] == pytest.approx((-1, -0.8, 0, 4 / 6))


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_heights_are_what_the_file_says(metric, tmp_path):
    grid = exported(surface(), tmp_path, metric=metric)[0]
    facts = json.loads(grid.field_data["heights"][0])
    assert (facts["metric"], facts["scale"]["kind"]) == (metric, "log" if metric == "loss" else "linear")
    assert facts["units"]["horizontal_per_unit"] == [1, 1]
    forward = np.log10 if metric == "loss" else np.asarray
    base = forward(facts["units"]["value_at_height_0"])
    expected = (forward(grid[metric]) - base) / facts["units"]["height_per_unit"]
    np.testing.assert_allclose(grid.points[:, 2], expected, atol=1e-9)


def test_an_oblique_plane_keeps_its_angle(tmp_path):
    data = surface()
    data.directions.cosine, data.directions.norms = 0.5, np.array([2.0, 1.0])
    grid = exported(data, tmp_path)[0]
    np.testing.assert_allclose(grid.points[:, 0], 2 * grid["x"] + 0.5 * grid["y"], atol=1e-12)
    np.testing.assert_allclose(grid.points[:, 1], np.sqrt(0.75) * grid["y"], atol=1e-12)


def test_points_without_a_value_are_hidden(tmp_path):
    data = surface()
    data.metrics["loss"][2, 3:5] = np.nan
    data.status[2, 3:5] = PointStatus.FAILED
    grid = exported(data, tmp_path)[0]
    assert np.isfinite(grid.points).all()
    assert grid.point_data["vtkGhostType"].tolist().count(2) == 2
    # VTK's own filter: pyvista has called it by three names.
    surface_of = vtkGeometryFilter()
    surface_of.SetInputData(grid)
    surface_of.Update()
    assert surface_of.GetOutput().GetNumberOfCells() == 6 * 10 - 6


def test_the_path_lies_on_the_surface(tmp_path):
    grid, checkpoints, path = exported(surface(), tmp_path)
    np.testing.assert_array_equal(checkpoints["number"], [2, 5, 9])
    x, y, height = checkpoints.points.T
    np.testing.assert_allclose(checkpoints["projected_loss"], loss(x, y))
    np.testing.assert_array_equal(checkpoints["residual"], [0.5, 0.25, 0])
    units = json.loads(grid.field_data["heights"][0])["units"]
    expected = np.log10(loss(x, y) / units["value_at_height_0"]) / units["height_per_unit"]
    np.testing.assert_allclose(height, expected, atol=1e-9)
    assert path.n_lines == 1
    for point in checkpoints.points:
        assert np.linalg.norm(path.points - point, axis=1).min() < 1e-9
    # In between it follows the grid, up to what the grid's own cells differ from the loss.
    over = np.log10(loss(*path.points[:, :2].T) / units["value_at_height_0"]) / units["height_per_unit"]
    assert path.n_points > 20
    np.testing.assert_allclose(path.points[:, 2], over, atol=0.1)


def test_a_checkpoint_without_a_height_is_left_out(tmp_path):
    data = surface()
    data.checkpoints.projected["loss"][1] = np.nan
    with pytest.warns(UserWarning, match=r"the checkpoints \[5\] are left out of a VTK surface"):
        _, checkpoints, _ = exported(data, tmp_path)
    assert checkpoints["number"].tolist() == [2, 9]


def test_nothing_is_altered(tmp_path):
    data = build()
    data.status.flat[4:] = PointStatus.MEASURED
    grid = exported(data, tmp_path)[0]
    for name, values in data.metrics.items():
        np.testing.assert_array_equal(grid[name], values.ravel())
    np.testing.assert_array_equal(grid["status"], data.status.ravel())
    assert np.isnan(grid["loss"]).sum() == 2
    assert np.isinf(grid["loss"]).sum() == 2


def test_without_a_trajectory(tmp_path):
    assert [path.name for path in landscape(path=False).export(tmp_path / "a.vts")] == ["a.vts"]


def test_names_that_are_no_xml(tmp_path):
    data = surface(5, 5)
    names = ['<b>&"x"\'', "<b>&_x_'", "top 5 %", "ä"]
    for number, name in enumerate(names):
        data.metrics[name] = data.metrics["loss"] + number
    grid = exported(data, tmp_path)[0]
    for number, name in enumerate(["_b___x__", "_b___x___", "top 5 %", "ä"]):
        np.testing.assert_array_equal(grid[name], data.metrics["loss"].ravel() + number)


def test_runs_are_lines_and_networks_are_points(tmp_path):
    _, checkpoints, paths = exported(with_runs(), tmp_path)
    assert checkpoints["run"].tolist() == [0] * 5 + [1] * 8 + [-1]
    assert checkpoints.n_verts == 14
    assert json.loads(checkpoints.field_data["names"][0])["runs"] == ["SGD", "Adam"]
    assert paths.cell_data["run"].tolist() == [0, 1]
    assert paths.n_lines == 2
