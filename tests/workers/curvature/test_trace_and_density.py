"""The trace's interval and the density of eigenvalues, against matrices whose spectra are known."""

import numpy as np
import pytest
from known_matrices import products_of
from scipy import stats

from workers.curvature.eigenpairs import find_eigenpairs
from workers.curvature.probes import Trace, find_density, find_trace
from workers.errors import CurvatureError

# As many as the network has whose spectrum was looked at: the more there are, the less do starts differ.
MANY = np.array([8.0, 4.0, 2.0, 1.0, *np.geomspace(0.5, 1e-4, 900), *-np.geomspace(0.1, 1e-4, 306)])
VALUES = np.array([8.0, 4.0, 2.0, 1.0, *np.geomspace(0.5, 1e-4, 140), *-np.geomspace(0.1, 1e-4, 56)])


@pytest.mark.slow
def test_the_trace_with_a_probe_for_each_seed_is_covered_by_its_interval():
    products = products_of(VALUES)
    ends = find_eigenpairs(products, 3, 0, tolerance=1e-4)
    found = [find_trace(products, ends, 10, seed=seed) for seed in range(200)]
    covered = sum(trace.low <= VALUES.sum() <= trace.high for trace in found)
    assert 180 <= covered <= 198
    errors = np.array([trace.value for trace in found]) / VALUES.sum() - 1
    without = find_eigenpairs(products, 0, 0)
    plain = np.array([find_trace(products, without, 10, seed=seed).value for seed in range(200)]) / VALUES.sum() - 1
    assert np.sqrt((errors**2).mean()) < 0.4 * np.sqrt((plain**2).mean())


def test_one_probe_has_no_interval():
    products = products_of(VALUES)
    trace = find_trace(products, find_eigenpairs(products, 2, 0), 1)
    assert np.isfinite(trace.value)
    assert np.isnan([trace.low, trace.high]).all()


def test_the_interval_is_students_over_the_probes():
    samples = np.array([1.0, 2.0, 4.0])
    trace = Trace.of(samples, known=10.0)
    ends = stats.t.interval(0.95, 2, 10 + samples.mean(), stats.sem(samples))
    np.testing.assert_allclose([trace.value, trace.low, trace.high], [10 + 7 / 3, *ends])


@pytest.mark.parametrize(("steps", "probes", "most"), [(20, 1, 0.005), (40, 4, 0.002)])
def test_the_density_is_that_of_the_eigenvalues(steps, probes, most):
    products = products_of(MANY)
    for seed in range(3):
        found = find_density(products, probes, steps, seed=seed)
        np.testing.assert_allclose(found.weights.sum(1), 1)
        distance = stats.wasserstein_distance(MANY, found.nodes.ravel(), None, found.weights.ravel())
        assert distance / np.ptp(MANY) <= most


def test_memory_that_does_not_hold_a_starts_vectors_is_said_with_their_size():
    with pytest.raises(CurvatureError, match=r"density of 40 steps needs 40 vectors of 200 weights.*density_steps"):
        find_density(products_of(VALUES), 1, 40, memory=1000.0)


def test_a_matrix_of_few_eigenvalues_needs_few_steps():
    found = find_density(products_of([2.0] * 50 + [1.0] * 50 + [0.0] * 100), 2, 10)
    assert np.isnan(found.nodes[:, 3:]).all()
    np.testing.assert_allclose(found.nodes[:, :3], [[0, 1, 2]] * 2, atol=1e-9)
    np.testing.assert_allclose(found.weights[:, :3], [[0.5, 0.25, 0.25]] * 2, atol=0.12)
