"""What makes the interval of a mean too short to be trusted."""

import numpy as np
import pytest

from landscape.report.path import _too_few as too_few_for_a_gap
from landscape.report.statement import Evidence, deviations, too_few

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("heavy", [1, 20, 99, 1000])
def test_a_sample_that_weighs_as_much_as_all_others_decides_alone(heavy):
    values, weights = RANDOM.normal(size=100), np.r_[float(heavy), np.ones(99)]
    effective = weights.sum() ** 2 / (weights**2).sum()
    few = too_few(values, weights=weights)
    assert ("make the 100 samples as few as" in few) == (effective < 30)


def test_equal_weights_change_nothing():
    values = RANDOM.gamma(0.05, size=100)
    assert too_few(values) == too_few(values, weights=np.full(100, 7.0))
    assert "a few of the samples weigh most" in too_few(values)
    np.testing.assert_allclose(deviations(values, np.full(100, 7.0)), values - values.mean())


def test_the_error_of_a_weighted_mean_is_that_of_its_deviations():
    weights = RANDOM.uniform(0.5, 2, size=50)
    draws = RANDOM.normal(size=(4000, 50))
    means = (draws * weights).sum(1) / weights.sum()
    errors = [deviations(draw, weights).std(ddof=1) / np.sqrt(50) for draw in draws]
    assert np.mean(errors) == pytest.approx(means.std(), rel=0.05)


@pytest.mark.parametrize(("counts", "says"), [((200, 1000), True), ((200, 200), False)])
def test_sums_over_sets_of_different_sizes_have_no_gap_also_where_no_samples_were_kept(counts, says):
    evidence = Evidence("", {}, {"test": counts[0], "": counts[1]})
    found = too_few_for_a_gap(evidence, None, ("test", "train"), is_sum=True)
    assert found == ("the losses are sums over samples, 200 of test and 1,000 of train" if says else "")
    assert too_few_for_a_gap(evidence, None, ("test", "train"), is_sum=False) == ""
