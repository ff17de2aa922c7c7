"""The statistics of comparisons: against SciPy, and against what an interval promises."""

import numpy as np
import pytest
from scipy import stats

from landscape.comparison.statistics import (
    Estimate,
    bootstrap_difference,
    count_needed,
    crossed_difference,
    crossed_mean,
    holm,
    mean,
    welch,
)

REPEATS = 1000
COVERED = (0.93, 0.97)


def test_welch_and_pairs_are_scipys():
    random = np.random.default_rng(0)
    first, second = random.normal(1, 1, 6), random.normal(0, 3, 9)
    found, expected = welch(first, second), stats.ttest_ind(first, second, equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.interval(0.9) == pytest.approx(expected.confidence_interval(0.9))
    pairs, expected = mean(first - second[:6]), stats.ttest_rel(first, second[:6])
    assert pairs.p_value == pytest.approx(expected.pvalue)
    assert pairs.interval() == pytest.approx(expected.confidence_interval())


def test_little_is_not_enough():
    assert np.isnan(mean(np.ones(1)).interval()).all()
    assert np.isnan(mean(np.zeros(0)).value)
    assert np.isnan(bootstrap_difference(np.ones((1, 3)), np.zeros((1, 3)), np.ones(3)).p_value)
    assert mean(np.ones(4)).interval() == (1, 1)
    assert (mean(np.ones(4)).p_value, mean(np.zeros(4)).p_value) == (0, 1)
    assert welch(np.ones(3), np.zeros(3)).interval() == (1, 1)


def lines(random, networks, directions, *, between=0.05, common=0.2, rest=0.15, along=None):
    """Values of networks along directions: networks differ, directions differ for all of them, and what is left."""
    shared = common * random.standard_normal(directions) if along is None else along
    own = between * random.standard_normal((networks, 1))
    return 1 + own + shared + rest * random.standard_normal((networks, directions))


def covered(estimates, truth):
    """Returns the share of intervals that hold the truth."""
    return np.mean([low <= truth <= high for low, high in (estimate.interval() for estimate in estimates)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("networks", "directions", "reaction"),
    [(6, 12, 0.0), (6, 12, 0.1), (3, 12, 0.0), (3, 12, 0.1), (6, 4, 0.0), (6, 4, 0.1)],
)
def test_the_interval_of_a_difference_covers_it(networks, directions, reaction):
    """Sides see the same directions; each reacts to them in its own way, or does not."""
    random, moved, equal = np.random.default_rng(1), [], []
    for _ in range(REPEATS):
        along = 0.2 * random.standard_normal(directions)
        sides = [
            lines(random, networks, directions, along=along + reaction * random.standard_normal(directions))
            for _ in range(2)
        ]
        sides[0] += 0.3
        moved.append(crossed_difference(*sides))
        sides[0] -= 0.3
        equal.append(crossed_difference(*sides).p_value < 0.05)
    # The part of the directions is never below zero, which makes few of both a little more careful than need be.
    assert COVERED[0] <= covered(moved, 0.3) <= COVERED[1] + (0.01 if min(networks, directions) < 6 else 0)
    if not reaction:
        assert np.mean(equal) <= 0.05


def test_directions_that_sides_react_to_differently_are_missed_by_their_networks_alone():
    random = np.random.default_rng(2)
    found = [welch(*(lines(random, 12, 12).mean(1) for _ in range(2))) for _ in range(REPEATS)]
    assert covered(found, 0) < 0.8


@pytest.mark.parametrize("networks", [pytest.param(3, marks=pytest.mark.slow), 6])
def test_the_interval_of_a_mean_covers_it(networks):
    random = np.random.default_rng(3)
    found = [crossed_mean(lines(random, networks, 12)) for _ in range(REPEATS)]
    assert COVERED[0] <= covered(found, 1) <= COVERED[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("directions", "samples", "rest"),
    [(0.3, 1, 0.5), (0.3, 0, 0), (0, 1, 0), (0, 0, 1), (0.3, 0.7, 0)],
)
def test_the_bootstrap_covers_two_networks_difference(directions, samples, rest):
    random, found = np.random.default_rng(4), []
    for seed in range(400):
        values = (
            directions * random.standard_normal((12, 1))
            + samples * random.standard_normal((1, 64))
            + rest * random.standard_normal((12, 64))
        )
        nothing = np.zeros_like(values)
        found.append(bootstrap_difference(values + 0.5, nothing, np.ones(64), seed=seed, resamples=400))
    # Of 400 draws, where single cells make it careful.
    assert COVERED[0] - 0.01 <= covered(found, 0.5) <= COVERED[1] + 0.015


def test_the_bootstrap_is_the_closed_form_along_directions_alone():
    values = np.random.default_rng(5).standard_normal((30, 1))
    found = bootstrap_difference(values, np.zeros_like(values), np.ones(1), resamples=20000)
    assert found.value == pytest.approx(values.mean())
    assert found.error == pytest.approx(values.std(ddof=1) / np.sqrt(30), rel=0.03)
    assert found == bootstrap_difference(values, np.zeros_like(values), np.ones(1), resamples=20000)


def test_blocks_count_by_their_samples():
    values = np.array([[0.0, 1.0], [0.0, 1.0]])
    assert bootstrap_difference(values, np.zeros((2, 2)), np.array([3.0, 1.0])).value == pytest.approx(0.25)


def test_holm_by_hand():
    found = holm([0.01, 0.04, 0.03, float("nan")])
    assert [item.p_value for item in found[:3]] == pytest.approx([0.03, 0.06, 0.06])
    assert [item.differs for item in found] == [True, False, False, False]
    assert [item.confidence for item in found[:3]] == pytest.approx([1 - 0.05 / 3, 0.975, 0.975])
    assert np.isnan(found[3].p_value)


def test_an_interval_holds_zero_exactly_where_holm_says_so():
    random, false, repeats = np.random.default_rng(6), 0, 400
    for _ in range(repeats):
        groups = random.standard_normal((4, 6)) + np.array([0, 0, 0, 1.5])[:, None]
        made = [welch(groups[i], groups[j]) for i in range(4) for j in range(i)]
        found = holm([item.p_value for item in made])
        for item, corrected in zip(made, found, strict=True):
            low, high = item.interval(corrected.confidence)
            assert corrected.differs == (not low <= 0 <= high)
        false += any(found[place].differs for place in (0, 1, 2))
    assert false / repeats <= 0.05


def test_as_many_networks_as_are_needed_show_the_effect():
    random, count = np.random.default_rng(7), count_needed(0.1, 0.1, sides=2)
    seen = [welch(random.normal(0.1, 0.1, count), random.normal(0, 0.1, count)).p_value < 0.05 for _ in range(1000)]
    assert 0.76 <= np.mean(seen) <= 0.86
    count = count_needed(0.3, 0.1)
    seen = [mean(random.normal(0.1, 0.3, count)).p_value < 0.05 for _ in range(1000)]
    assert 0.76 <= np.mean(seen) <= 0.86


def test_what_no_number_shows():
    assert count_needed(0.1, 0.1, floor=1.0, sides=2) is None
    assert count_needed(np.nan, 0.1, sides=2) is None
    assert count_needed(0.1, 0) is None
    assert count_needed(0.0, 0.1, sides=2) == 3
    assert Estimate(1.0, np.nan, 0.0).interval()[0] != 0


def test_what_blocks_of_samples_add_no_number_of_directions_takes_away():
    """Twelve directions agree, but the samples are so few that the difference may be chance."""
    random = np.random.default_rng(0)
    blocks = random.standard_normal(60)
    first = 0.17 + 0.8 * (blocks - blocks.mean()) + 0.01 * random.standard_normal((12, 1))
    found = bootstrap_difference(first, np.zeros((12, 60)), np.ones(60))
    assert found.floor == pytest.approx(first.mean(0).var(ddof=1) / 60, rel=0.1)
    assert found.interval()[0] < 0 < found.interval()[1]
    assert count_needed(0.01, 0.1, floor=found.floor) is None
    assert count_needed(0.01, 0.1) == 3
