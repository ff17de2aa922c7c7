"""JAX: a curve between two networks is that of Optax' Adam and JAX's own gradients."""

import jax
import jax.numpy as jnp
import jax_cases
import numpy as np
import optax
import pytest
from cases import open_evaluator
from curve_tasks import curve_task, fitted_step_by_step

from collectors.jax import JaxNetwork
from landscape import evaluate
from landscape.functions import connect
from workers.errors import CurveError

LONG = 1e9


def apply(params, inputs):
    return jnp.tanh(inputs @ params["first"]) @ params["head"]


def params_of(seed):
    random = np.random.default_rng(seed)
    return {"first": random.standard_normal((5, 6)).astype("f"), "head": random.standard_normal((6, 3)).astype("f")}


def build(seed=0, loss=jax_cases.per_sample):
    return loss, JaxNetwork(apply, params_of(seed)), (jax_cases.features(), jax_cases.classes()), {}


@pytest.mark.parametrize("loss", [jax_cases.per_sample, jax_cases.mean_loss])
def test_adam_is_that_of_optax_however_it_is_cut(loss):
    evaluator = open_evaluator(build(loss=loss))
    task = curve_task(evaluator, build(1)[1], build(2)[1], steps=8, batch_size=40, learning_rate=0.02)
    found = evaluator.fit_curve(task, None, LONG)
    first, last = params_of(1), params_of(2)
    bend = jax.tree.map(lambda one, other: (one + other) / 2, first, last)
    optimizer = optax.adam(lambda step: 0.02 * (1 - step / 8))
    state = optimizer.init(bend)
    inputs, targets = build()[2]

    def loss_at(bend, t):
        point = jax.tree.map(lambda a, b, c: (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c, first, bend, last)
        return jax_cases.mean_loss(apply(point, inputs), targets)

    for step in range(8):
        value, slope = jax.value_and_grad(loss_at)(bend, task.settings.place(step))
        assert found.losses[step] == pytest.approx(float(value), rel=1e-4)
        changes, state = optimizer.update(slope, state)
        bend = optax.apply_updates(bend, changes)
    expected = np.concatenate([np.ravel(bend[name]) for name in ("first", "head")])
    np.testing.assert_allclose(found.bends[0], expected, atol=2e-5)
    np.testing.assert_array_equal(fitted_step_by_step(evaluator, task).bends, found.bends)


def test_the_loss_along_a_curve_is_lower():
    path = connect(build(1)[1], build(2)[1], build, steps=60, learning_rate=0.05, device_ids=[0], progress=False)
    curved = evaluate(path.line(), build, size=5, device_ids=[0], progress=False)
    middle = jax.tree.map(lambda one, other: (one + other) / 2, params_of(1), params_of(2))
    inputs, targets = build()[2]
    assert curved.loss[2] < float(jax_cases.mean_loss(apply(middle, inputs), targets)) - 0.1


def test_a_loss_without_gradients_is_named():
    def loss(outputs, targets):
        shape = jax.ShapeDtypeStruct(targets.shape, jnp.float32)
        return jax.pure_callback(lambda values: np.square(values).sum(1), shape, outputs)

    evaluator = open_evaluator(build(loss=loss))
    with pytest.raises(CurveError, match=r"JAX cannot differentiate .* once .*Measure\.barrier"):
        evaluator.fit_curve(curve_task(evaluator, build(1)[1], build(2)[1], steps=1), None, LONG)
