"""JAX: products of the Hessian and the Gauss-Newton matrix, against derivatives of the loss of all samples at once."""

import jax
import jax.numpy as jnp
import jax_cases
import numpy as np
import pytest
from cases import open_evaluator
from flax import nnx
from jax.flatten_util import ravel_pytree

from collectors.jax import JaxNetwork
from collectors.networks.jax_network import take_apart
from landscape import evaluate
from landscape.functions import hessian_plane
from workers.curvature.eigenpairs import find_eigenpairs
from workers.curvature.measuring import CurvatureSettings
from workers.curvature.products import SHARES, Products, ProductSettings
from workers.errors import CurvatureError
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pool import CurvatureTask
from workers.pools.in_process import InProcessPool

BUILDS = {"linen": jax_cases.build_linen, "nnx": jax_cases.build_nnx, "plain": jax_cases.build_plain}
PLAN = MeasurementPlan(16, 1)


def whole(network, loss, inputs):
    """Returns a loss of all samples as a function of one vector, that vector, and the outputs' function."""
    parts = take_apart(network)
    names = [info.name for info in parts.space.trainable]
    fixed = {name: value for name, value in parts.arrays.items() if name not in names}
    # Ravelled in the order of names, which need not be the alphabet's.
    start, back = ravel_pytree([jnp.asarray(parts.arrays[name], jnp.float32) for name in names])

    def outputs(vector):
        return parts.call({**fixed, **dict(zip(names, back(vector), strict=True))}, inputs)

    return (lambda vector: loss(outputs(vector))), start, outputs


def products_of(evaluator, matrix="hessian"):
    with evaluator.products(ProductSettings(matrix)) as shares:
        vector = shares.layout.gaussian(5)
        return vector, Products(shares)(vector), [shares.product(vector, share) for share in range(SHARES)]


def assert_near(found, expected, closeness=1e-5):
    assert np.linalg.norm(found - np.asarray(expected)) <= closeness * np.linalg.norm(expected)


def whole_product(loss, start, vector):
    """Backwards over backwards, where the products that are tested go forwards over backwards."""
    with jax.default_matmul_precision("highest"):
        return jax.jit(jax.grad(lambda place: jnp.vdot(jax.grad(loss)(place), vector)))(start)


def test_products_are_compiled_once_for_all_points():
    traces = []

    def loss(outputs, targets):
        traces.append(1)
        return jax_cases.per_sample(outputs, targets)

    evaluator = open_evaluator((loss, *jax_cases.build_plain()[1:]), 16)
    counts = []
    for matrix in ("hessian", "ggn", "hessian", "ggn"):
        products_of(evaluator, matrix)
        counts.append(len(traces))
    assert counts[0] < counts[1] == counts[2] == counts[3]


@pytest.mark.parametrize(
    ("name", "batch_size"),
    [("plain", 3), ("plain", 40), *(pytest.param(name, 3, marks=pytest.mark.slow) for name in ("linen", "nnx"))],
)
def test_products_are_those_of_all_samples_at_once(name, batch_size):
    built = BUILDS[name]()
    inputs = jax_cases.images() if name == "linen" else jax_cases.features()
    loss, start, _ = whole(built[1], lambda found: jax_cases.mean_loss(found, jax_cases.classes()), inputs)
    vector, found, _ = products_of(open_evaluator(built, batch_size))
    assert_near(found, whole_product(loss, start, vector))


def weighted(outputs, targets):
    """The mean by the weights of classes, of which some count nothing; it belongs to its batches."""
    counts = jnp.asarray([0.0, 1.0, 3.0])[targets]
    return (counts * jax_cases.per_sample(outputs, targets)).sum() / jnp.maximum(counts.sum(), 1e-6)


def test_a_loss_that_belongs_to_its_batches_is_the_mean_over_these():
    features, classes = jax_cases.features(), jax_cases.classes()
    batches = [(features[at : at + 9], classes[at : at + 9]) for at in range(0, 40, 9)]
    network = JaxNetwork(jax_cases.predict, jax_cases.new_layers())

    def loss(outputs):
        parts = [slice(at, at + 9) for at in range(0, 40, 9)]
        return sum(weighted(outputs[part], classes[part]) * len(classes[part]) for part in parts) / 40

    expected, start, _ = whole(network, loss, features)
    with pytest.warns(UserWarning, match="depends on how samples are batched"):
        evaluator = open_evaluator((weighted, network, batches, {}))
    vector, found, _ = products_of(evaluator)
    assert_near(found, whole_product(expected, start, vector))


def test_the_gauss_newton_matrix():
    built = jax_cases.build_plain()
    classes = jax_cases.classes()
    _, start, outputs = whole(built[1], lambda found: found, jax_cases.features())
    jacobian = np.asarray(jax.jacobian(outputs)(start)).reshape(-1, start.size)
    bend = jax.hessian(lambda flat: jax_cases.mean_loss(flat.reshape(40, -1), classes))(outputs(start).ravel())
    evaluator = open_evaluator(built)
    vector, found, _ = products_of(evaluator, "ggn")
    assert_near(found, jacobian.T @ (np.asarray(bend) @ (jacobian @ vector)))
    with evaluator.products(ProductSettings("ggn")) as shares:
        ends = find_eigenpairs(Products(shares), 1, 1, tolerance=0.01)
    assert ends.values[1] > -1e-4 * ends.values[0]


def test_shares_hold_the_same_samples_whatever_the_batch_size():
    results = [products_of(open_evaluator(jax_cases.build_plain(), size)) for size in (3, 40)]
    np.testing.assert_allclose(results[0][2], results[1][2], atol=1e-5)


@pytest.mark.slow
def test_the_curvature_of_a_checkpoint_in_a_pool_that_keeps_its_plane():
    built = jax_cases.build_plain()
    parts = take_apart(built[1])
    moved = {name: np.asarray(value) * np.float32(1.5) for name, value in parts.arrays.items()}
    scaled = JaxNetwork(jax_cases.predict, jax.tree.map(lambda value: 1.5 * value, jax_cases.new_layers()))
    loss, start, _ = whole(scaled, lambda found: jax_cases.mean_loss(found, jax_cases.classes()), jax_cases.features())
    values = np.linalg.eigvalsh(np.asarray(jax.hessian(loss)(start)))
    settings = CurvatureSettings(top=2, bottom=1, trace_probes=20)
    with InProcessPool(lambda: built, MeasurementOptions(), plan=PLAN) as pool:
        origin = {name: np.asarray(value) for name, value in parts.arrays.items()}
        pool.load(origin, [origin], {})
        before = pool.measure_origin()[0].measured.values
        (result,) = pool.run_curvature([CurvatureTask(0, lambda: (moved, {}), settings)])
        assert pool.measure_origin()[0].measured.values == before
    assert result.error is None
    np.testing.assert_allclose(result.values.eigenvalues, [values[-1], values[-2], values[0]], atol=1e-4 * values[-1])
    assert result.values.loss == pytest.approx(float(loss(start)), rel=1e-6)
    assert result.values.trace.low < values.sum() < result.values.trace.high


def test_low_precision_is_computed_in_float32_from_the_same_weights():
    network = nnx.merge(*nnx.split(jax_cases.NnxPerceptron(nnx.Rngs(0), param_dtype=jnp.bfloat16)))
    built = (jax_cases.per_sample, network, (jax_cases.features(), jax_cases.classes()), {})
    with open_evaluator(built).products(ProductSettings()) as shares:
        assert "low precision" in shares.notes[0]
        assert shares.layout.dtype == "float32"
        assert np.isfinite(Products(shares)(shares.layout.gaussian(0))).all()


def test_memory_that_runs_out_halves_the_batches(monkeypatch):
    evaluator = open_evaluator(jax_cases.build_plain(), 40)
    expected = products_of(evaluator)[1]
    with evaluator.products(ProductSettings()) as shares:
        arguments = shares._arguments

        def hungry(batch):
            if batch.size > 2:
                raise MemoryError("RESOURCE_EXHAUSTED: as XLA says")
            return arguments(batch)

        monkeypatch.setattr(shares, "_arguments", hungry)
        np.testing.assert_allclose(Products(shares)(shares.layout.gaussian(5)), expected, atol=1e-5)
        assert "memory ran out: the curvature is computed in batches of 2 samples" in shares.notes[-1]


def test_what_cannot_be_differentiated_is_named():
    def predict(layers, inputs):
        outputs = jax_cases.predict(layers, inputs)
        return jax.lax.while_loop(lambda found: found.sum() > 1e9, lambda found: found / 2, outputs)

    network = JaxNetwork(predict, jax_cases.new_layers())
    built = (jax_cases.per_sample, network, (jax_cases.features(), jax_cases.classes()), {})
    with (
        open_evaluator(built).products(ProductSettings()) as shares,
        pytest.raises(CurvatureError, match=r"JAX cannot differentiate.*while_loop.*trace_by_lines"),
    ):
        Products(shares)(shares.layout.gaussian(0))


def test_second_differences_along_a_planes_eigenvectors_are_the_eigenvalues():
    build = jax_cases.build_plain
    line = hessian_plane(build()[1], build, which="top", device_ids=[0], progress=False)
    step = 1e-2 * line.longest
    seen = evaluate(line, build, x=[-step, 0.0, step], plan=PLAN, device_ids=[0], progress=False).loss
    assert (seen[0] - 2 * seen[1] + seen[2]) / step**2 == pytest.approx(line.curvature.eigenvalues[0], rel=0.02)
    assert np.isfinite(line.norms).all()
