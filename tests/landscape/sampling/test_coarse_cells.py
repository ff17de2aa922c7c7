"""Which measured point covers each pending one, against a search by hand and the order in which grids are measured."""

import itertools

import numpy as np
import pytest

from landscape.record.checks import PointStatus
from landscape.sampling.adaptive_sampling import AdaptiveSampling
from landscape.sampling.grids import GridLevels, coarse_values, covering_points
from landscape.sampling.sampling import full_grid

PENDING, MEASURED, INTERPOLATED, FAILED = PointStatus


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


def test_a_few_points_of_the_order_cover_all_others():
    """Also between a finer grid and a coarser one, and those that an adaptive landscape begins with."""
    adaptive = np.full((40, 40), PENDING, np.uint8)
    asked = AdaptiveSampling((40, 40)).next_points(np.full((40, 40), np.nan), adaptive)
    adaptive.flat[asked[:32]] = MEASURED
    counts = [(50, count) for count in range(16, 200, 7)] + [(side, side * side // 50) for side in (40, 100, 400)]
    for status in (adaptive, *(begun((side, side), count) for side, count in counts)):
        np.testing.assert_array_equal(covering_points(status) >= 0, status == PENDING)


def test_a_failed_point_covers_nothing_and_no_other_point_steps_in():
    status = begun((40, 40), 16)
    whole = covering_points(status)
    lost = int(np.flatnonzero(status.reshape(-1) == MEASURED)[5])
    status.flat[lost] = FAILED
    np.testing.assert_array_equal(covering_points(status), np.where(whole == lost, -1, whole))


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


@pytest.mark.parametrize(("others", "middle"), [(PENDING, PENDING), (MEASURED, MEASURED), (PENDING, INTERPOLATED)])
def test_nothing_to_cover_or_nothing_to_cover_it_with(others, middle):
    status = np.full((5, 7), others, np.uint8)
    status[2, 3] = middle
    assert (covering_points(status) == -1).all()
