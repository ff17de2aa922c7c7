"""Eigenpairs, the trace's interval and the density of eigenvalues, of matrices whose spectra are known."""

import numpy as np
import pytest
from known_matrices import MatrixShares, products_of, rotated
from scipy import stats

from workers.curvature.eigenpairs import find_eigenpairs
from workers.curvature.measuring import CurvatureSettings, measure_state_curvature
from workers.curvature.probes import Trace, find_density, find_trace
from workers.curvature.products import Layout, Products
from workers.errors import CurvatureError

GAPS = [36.0, 15.7, 10.1, 6.0, 3.0, *np.geomspace(1, 1e-6, 190), -0.1, -0.4, -0.9, -1.3, -1.95]
ACCURACY = {"float32": 1e-5, "float64": 1e-10}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("top", "bottom"), [(2, 0), (5, 0), (2, 1), (0, 2), (1, 1)])
def test_both_ends_of_a_spectrum_with_gaps(dtype, top, bottom):
    found = find_eigenpairs(products_of(GAPS, dtype), top, bottom, tolerance=1e-5, seed=3)
    expected = [*sorted(GAPS, reverse=True)[:top], *sorted(GAPS)[:bottom]]
    np.testing.assert_allclose(found.values, expected, atol=ACCURACY[dtype] * 36, rtol=0)
    assert found.converged.all()
    matrix = rotated(GAPS)
    off = found.vectors.astype(np.float64) @ matrix - found.values[:, None] * found.vectors
    lengths = np.linalg.norm(off, axis=1)
    rounding = {"float32": 1e-6, "float64": 1e-13}[dtype] * 36  # a product is no more exact, so no residual is smaller
    assert (lengths <= 1.1 * found.residuals).all()
    assert (found.residuals <= np.maximum(1.1 * lengths, rounding)).all()


def test_the_tolerance_is_relative_to_each_eigenvalue():
    values = [100.0, 1.0, 0.9, *np.linspace(0.5, 0, 197)]
    found = find_eigenpairs(products_of(values), 3, 0, tolerance=1e-3)
    assert (found.residuals <= 1e-3 * found.values).all()
    _, vectors = np.linalg.eigh(rotated(values))
    assert abs(found.vectors[2] @ vectors[:, -3]) > 1 - 1e-4


def test_a_pair_that_has_not_converged_is_marked():
    found = find_eigenpairs(products_of(np.linspace(1, 0, 200)), 2, 0, tolerance=1e-6, max_products=8)
    assert found.products == 8
    assert not found.converged.any()
    assert (found.residuals > 1e-6).all()


@pytest.mark.parametrize(
    ("values", "top", "bottom"),
    [
        ([10.0, 10.0, 7.0, *np.linspace(3, 0, 195), -1.0, -1.0], 2, 0),
        ([10.0, 10.0, 7.0, *np.linspace(3, 0, 195), -1.0, -1.0], 2, 2),
        ([5.69, 5.69, 5.69, 2.9, *np.linspace(1, 0, 60)], 3, 0),
        ([4.0, 4.0, 3.0, 3.0, 3.0, *np.linspace(1, 0, 60), -2.0, -2.0, -2.0], 5, 3),
        ([2.0, 2.0, 2.0, 2.0, *[0.0] * 30], 5, 0),
        ([1.0] * 12, 3, 2),
        ([5.0, 3.0, 2.0, *[0.0] * 197], 5, 0),
        ([0.0] * 20, 2, 1),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eigenvalues_of_several_dimensions(values, top, bottom, dtype):
    """One Krylov space holds one copy of each."""
    found = find_eigenpairs(products_of(values, dtype), top, bottom, tolerance=1e-3)
    ordered = sorted(values)
    np.testing.assert_allclose(found.values, [*ordered[::-1][:top], *ordered[:bottom]], rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(top + bottom), atol=1e-4)
    assert found.converged.all()


def test_all_eigenvalues_of_a_small_matrix():
    values = [4.0, 3.0, 2.5, -1.0, -2.0]
    found = find_eigenpairs(products_of(values), 3, 2, tolerance=1e-6)
    np.testing.assert_allclose(found.values, [4, 3, 2.5, -2, -1], atol=1e-10)


def test_little_memory_restarts_and_finds_the_same():
    values = [36.0, 15.7, 10.1, *np.linspace(9, 0, 996), -2.0]
    row = 8 * len(values)
    found = find_eigenpairs(products_of(values), 2, 1, tolerance=1e-4, memory=18 * row)
    np.testing.assert_allclose(found.values, [36, 15.7, -2], rtol=1e-6)
    assert found.converged.all()


def test_memory_that_does_not_hold_the_vectors_is_said_with_their_size():
    with pytest.raises(CurvatureError, match=r"5 eigenpairs need 22 vectors of 200 weights.*only .* GB may be used"):
        find_eigenpairs(products_of(GAPS), 5, 0, memory=1000.0)


def test_more_pairs_than_weights():
    with pytest.raises(CurvatureError, match=r"at most the number of trainable weights \(200\), but is 200 \+ 1"):
        find_eigenpairs(products_of(GAPS), 200, 1)


def test_the_largest_entry_of_a_vector_is_positive_and_the_seed_changes_nothing_else():
    first, second = (find_eigenpairs(products_of(GAPS), 2, 1, tolerance=1e-6, seed=seed) for seed in (0, 1))
    assert all(vector[np.abs(vector).argmax()] > 0 for vector in first.vectors)
    np.testing.assert_allclose(first.vectors, second.vectors, atol=1e-5)


def test_random_numbers_of_a_tensor_do_not_depend_on_the_others():
    layout = MatrixShares(np.eye(9)).layout
    larger = type(layout)(("new", *layout.names), ((5,), *layout.shapes), layout.dtype)
    np.testing.assert_array_equal(larger.gaussian(4)[5:], layout.gaussian(4))
    assert set(layout.rademacher(4)) == {-1.0, 1.0}


@pytest.mark.parametrize("share", [1e-2, 1e-5])
def test_a_matrix_that_is_not_symmetric_is_found_out_without_a_product_more(share):
    values = np.concatenate([np.linspace(1, 0.1, 30), np.zeros(70)])
    shares = MatrixShares(rotated(values), "float32")
    twist = np.random.default_rng(1).standard_normal((100, 100))
    shares.matrix = shares.matrix + share * (twist - twist.T) / np.sqrt(100)
    if share > 1e-3:
        with pytest.raises(CurvatureError, match=r"not those of a symmetric matrix .*custom Functions"):
            find_eigenpairs(Products(shares), 3, 1)
    else:
        found = find_eigenpairs(Products(shares), 3, 1)
        np.testing.assert_allclose(found.values[0], 1, atol=1e-4)


def test_a_start_near_the_gradient_finds_the_same_sooner():
    values = np.concatenate([np.geomspace(100, 1, 12), np.linspace(0.5, -0.5, 400)])
    products, matrix = products_of(values), rotated(values)
    gradient = matrix @ np.random.default_rng(3).standard_normal(len(values))
    plain = find_eigenpairs(products, 3, 0, tolerance=1e-6)
    for start in (gradient, 1e-30 * gradient, np.zeros(len(values)), rotated(values)[:, 0] * np.nan):
        found = find_eigenpairs(products, 3, 0, tolerance=1e-6, gradient=start)
        np.testing.assert_allclose(found.values, plain.values, rtol=1e-10)
        assert found.products <= plain.products
    assert find_eigenpairs(products, 3, 0, tolerance=1e-6, gradient=gradient).products < plain.products


class _SingleWeight(MatrixShares):
    layout = Layout(("weight",), ((1,),), "float64")


@pytest.mark.parametrize("gradient", [-0.5, 0.5])
def test_a_gradient_of_a_single_weight_may_point_against_the_random_start(gradient):
    found = find_eigenpairs(Products(_SingleWeight([[3.0]])), 1, 0, gradient=np.array([gradient]))
    np.testing.assert_allclose(found.values, [3.0])
    np.testing.assert_allclose(found.vectors, [[1.0]])


def test_an_eigenvector_as_gradient_hides_no_other():
    values = np.concatenate([[9.0, 8.0, 7.0], np.linspace(1, -1, 60)])
    matrix = rotated(values)
    _, vectors = np.linalg.eigh(matrix)
    found = find_eigenpairs(products_of(values), 3, 1, gradient=vectors[:, 30])
    np.testing.assert_allclose(found.values, [9, 8, 7, -1], rtol=1e-5)


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


class _Noting(MatrixShares):
    """Notes what it does in a product, as it does where memory runs out."""

    notes = ()

    def product(self, vector, share, *, few=0):
        if not few:
            self.notes = ("memory ran out",)
        return super().product(vector, share, few=few)


def test_what_is_noted_while_eigenpairs_are_searched_is_told():
    shares = _Noting(rotated(np.linspace(1, 0, 200)))
    settings = CurvatureSettings(top=2, trace_probes=0, max_products=8, tolerance=1e-6)
    found = measure_state_curvature(shares, shares.layout.as_state(np.ones(200)), None, settings)
    assert found.notes[0] == "memory ran out"
    assert "2 of 2 eigenpairs are not within the tolerance" in found.notes[1]
