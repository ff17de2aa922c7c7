"""Axes that share points with another axis."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from landscape.sampling.grids import axis_of_size, coinciding, finer_axis, is_even, nested_size, wider_axis

EVEN = np.linspace(-1.3, 0.7, 40)
UNEVEN = np.array([-2.0, -1.0, 0.5, 0.75, 4.0])


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
