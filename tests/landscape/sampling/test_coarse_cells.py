"""Which measured point covers each pending one, against a search by hand and the order in which grids are measured."""

import itertools

import numpy as np
import pytest

from landscape.record.checks import PointStatus
from landscape.sampling.adaptive_sampling import AdaptiveSampling
from landscape.sampling.coarse_cells import coarse_values, covering_points
from landscape.sampling.grid_levels import GridLevels
from landscape.sampling.sampling import full_grid

MEASURED, FAILED, PENDING = PointStatus.MEASURED, PointStatus.FAILED, PointStatus.PENDING


def begun(shape, count):
    """Returns the status after the first points of the order in which a grid is measured."""
    status = np.full(shape, PENDING, np.uint8)
    status.flat[list(itertools.islice(full_grid(shape), count))] = MEASURED
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


def test_no_holes_between_a_finer_grid_and_a_coarser_one():
    for count in range(16, 200, 7):
        status = begun((50, 50), count)
        assert (covering_points(status) >= 0).sum() == 2500 - count


def test_two_percent_cover_nearly_everything():
    for side in (40, 100, 400):
        status = begun((side, side), side * side // 50)
        assert (covering_points(status) >= 0).sum() == (status == PENDING).sum()


def test_what_is_measured_first_of_an_adaptive_landscape_is_coarse_as_well():
    status = np.full((40, 40), PENDING, np.uint8)
    asked = AdaptiveSampling((40, 40)).next_points(np.full((40, 40), np.nan), status)
    status.flat[asked[:32]] = MEASURED
    assert (covering_points(status) >= 0).sum() == 1600 - 32


def test_a_failed_point_covers_nothing_and_no_other_point_steps_in():
    status = begun((40, 40), 16)
    whole = covering_points(status)
    lost = int(np.flatnonzero(status.reshape(-1) == MEASURED)[5])
    status.flat[lost] = FAILED
    np.testing.assert_array_equal(covering_points(status), np.where(whole == lost, -1, whole))


def test_interpolated_points_cover_nothing():
    status = np.full((9, 9), PENDING, np.uint8)
    status[4, 4] = PointStatus.INTERPOLATED
    assert (covering_points(status) == -1).all()


def test_a_far_point_covers_its_own_surroundings_alone():
    status = np.full((40, 40), PENDING, np.uint8)
    status[20, 20] = MEASURED
    rows, columns = np.nonzero(covering_points(status) >= 0)
    reach = int(coarsest_cell((40, 40))[0] / np.sqrt(2))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20 - reach, 20 + reach, 20 - reach, 20 + reach)
    assert len(rows) < 0.85 * (2 * reach + 1) ** 2


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


@pytest.mark.parametrize("status", [PENDING, MEASURED])
def test_nothing_to_cover_or_nothing_to_cover_it_with(status):
    assert (covering_points(np.full((5, 7), status, np.uint8)) == -1).all()
