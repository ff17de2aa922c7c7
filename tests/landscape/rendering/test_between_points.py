from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator

from landscape.rendering.between_points import refine, refine_axis

X, Y = np.array([0.0, 1.0, 2.5, 3.0, 5.0]), np.array([-1.0, 0.0, 0.5, 2.0])
HEIGHTS = np.random.default_rng(3).normal(size=(4, 5))


@pytest.mark.parametrize("interpolation", ["smooth", "linear"])
class TestBothKinds:
    def test_they_pass_through_every_point(self, interpolation: str) -> None:
        np.testing.assert_array_equal(refine(X, Y, HEIGHTS, 7, interpolation)[::7, ::7], HEIGHTS)

    def test_they_stay_between_the_four_points_around(self, interpolation: str) -> None:
        found = refine(X, Y, HEIGHTS, 6, interpolation)
        for row in range(3):
            for column in range(4):
                corners = HEIGHTS[row : row + 2, column : column + 2]
                cell = found[6 * row : 6 * row + 7, 6 * column : 6 * column + 7]
                assert corners.min() - 1e-12 <= cell.min()
                assert cell.max() <= corners.max() + 1e-12

    def test_a_plane_stays_a_plane(self, interpolation: str) -> None:
        flat = 2 * X - 3 * Y[:, None]
        x, y = refine_axis(X, 5), refine_axis(Y, 5)
        np.testing.assert_allclose(refine(X, Y, flat, 5, interpolation), 2 * x - 3 * y[:, None], atol=1e-12)

    def test_a_missing_point_leaves_its_four_cells_empty_and_no_other(self, interpolation: str) -> None:
        holed = HEIGHTS.copy()
        holed[1, 2] = np.nan
        found = refine(X, Y, holed, 4, interpolation)
        inside = np.isnan(found[1:8, 5:12])
        assert inside[[0, 1, 2, 4, 5, 6]][:, [0, 1, 2, 4, 5, 6]].all()
        assert np.isfinite(found[8:]).all()
        assert np.isfinite(found[:, :4]).all()
        assert np.isfinite(found[:, 12:]).all()


def test_it_does_not_depend_on_which_axis_is_called_x() -> None:
    np.testing.assert_allclose(refine(X, Y, HEIGHTS, 5), refine(Y, X, HEIGHTS.T, 5).T)


def test_inside_a_line_it_is_the_monotone_cubic_of_scipy() -> None:
    x = np.linspace(0, 7, 8)
    heights = np.array([0.0, 1, 3, 3.5, 2, 1.5, 4, 9])
    found = refine(x, np.array([0.0, 1.0]), np.stack([heights, heights]), 10)[0]
    # At the two ends the surface runs straight, where scipy's cubic bends.
    places = refine_axis(x, 10)[10:-10]
    np.testing.assert_allclose(found[10:-10], PchipInterpolator(x, heights)(places), atol=1e-12)


def test_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="interpolation must be one of 'smooth', 'linear'"):
        refine(X, Y, HEIGHTS, 2, "cubic")
