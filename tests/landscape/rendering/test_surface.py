import math

import numpy as np
import pytest
from figure_cases import build
from matplotlib import colormaps

from landscape.drawing.camera import Camera
from landscape.rendering.meshes import choose_space
from landscape.rendering.scene import _VIEW_ANGLE, viewpoint
from landscape.rendering.surface import Surface, between, sky_seen

X, Y = np.array([0.0, 1.0, 2.5, 3.0, 5.0]), np.array([-1.0, 0.0, 0.5, 2.0])
HEIGHTS = np.random.default_rng(3).normal(size=(4, 5))
STEPS = np.array([[0.02, 0.0], [0.0, 0.02]])


def finer(axis, factor):
    return np.interp(np.arange((len(axis) - 1) * factor + 1) / factor, np.arange(len(axis)), axis)


def refined(x, y, heights, factor, interpolation="smooth"):
    return between((x, y), heights, (finer(x, factor), finer(y, factor)), interpolation)


@pytest.mark.parametrize("interpolation", ["smooth", "linear"])
class TestBetweenPoints:
    def test_they_pass_through_every_point(self, interpolation):
        np.testing.assert_allclose(refined(X, Y, HEIGHTS, 7, interpolation)[::7, ::7], HEIGHTS, atol=1e-12)

    def test_they_stay_between_the_four_points_around(self, interpolation):
        found = refined(X, Y, HEIGHTS, 6, interpolation)
        for row in range(3):
            for column in range(4):
                corners = HEIGHTS[row : row + 2, column : column + 2]
                cell = found[6 * row : 6 * row + 7, 6 * column : 6 * column + 7]
                assert corners.min() - 1e-12 <= cell.min()
                assert cell.max() <= corners.max() + 1e-12

    def test_a_plane_stays_a_plane(self, interpolation):
        found = refined(X, Y, 2 * X - 3 * Y[:, None], 5, interpolation)
        np.testing.assert_allclose(found, 2 * finer(X, 5) - 3 * finer(Y, 5)[:, None], atol=1e-12)

    def test_it_does_not_depend_on_which_axis_is_called_x(self, interpolation):
        there, back = refined(X, Y, HEIGHTS, 5, interpolation), refined(Y, X, HEIGHTS.T, 5, interpolation).T
        np.testing.assert_allclose(there, back)


def test_a_missing_point_leaves_its_four_cells_empty_and_no_other():
    loss = np.exp(HEIGHTS)
    loss[1, 2] = np.nan
    surface = Surface(choose_space(build(loss, points=0)), colormaps["viridis"], "smooth", 80)
    assert surface.whole.shape == (12, 16)
    expected = np.ones((12, 16), bool)
    expected[:8, 4:12] = False
    np.testing.assert_array_equal(surface.whole, expected)
    assert np.isnan(surface.heights[:8, 5:12]).all()
    assert np.isfinite(surface.heights[8:]).all()
    assert surface.mesh.n_cells == 2 * expected.sum()


def test_a_pit_sees_less_of_the_sky_than_its_rim_and_as_much_as_its_walls_leave():
    wall = np.full((81, 81), 0.3)
    wall[21:60, 21:60] = 0.0
    seen = sky_seen(wall, STEPS)
    assert seen[40, 40] < 0.9 < seen[5, 40]
    # The horizon of the middle is the wall, at a distance of 20 steps or a little more in the diagonals.
    highest = 1 / (1 + (0.3 / (20 * 0.02)) ** 2)
    lowest_wall = 1 / (1 + (0.3 / (math.sqrt(2) * 25 * 0.02)) ** 2)
    assert highest - 1e-9 <= seen[40, 40] <= lowest_wall


@pytest.mark.parametrize("height", [0.0, np.nan])
def test_neither_a_plain_nor_its_holes_hide_any_sky(height):
    heights = np.zeros((30, 40))
    heights[8:12, 8:12] = height
    np.testing.assert_allclose(sky_seen(heights, STEPS), 1.0)


@pytest.mark.parametrize(("width", "height"), [(1600, 900), (500, 1500)])
@pytest.mark.parametrize("elevation", [-30.0, 10.0, 60.0, 89.0])
def test_everything_is_in_the_picture_and_nearly_fills_it(width, height, elevation):
    points = np.random.default_rng(0).normal(size=(200, 3)) * (2, 1, 0.5)
    eye, forward = viewpoint(Camera(25.0, elevation), points, width, height)
    right = np.cross(forward, (0, 0, 1)) / np.linalg.norm(np.cross(forward, (0, 0, 1)))
    away, half = points - eye, math.tan(math.radians(_VIEW_ANGLE / 2))
    across = away @ right / (away @ forward) / (half * width / height)
    upwards = away @ np.cross(right, forward) / (away @ forward) / half
    ends = [across.min(), across.max(), upwards.min(), upwards.max()]
    assert max(map(abs, ends)) == pytest.approx(0.94)
    # One direction is filled from margin to margin, and the other one is in the middle.
    assert max(np.ptp(across) / 2, np.ptp(upwards) / 2) == pytest.approx(0.94)
