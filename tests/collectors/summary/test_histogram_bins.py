"""Histograms: nothing is lost, nothing has width zero."""

import hypothesis.extra.numpy as hypothesis_numpy
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collectors.summary.encoding import MOST_BINS, bin_count, histogram


@given(
    hypothesis_numpy.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64, np.uint64, np.bool_]),
        st.integers(0, 300),
    )
)
@example(np.array([np.iinfo(np.int64).min]))
@example(np.array([-4503599627370498]))
@example(np.array([np.finfo(np.float64).max]))
@example(np.array([-np.finfo(np.float64).max, np.finfo(np.float64).max]))
def test_every_value_is_counted_once(values):
    result = histogram(values)
    strange = sum(result.not_finite.values())
    assert result.counts.sum() + strange == values.size
    if result.counts.sum():
        assert np.all(np.diff(result.edges) > 0)
        finite = values[np.isfinite(values)]
        assert float(result.edges[0]) <= float(finite.min())
        assert float(result.edges[-1]) >= float(finite.max())
        assert len(result.counts) <= MOST_BINS


@pytest.mark.parametrize("size", [11, 300, 5000])
def test_agrees_with_numpy(size):
    values = np.random.default_rng(size).normal(size=size)
    result = histogram(values)
    counts, edges = np.histogram(values, bins=bin_count(size))
    np.testing.assert_allclose(result.edges, edges, atol=1e-12)
    np.testing.assert_array_equal(result.counts, counts)
    np.testing.assert_allclose(result.sum, values.sum())
    np.testing.assert_allclose(result.sum_of_squares, (values**2).sum())


def test_more_values_never_get_fewer_bins():
    counts = [bin_count(size) for size in range(3000)]
    assert counts == sorted(counts)
    assert [bin_count(size) for size in (0, 1, 5, 10, 11, 100, 880, 881, 10**9)] == [1, 1, 2, 3, 3, 11, 89, 89, 90]


@pytest.mark.parametrize(
    ("values", "not_finite", "counts", "edges"),
    [
        ([np.nan, 1.0, np.inf, np.inf, -np.inf, 2.0], (1, 2, 1), [1, 1], [1.0, 1.5, 2.0]),
        ([np.nan] * 3, (3, 0, 0), [], []),
        ([True, False, True], (0, 0, 0), [1, 2], [-0.5, 0.5, 1.5]),
    ],
)
def test_strange_values_are_counted_apart(values, not_finite, counts, edges):
    result = histogram(np.array(values))
    names = ("nan", "positive_infinity", "negative_infinity")
    assert result.not_finite == dict(zip(names, not_finite, strict=True))
    assert (result.counts.tolist(), result.edges.tolist()) == (counts, edges)
    assert result.sum == sum(value for value in values if np.isfinite(value))


@pytest.mark.parametrize("values", [np.arange(4), np.array([0, 3, 1, 2, 3], np.uint8), np.arange(4) - 10**6])
def test_a_small_range_of_integers_shows_each_one(values):
    result = histogram(values)
    np.testing.assert_array_equal(result.edges, np.arange(values.min(), values.max() + 2) - 0.5)
    np.testing.assert_array_equal(result.counts, np.bincount(values - values.min()))


def test_bins_of_integers_are_whole_numbers_wide():
    result = histogram(np.arange(1000))
    assert set(np.diff(result.edges)) == {12.0}
    assert set(result.counts[:-1]) == {12}


@pytest.mark.parametrize("value", [0.0, 0.01, -3.0, 5e-324, 1.7e308, 2**53])
def test_equal_values_get_one_bin_with_a_width(value):
    result = histogram(np.full(200, value))
    assert result.counts.tolist() == [200]
    assert result.edges[0] < result.edges[1]
    assert result.edges[0] <= value <= result.edges[1]
    assert np.isfinite(result.edges).all()
