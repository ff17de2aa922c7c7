"""What an interval promises, on real networks: those of two recipes, measured along many directions, drawn again.

``COVERAGE_DIRECTIONS`` and ``COVERAGE_NETWORKS`` say how many there are to draw from: 60 directions and 12 networks of
each recipe, or 2,000 and 20 in the long test (``make stress``).
"""

import os

import numpy as np
import pytest
from many_perceptrons import SAMPLES, perceptron, train

from landscape import MeasurementPlan
from landscape.comparison.data import rises_of
from landscape.comparison.statistics import bootstrap_difference, crossed_difference, welch
from landscape.functions import compare

DIRECTIONS = int(os.environ.get("COVERAGE_DIRECTIONS", "60"))
NETWORKS = int(os.environ.get("COVERAGE_NETWORKS", "12"))
REPEATS = 1000
# Of 12 networks, 6 that are drawn with repeats are not as different as 6 new ones.
COVERED = (0.93, 0.97)
DRAWN, ALONG = 6, 12
PLAN = MeasurementPlan(batch_size=SAMPLES)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * 3600)]  # for the long test


@pytest.fixture(scope="module")
def measured():
    """The rise at radius 0.5 of the networks of two recipes, shape (2, networks, directions)."""
    return rises_of(compared(NETWORKS)).reshape(2, NETWORKS, DIRECTIONS)


def compared(count, **first):
    recipes = {name: train(name, count, **first) for name in ("small", "large")}
    return compare(recipes, perceptron, directions=DIRECTIONS, points=3, device_ids=[0], plan=PLAN, progress=False)


def drawn(random, rises):
    return rises[random.integers(len(rises), size=DRAWN)]


def test_the_interval_of_a_difference_covers_it(measured):
    """Also the sign: six networks of each and twelve directions find it where one of each may not."""
    random, hits, alone, signs, singles = np.random.default_rng(0), 0, 0, 0, 0
    truth = measured[0].mean() - measured[1].mean()
    for _ in range(REPEATS):
        along = random.integers(DIRECTIONS, size=ALONG)
        first, second = (drawn(random, rises)[:, along] for rises in measured)
        found = crossed_difference(first, second)
        low, high = found.interval()
        hits += low <= truth <= high
        low, high = welch(first.mean(1), second.mean(1)).interval()
        alone += low <= truth <= high
        signs += np.sign(found.value) == np.sign(truth)
        singles += np.sign(first[0, 0] - second[0, 0]) == np.sign(truth)
    shares = {"covered": hits, "by networks alone": alone, "sign": signs, "sign of one and one": singles}
    print(", ".join(f"{name} {count / REPEATS:.3f}" for name, count in shares.items()))
    assert COVERED[0] <= hits / REPEATS <= COVERED[1]
    assert signs / REPEATS >= 0.95
    assert singles / REPEATS < 0.9


def test_equal_recipes_are_seldom_called_different(measured):
    random, false = np.random.default_rng(1), 0
    for repeat in range(REPEATS):
        rises, along = measured[repeat % 2], random.integers(DIRECTIONS, size=ALONG)
        found = crossed_difference(drawn(random, rises)[:, along], drawn(random, rises)[:, along])
        false += found.p_value < 0.05
    print(f"false alarms {false / REPEATS:.3f}")
    assert false / REPEATS <= 0.05


def test_the_bootstrap_covers_the_difference_of_two_networks(measured):
    """Directions and blocks of samples are drawn; the truth is that of all of both."""
    pairs, repeats, hits = 2 if DIRECTIONS < 1000 else 5, 200, 0
    random = np.random.default_rng(2)
    for pair in range(pairs):
        found = compared(1, first=pair)
        rises, sizes = found.block_rise, found.block_size
        truth = float((rises[0] - rises[1]).mean(0) @ sizes / sizes.sum())
        for repeat in range(repeats):
            along = random.integers(DIRECTIONS, size=ALONG)
            blocks = random.integers(len(sizes), size=len(sizes))
            first, second = rises[:, along][:, :, blocks]
            low, high = bootstrap_difference(first, second, sizes[blocks], seed=repeat, resamples=400).interval()
            hits += low <= truth <= high
    share = hits / (pairs * repeats)
    print(f"covered {share:.3f}")
    assert COVERED[0] <= share <= COVERED[1]
