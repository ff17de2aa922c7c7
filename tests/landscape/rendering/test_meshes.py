"""A plane as triangles, and paths over it as lines and tubes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from figure_cases import build, build_line, build_real, build_unfinished
from long_paths import build_path
from who_is_there import with_runs

from landscape.drawing.occlusion import Relief
from landscape.drawing.path import PATH, RUN_COLORS, strong_color
from landscape.grid.data import DirectionsData
from landscape.record.checks import PointStatus
from landscape.rendering.meshes import (
    ball_mesh,
    choose_space,
    path_lines,
    path_marks,
    path_mesh,
    surface_mesh,
    vertex_normals,
)
from landscape.scales.landscape_scale import landscape_scale


def scaled(data, *scale, **options):
    return choose_space(data, scale=landscape_scale(data, "loss", *scale, count=8, **options))


def test_each_vertex_is_a_point_of_the_grid():
    data = build(rows=7, columns=11)
    mesh = surface_mesh(choose_space(data))
    assert mesh.vertices.shape == (77, 3)
    assert len(mesh.triangles) == 2 * 6 * 10
    assert mesh.used.all()
    assert surface_mesh(choose_space(build_real("surface_resnet_pca", "ResNet"))).used.all()
    np.testing.assert_array_equal(mesh.values, data.loss.ravel())
    across, up, _ = mesh.vertices.reshape(7, 11, 3).transpose(2, 0, 1)
    assert (np.diff(across, axis=1) > 0).all()
    assert (np.diff(up, axis=0) > 0).all()
    np.testing.assert_allclose(np.ptp(across) / np.ptp(up), 4.5 / 2.2)
    # The same area as a square of 2 x 2.
    np.testing.assert_allclose(np.ptp(across) * np.ptp(up), 4)
    np.testing.assert_allclose(mesh.vertices[:, :2].mean(axis=0), 0, atol=1e-12)


def test_heights_are_those_of_the_figure():
    data = build(rows=9, columns=9, points=0)
    space = choose_space(data)
    assert space.scale.kind == "log"
    mesh = surface_mesh(space)
    heights = np.log10(np.clip(data.loss.ravel(), space.scale.low, space.scale.high))
    slope, offset = np.polyfit(heights, mesh.vertices[:, 2], 1)
    np.testing.assert_allclose(mesh.vertices[:, 2], slope * heights + offset, atol=1e-12)
    linear = surface_mesh(scaled(data, "linear", clip=5.0, path=False))
    np.testing.assert_allclose(np.ptp(linear.vertices[:, 2]), 1.5 / 1.35, rtol=0.01)
    assert linear.values.max() == data.loss.max() > 5
    assert linear.shares.max() == 1


def test_an_oblique_plane_is_a_parallelogram():
    data = replace(build(rows=5, columns=5, points=0), directions=DirectionsData(np.array([1.0, 2.0]), None, 0.6))
    corners = surface_mesh(choose_space(data)).vertices.reshape(5, 5, 3)[[0, 0, -1], [0, -1, 0], :2]
    first, second = corners[1] - corners[0], corners[2] - corners[0]
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    np.testing.assert_allclose(cosine, 0.6)
    np.testing.assert_allclose(np.linalg.norm(second) / np.linalg.norm(first), 2 * 2.2 / 4.5)
    filled = surface_mesh(choose_space(data, aspect="fill")).vertices
    np.testing.assert_allclose(np.ptp(filled[:, :2], axis=0), 2)


def test_triangles_face_up_and_normals_stand_on_them():
    mesh = surface_mesh(choose_space(build(points=0)))
    corners = mesh.vertices[mesh.triangles]
    faces = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert (faces[:, 2] > 0).all()
    np.testing.assert_allclose(np.linalg.norm(vertex_normals(mesh.vertices, mesh.triangles), axis=1), 1)
    # A plane's normal is known.
    x, y = np.linspace(-2, 2.5, 30), np.linspace(-1, 1.2, 20)
    slope = surface_mesh(scaled(build(1.0 + x + 0 * y[:, None], points=0), "linear"))
    expected = np.cross(slope.vertices[1] - slope.vertices[0], slope.vertices[30] - slope.vertices[0])
    normals = vertex_normals(slope.vertices, slope.triangles)
    np.testing.assert_allclose(normals, np.tile(expected / np.linalg.norm(expected), (600, 1)), atol=1e-12)


def test_gaps_stay_holes():
    data = build_unfinished()
    mesh = surface_mesh(choose_space(data))
    known = np.isfinite(data.loss) & (data.status != PointStatus.PENDING) & (data.status != PointStatus.FAILED)
    np.testing.assert_array_equal(np.isfinite(mesh.values), known.ravel())
    assert known.ravel()[mesh.triangles].all()
    corners = [known[:-1, :-1], known[:-1, 1:], known[1:, :-1], known[1:, 1:]]
    assert len(mesh.triangles) == 2 * np.logical_and.reduce(corners).sum()
    np.testing.assert_array_equal(np.isnan(mesh.vertices[:, 2]), ~known.ravel())


def test_a_value_without_neighbours_is_alone():
    loss = np.full((4, 5), np.nan)
    loss[1, 2], loss[3, 3] = 1.0, 2.0
    mesh = surface_mesh(choose_space(build(loss, points=0)))
    assert len(mesh.triangles) == 0
    assert np.flatnonzero(mesh.alone).tolist() == [7, 18]


def test_colours_are_those_of_the_scale():
    data = build(rows=6, columns=6, points=0)
    space = scaled(data, clip=5.0)
    mesh = surface_mesh(space)
    np.testing.assert_allclose(mesh.shares, space.scale.norm()(space.scale.shown(data.loss.ravel())), atol=1e-9)


def test_a_constant_surface_is_flat():
    mesh = surface_mesh(choose_space(build(np.full((4, 4), 2.0), points=0)))
    assert np.ptp(mesh.vertices[:, 2]) == 0
    np.testing.assert_array_equal(mesh.shares, 0.5)


def test_diagonals_follow_valleys():
    column, row = np.meshgrid(np.arange(6), np.arange(6))
    # The valley runs from one corner of the grid to the other, against the direction of the first diagonal.
    mesh = surface_mesh(scaled(build(1.0 + (column + row - 5.2) ** 2, points=0), "linear"))
    edges = {tuple(sorted(pair)) for face in mesh.triangles.tolist() for pair in (face[:2], face[1:], face[::2])}
    valley = np.flatnonzero((column + row == 5).ravel()).tolist()
    assert set(itertools.pairwise(valley)) <= edges


def test_a_line_is_no_surface():
    with pytest.raises(ValueError, match="a surface needs a plane, but the landscape is a line"):
        choose_space(build_line(np.ones(4)))


def _volume(vertices, triangles):
    first, second, third = (vertices[corner] for corner in triangles.T)
    return float(np.einsum("ij,ij->i", first, np.cross(second, third)).sum() / 6)


def _is_closed(triangles):
    edges = [tuple(pair) for face in triangles.tolist() for pair in (face[:2], face[1:], (face[2], face[0]))]
    return len(set(edges)) == len(edges) and {(b, a) for a, b in edges} == set(edges)


@pytest.mark.parametrize(("count", "timed"), [(5, False), (20, True)])
def test_runs_have_the_colours_of_figures(count, timed):
    colors = [line.color for line in path_lines(choose_space(build_path("spiral", count, runs=2)))]
    assert colors == ([strong_color(0), strong_color(1)] if timed else [PATH, RUN_COLORS[0]])
    (line,) = path_lines(choose_space(build_path("spiral", count)))
    assert line.color == PATH


def test_a_path_follows_the_surface():
    data = build()
    found = data.checkpoints
    scale = choose_space(data).scale
    relief = Relief(data.x, data.y, scale.heights(data.loss))
    found.projected["loss"] = scale.height_values(relief.heights_at(found.x, found.y))
    space = choose_space(data)
    (line,) = path_lines(space)
    assert line.name == "trajectory"
    assert line.rows.tolist() == list(range(12))
    np.testing.assert_array_equal(line.values, found.projected["loss"])
    for place in line.checkpoints:
        assert np.linalg.norm(line.points - place, axis=1).min() == 0
    frame = line.points / space.factors + space.middle
    np.testing.assert_allclose(frame[:, 2], relief.heights_at(frame[:, 0], frame[:, 1]), atol=1e-9)
    assert len(line.points) > 100


def test_unknown_checkpoints_are_left_out():
    data = build()
    data.checkpoints.projected["loss"][[0, 4]] = np.nan
    space = choose_space(data)
    (line,) = path_lines(space)
    assert line.rows.tolist() == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    assert [mark.kind for mark in path_marks(space)] == ["end", "origin"]
    data.checkpoints.projected["loss"][:] = np.nan
    assert path_lines(choose_space(data)) == []


def test_runs_have_paths_and_networks_have_marks():
    space = choose_space(with_runs())
    first, second = path_lines(space)
    assert (first.name, second.name) == ("SGD", "Adam")
    assert first.color != second.color
    assert (len(first.rows), len(second.rows)) == (5, 8)
    marks = path_marks(space)
    assert [mark.kind for mark in marks] == ["start", "end", "start", "end", "network", "origin"]
    np.testing.assert_array_equal(marks[3].point, second.checkpoints[-1])


def test_no_path_without_projected_values():
    assert path_lines(choose_space(build(points=0))) == []
    assert path_lines(choose_space(build(), "accuracy")) == []


@pytest.mark.parametrize("count", [2, 3, 9])
def test_a_tube_is_closed_and_faces_outwards(count):
    points = np.random.default_rng(count).normal(size=(count, 3)).cumsum(axis=0)
    vertices, triangles = path_mesh(points, 1e-3, sides=64)
    assert _is_closed(triangles)
    length = np.linalg.norm(np.diff(points, axis=0), axis=1).sum()
    assert _volume(vertices, triangles) == pytest.approx(np.pi * 1e-6 * length, rel=0.5)
    assert _volume(vertices, triangles) > 0


def test_a_straight_tube_has_a_known_volume():
    points = np.linspace([0.0, 0.0, 0.0], [1.0, 2.0, 2.0], 5)
    vertices, triangles = path_mesh(points, 0.1, sides=256)
    assert _volume(vertices, triangles) == pytest.approx(np.pi * 0.01 * 3, rel=1e-3)


def test_places_that_repeat_and_turns_back():
    back = np.array([[0.0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]])
    vertices, triangles = path_mesh(back, 0.1)
    assert np.isfinite(vertices).all()
    assert _is_closed(triangles)
    vertices, triangles = path_mesh(np.zeros((3, 3)), 0.1)
    assert _is_closed(triangles)
    assert _volume(vertices, triangles) == pytest.approx(4 / 3 * np.pi * 1e-3, rel=0.1)


def test_balls():
    vertices, triangles = ball_mesh(np.array([[0.0, 0, 0], [1, 2, 3]]), 0.5)
    assert _is_closed(triangles)
    assert _volume(vertices, triangles) == pytest.approx(2 * 4 / 3 * np.pi / 8, rel=0.1)
    np.testing.assert_allclose(np.linalg.norm(vertices[: len(vertices) // 2], axis=1), 0.5)
