"""Paths over a surface, as lines and tubes."""

import numpy as np
import pytest
from figure_cases import build
from long_paths import build_path
from who_is_there import with_runs

from landscape.drawing.occlusion import Relief
from landscape.drawing.path import PATH, RUN_COLORS
from landscape.drawing.times import strong_color
from landscape.meshes.path_mesh import ball_mesh, path_lines, path_marks, path_mesh
from landscape.meshes.surface_mesh import choose_space


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
