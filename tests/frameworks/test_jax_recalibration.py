"""JAX: statistics that are recalibrated at each point, against means of those of batches that are made by hand."""

import functools

import jax
import jax_cases
import numpy as np
import pytest
from cases import check_recalibration, mean_loss, open_evaluator, own_plane
from flax import linen
from measured_planes import measure_plane

from collectors.jax import JaxNetwork
from workers.errors import CallbackFunctionError, SamplesError

OPTIONS = {"buffers": "recalibrate", "recalibration_batch_size": 16}


def normalized_alike(hidden, scale, bias, batch_size):
    """Returns hidden values that are normalized by the mean, over batches, of the means and variances of each."""
    axes = tuple(range(hidden.ndim - 1))
    parts = [hidden[start : start + batch_size] for start in range(0, len(hidden), batch_size)]
    mean = np.mean([part.mean(axes) for part in parts], axis=0)
    variance = np.mean([part.var(axes) for part in parts], axis=0)
    return (hidden - mean) / np.sqrt(variance + 1e-5) * scale + bias


def linen_loss(state, batch_size):
    kernel = {name: np.float32(state[f"Conv_0.{name}"]) for name in ("kernel", "bias")}
    hidden = np.asarray(linen.Conv(4, (3, 3)).apply({"params": kernel}, jax_cases.images()), np.float64)
    hidden = normalized_alike(hidden, state["BatchNorm_0.scale"], state["BatchNorm_0.bias"], batch_size)
    outputs = np.maximum(hidden, 0).mean((1, 2)) @ state["Dense_0.kernel"] + state["Dense_0.bias"]
    return mean_loss(outputs, jax_cases.classes())


def nnx_loss(state, batch_size):
    hidden = jax_cases.features().astype(np.float64)
    for layer in ("layers.0", "layers.1"):
        hidden = np.maximum(hidden @ state[f"{layer}.kernel"] + state[f"{layer}.bias"], 0)
    hidden = normalized_alike(hidden, state["norm.scale"], state["norm.bias"], batch_size)
    return mean_loss(hidden @ state["head.kernel"] + state["head.bias"], jax_cases.classes())


@pytest.mark.parametrize(("build", "loss"), [(jax_cases.build_linen, linen_loss), (jax_cases.build_nnx, nnx_loss)])
def test_statistics_are_the_mean_over_batches_at_each_point(build, loss):
    own = check_recalibration(build(), 16, loss, rtol=2e-5)
    assert own == pytest.approx(jax_cases.own_loss(build()), rel=1e-6)


def test_a_momentum_of_many_digits():
    model = linen.BatchNorm(momentum=0.98765)
    variables = model.init(jax.random.key(0), jax_cases.features(), use_running_average=False)
    network = JaxNetwork(
        functools.partial(model.apply, use_running_average=True),
        variables,
        update=functools.partial(model.apply, use_running_average=False, mutable=["batch_stats"]),
    )
    built = (lambda outputs, targets: (outputs**2).mean(-1), network, (jax_cases.features(), jax_cases.classes()), {})
    evaluator = open_evaluator(built, 40, buffers="recalibrate")
    # Of one batch, the variance of normalized values.
    variance = jax_cases.features().astype(np.float64).var(0)
    expected = (variance / (variance + 1e-5)).mean()
    assert measure_plane(evaluator, own_plane(built, evaluator), np.zeros((1, 2)))["loss"][0] == pytest.approx(
        expected, rel=1e-5
    )


def unchanged(variables, inputs, **_):
    return inputs, {"batch_stats": jax.tree.map(lambda value: value**2, variables["batch_stats"])}


@pytest.mark.parametrize(
    ("update", "count", "error", "message"),
    [
        (None, 40, ValueError, r"how this network updates its statistics: give JaxNetwork\(\.\.\., update="),
        (unchanged, 40, CallbackFunctionError, "update must return running averages, .* but 'batch_stats"),
        (unchanged, 1, SamplesError, "at least two samples for its statistics"),
        (3, 40, TypeError, "update must be a function"),
    ],
)
def test_what_cannot_be_recalibrated(update, count, error, message):
    def build():
        network = JaxNetwork(jax_cases.LinenConvolutions().apply, jax_cases.linen_variables(), update=update)
        return jax_cases.per_sample, network, (jax_cases.images()[:count], jax_cases.classes()[:count]), {}

    with pytest.raises(error, match=message):
        open_evaluator(build(), **OPTIONS)
