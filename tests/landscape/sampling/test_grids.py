"""Axes that share points; which measured point covers each pending one; grids, coarse to fine."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from landscape.record.checks import PointStatus
from landscape.sampling.adaptive_sampling import AdaptiveSampling
from landscape.sampling.grids import (
    GridLevels,
    axis_of_size,
    coarse_values,
    coinciding,
    covering_points,
    finer_axis,
    is_even,
    nested_size,
    wider_axis,
)
from landscape.sampling.sampling import full_grid

EVEN = np.linspace(-1.3, 0.7, 40)
UNEVEN = np.array([-2.0, -1.0, 0.5, 0.75, 4.0])
PENDING, MEASURED, INTERPOLATED, FAILED = PointStatus


@given(st.integers(2, 90), st.integers(2, 9))
def test_a_finer_axis_has_all_points_with_their_very_bits(count, factor):
    axis = np.linspace(-1.3, 0.7, count)
    finer = finer_axis(axis, factor)
    np.testing.assert_array_equal(finer[::factor], axis)
    np.testing.assert_allclose(np.diff(finer), 2 / (len(finer) - 1), rtol=1e-9)


@given(st.integers(2, 200))
def test_half_the_cells_are_those_of_an_axis_that_was_made_at_once(count):
    np.testing.assert_array_equal(finer_axis(np.linspace(-1.3, 0.7, count), 2), np.linspace(-1.3, 0.7, 2 * count - 1))


def test_uneven_cells_are_divided_one_by_one():
    assert not is_even(UNEVEN)
    np.testing.assert_array_equal(finer_axis(UNEVEN, 2), [-2, -1.5, -1, -0.25, 0.5, 0.625, 0.75, 2.375, 4])


def test_a_symmetric_axis_stays_symmetric():
    axis = np.linspace(-1, 1, 40)
    axis = (axis - axis[::-1]) / 2
    for finer in (finer_axis(axis, 2), finer_axis(axis, 3), wider_axis(axis, -1.5, 1.5)):
        np.testing.assert_array_equal(finer, -finer[::-1])
        assert len(coinciding(axis, finer)[0]) == 40


def test_coordinates_coincide_to_a_billionth_of_the_width():
    here, there = coinciding(EVEN, EVEN + 1e-10)
    np.testing.assert_array_equal(here, np.arange(40))
    np.testing.assert_array_equal(there, np.arange(40))
    assert len(coinciding(EVEN, EVEN + 1e-8)[0]) == 0
    here, there = coinciding(EVEN, np.linspace(-1.3, 0.7, 80))
    assert (here.tolist(), there.tolist()) == ([0, 39], [0, 79])
    # No coordinate has two partners, however close they are.
    close = np.array([0.0, 1e-12, 1.0])
    here, there = coinciding(close, np.array([0.0, 1.0]))
    assert (here.tolist(), there.tolist()) == ([0, 2], [0, 1])
    assert [len(part) for part in coinciding(np.array([3.0]), np.array([3.0]))] == [1, 1]


@pytest.mark.parametrize(
    ("count", "size", "nested"), [(40, 80, 79), (40, 40, 40), (40, 99, 118), (40, 41, 40), (5, 9, 9), (5, 8, 9)]
)
def test_the_nearest_size_that_keeps_all(count, size, nested):
    assert nested_size(count, size) == nested
    axis = np.linspace(0, 1, count)
    assert len(coinciding(axis, axis_of_size(axis, nested))[0]) == count
    assert min(abs(size - ((count - 1) * cells + 1)) for cells in range(1, 9)) == abs(size - nested)


@given(st.integers(2, 60), st.floats(0, 3), st.floats(0, 3))
def test_a_wider_axis_adds_the_fewest_whole_cells(count, before, after):
    axis = np.linspace(-1.3, 0.7, count)
    step = 2 / (count - 1)
    wider = wider_axis(axis, -1.3 - before, 0.7 + after)
    here, there = coinciding(axis, wider)
    assert len(here) == count
    np.testing.assert_array_equal(wider[there], axis)
    np.testing.assert_allclose(np.diff(wider), step, rtol=1e-6)
    assert -1.3 - before - step < wider[0] <= -1.3 - before + 1e-8
    assert 0.7 + after - 1e-8 <= wider[-1] < 0.7 + after + step


def test_what_reaches_far_enough_stays_as_it_is():
    np.testing.assert_array_equal(wider_axis(EVEN, -1.0, 0.7), EVEN)
    np.testing.assert_array_equal(wider_axis(UNEVEN, -2.5, 9.0), [-3, *UNEVEN, 7.25, 10.5])


def begun(shape, count):
    """Returns the status after the first points of the order in which a grid is measured."""
    status = np.full(shape, PENDING, np.uint8)
    status.flat[full_grid(shape)[:count]] = MEASURED
    return status


def coarsest_cell(shape):
    levels = GridLevels.of(shape)
    nodes = levels.steps[0].coarse if levels.steps else levels.first
    return [int(np.diff(each).max(initial=1)) for each in nodes][-len(shape) :]


@pytest.mark.parametrize("shape", [(40, 40), (9, 23), (57,), (1, 30), (30, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_any_set_of_points_against_a_search_by_hand(shape, seed):
    random = np.random.default_rng(seed)
    share = (0.02, 0.1, 0.4, 0.9)[seed]
    status = random.choice(
        np.array([PENDING, MEASURED, FAILED], np.uint8), shape, p=[1 - share, 0.8 * share, 0.2 * share]
    )
    cell = np.array(coarsest_cell(shape))
    settled = np.argwhere((status == MEASURED) | (status == FAILED))
    points = covering_points(status)
    assert points.shape == shape
    for place in np.ndindex(shape):
        found = points[place]
        if status[place] != PENDING or not len(settled):
            assert found == -1
            continue
        away = np.abs(settled - place) / cell
        distances = np.sqrt((away**2).sum(axis=1))
        nearest = np.isclose(distances, distances.min(), rtol=1e-12)
        reachable = nearest & (distances <= np.sqrt(0.5) + 1e-9)
        allowed = {
            int(np.ravel_multi_index(tuple(settled[index]), shape))
            for index in np.flatnonzero(reachable)
            if status[tuple(settled[index])] == MEASURED
        }
        # Of several equally near points any may be the one.
        assert found in allowed or (found == -1 and len(allowed) < nearest.sum())


@pytest.mark.parametrize("shape", [(40, 40), (21, 50), (101,)])
def test_a_whole_grid_of_the_order_leaves_nothing_uncovered_in_rectangles(shape):
    levels = GridLevels.of(shape)
    for rows, columns in [levels.steps[0].coarse, *(step.fine for step in levels.steps[:-1])]:
        status = np.full(levels.shape, PENDING, np.uint8)
        status[np.ix_(rows, columns)] = MEASURED
        points = covering_points(status.reshape(shape)).reshape(levels.shape)
        assert ((points >= 0) == (status == PENDING)).all()
        own = np.arange(points.size).reshape(points.shape)
        row, column = np.divmod(np.where(status == MEASURED, own, points), points.shape[1])
        # The cell around a point of the grid is a rectangle: its row depends on the row alone.
        assert (row == row[:, :1]).all()
        assert (column == column[:1]).all()


def test_a_few_points_of_the_order_cover_all_others():
    """Also between a finer grid and a coarser one, and those that an adaptive landscape begins with."""
    adaptive = np.full((40, 40), PENDING, np.uint8)
    asked = AdaptiveSampling((40, 40)).next_points(np.full((40, 40), np.nan), adaptive)
    adaptive.flat[asked[:32]] = MEASURED
    counts = [(50, count) for count in range(16, 200, 7)] + [(side, side * side // 50) for side in (40, 100, 400)]
    for status in (adaptive, *(begun((side, side), count) for side, count in counts)):
        np.testing.assert_array_equal(covering_points(status) >= 0, status == PENDING)


def test_values_are_those_of_the_points_and_nothing_else_gets_one():
    status = begun((20, 20), 9)
    values = np.where(status == MEASURED, np.random.default_rng(0).normal(size=(20, 20)), np.nan)
    shown, points = coarse_values(values, status), covering_points(status)
    np.testing.assert_array_equal(np.isfinite(shown), points >= 0)
    np.testing.assert_array_equal(shown[points >= 0], values.reshape(-1)[points[points >= 0]])
    first = int(points[0, 1])
    for value in (np.nan, np.inf):
        values.flat[first] = value
        assert np.isnan(coarse_values(values, status)[points == first]).all()


@pytest.mark.parametrize(("others", "middle"), [(PENDING, PENDING), (MEASURED, MEASURED), (PENDING, INTERPOLATED)])
def test_nothing_to_cover_or_nothing_to_cover_it_with(others, middle):
    status = np.full((5, 7), others, np.uint8)
    status[2, 3] = middle
    assert (covering_points(status) == -1).all()
