"""What the surface hides on the page: as the figures say it, and whole in the browser's own pixels."""

import numpy as np
import pytest
from waiting import wait_until

from landscape.drawing.occlusion import Relief
from landscape.record.checks import PointStatus

pytestmark = pytest.mark.slow
# Twelve around the surface, from flat to steep.
CAMERAS = [(1.4, -1.4, 0.9), (1.5, 0.5, 0.35), (-1.2, 1.2, 0.8), (0.1, -1.8, 0.25), (-1.6, -0.4, 0.6), (0.2, 0.1, 2.0)]
CAMERAS += [(1.0, 1.4, 0.3), (-0.5, 1.7, 0.2), (-1.3, -1.3, 1.2), (1.8, -0.2, 0.5), (0.6, 1.0, 1.5), (-1.0, -1.5, 0.3)]


def two_hills(x, y):
    hill = 3 * np.exp(-3 * (x - 0.4) ** 2 - 14 * (y - 0.3) ** 2)
    return 1 + 0.4 * x**2 + 1.5 * y**2 + hill + 2 * np.exp(-4 * (x + 1) ** 2 - 20 * (y + 0.2) ** 2)


def waves(x, y):
    return 2 + np.sin(4 * x) * np.cos(5 * y) + 0.3 * x


def steep_valley(x, y):
    return 0.1 + 6 * (y - 0.3 * np.sin(2 * x)) ** 2 + 0.5 * np.abs(x)


SURFACES = [two_hills, waves, steep_valley]


def hilly(example, surface=two_hills):
    """Returns a plane with such a surface and a path of 14 checkpoints on it."""
    data = example(rows=23, columns=31, checkpoints=14)
    loss = surface(data.x, data.y[:, None])
    data.metrics["loss"][...] = loss
    path = data.checkpoints
    rng = np.random.default_rng(4)
    path.x[:], path.y[:] = rng.uniform(data.x[1], data.x[-2], 14), rng.uniform(data.y[1], data.y[-2], 14)
    path.projected["loss"][:] = Relief(data.x, data.y, loss).heights_at(path.x, path.y)
    path.projected_status[:] = PointStatus.MEASURED
    return data


def turn(opened, eye):
    """Turns the camera, and waits until the marks have followed it and it rests: Plotly lets it glide to its place."""
    opened.page.evaluate(
        """([x, y, z]) => { window.goal = null; window.frames = 0; const plot = document.querySelector('.surface');
            plot.once('plotly_restyle', () => { const scene = plot._fullLayout.scene._scene;
                scene.getCamera();
                window.goal = Array.from(scene.camera.view.computedMatrix); });
            Plotly.relayout(plot, {'scene.camera': {eye: {x, y, z}, center: {x: 0, y: 0, z: 0}}}); }""",
        list(eye),
    )
    view = "document.querySelector('.surface')._fullLayout.scene._scene.glplot.cameraParams.view"
    # Reading the goal puts the camera there, until the next frame.
    opened.wait(
        f"window.goal && (window.frames += 1) > 2 && {view}.every((it, at) => Math.abs(it - window.goal[at]) < 1e-6)"
    )


class TestDepth:
    @pytest.mark.parametrize(
        ("surface", "cameras"),
        [(each, CAMERAS[at::3]) for at, each in enumerate(SURFACES)],
        ids=lambda it: getattr(it, "__name__", ""),
    )
    def test_marks_are_hidden_where_the_figures_hide_them_and_stay_in_place(self, open_page, example, surface, cameras):
        data = hilly(example, surface)
        opened = open_page(data)
        opened.choose("scale", "linear")
        (grid,) = opened.data("surface", "surface", "z")
        x, y = (np.asarray(axis, float) for axis in opened.data("surface", "surface", "x", "y"))
        relief = Relief(x, y, np.array(grid, float))
        hidden_ever = 0
        for eye in cameras:
            turn(opened, eye)
            (place,) = opened.data("surface", "path", "meta")
            points = np.column_stack([place["x"], place["y"], place["z"]])
            matrix = opened.projection()
            expected = relief.hides(points, matrix)
            # Marks that were on their way when the camera was turned come first.
            wait_until(lambda: np.array_equal(np.isnan(marks(opened, "path")[:, 0]), expected), what=expected)  # noqa: B023
            front, behind = marks(opened, "path"), marks(opened, "path behind")
            np.testing.assert_array_equal(np.isnan(behind[:, 0]), ~expected)
            hidden_ever += int(expected.sum())
            # Moved only along the line of sight.
            drawn = np.where(expected[:, None], behind, front)
            np.testing.assert_allclose(opened.on_screen(drawn), opened.on_screen(points), atol=2e-3)
            # Nearer than the surface on that line: the browser's depth buffer cuts nothing off.
            assert not Relief(x, y, relief.heights).hides(drawn, matrix).any()
        assert hidden_ever >= 3

    def test_a_visible_mark_is_whole_on_the_screen(self, open_page, example):
        data = hilly(example)
        opened = open_page(data)
        opened.choose("scale", "linear")
        turn(opened, CAMERAS[2])
        opened.page.evaluate(
            """() => { const plot = document.querySelector('.surface');
                const index = plot.data.findIndex((trace) => trace.name === 'path');
                const marker = {'marker.color': '#ff00ff', 'marker.size': 9, 'marker.line.width': 0};
                return Plotly.restyle(plot, marker, [index]); }"""
        )
        front = marks(opened, "path")
        places = opened.on_screen(front[~np.isnan(front[:, 0])])
        counts = [magenta_around(opened, places)]
        opened.page.evaluate("Plotly.restyle(document.querySelector('.surface'), {visible: false}, [0])")
        counts.append(magenta_around(opened, places))
        with_surface, without = np.array(counts)
        inside = without > 60
        assert inside.sum() >= 4
        # The mark is three times its usual size; a half-moon would have half of its pixels.
        assert (with_surface[inside] > 0.85 * without[inside]).all(), counts


def marks(opened, name):
    """Returns where the marks of a trace are drawn, shape (marks, 3); NaN for those that are not."""
    return np.array(opened.data("surface", name, "x", "y", "z"), float).T


def magenta_around(opened, places):
    """Returns how many pixels of the marks' colour there are around each place of the screen."""
    picture = opened.screenshot("surface")
    height, width = picture.shape[:2]
    magenta = (picture[..., 0] > 190) & (picture[..., 1] < 90) & (picture[..., 2] > 190)
    found = []
    for across, up in places:
        column, row = int((across + 1) / 2 * width), int((1 - up) / 2 * height)
        found.append(int(magenta[max(row - 8, 0) : row + 9, max(column - 8, 0) : column + 9].sum()))
    return found
