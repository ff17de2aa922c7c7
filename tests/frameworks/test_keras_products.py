"""Keras: products of the Hessian on each back end, against differences of gradients that NumPy computes in float64."""

import keras
import numpy as np
import pytest
from cases import open_evaluator, own_values, parts_of
from keras_cases import QUIET, data, small_model

from collectors.networks.readers import describe_network, read_network
from workers.curvature.measuring import CurvatureSettings
from workers.curvature.products import Products, ProductSettings
from workers.errors import CurvatureError
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pool import CurvatureTask
from workers.pools.in_process import InProcessPool

pytestmark = QUIET

layers = keras.layers
PLAN = MeasurementPlan(16, 1)
CrossEntropy = keras.losses.SparseCategoricalCrossentropy
DECAY = 0.01


def perceptron(**compiling):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(5, activation="tanh", kernel_regularizer=keras.regularizers.L2(DECAY)),
            layers.Dense(4, name="head"),
        ]
    )
    model.compile("sgd", **{"loss": CrossEntropy(from_logits=True), **compiling})
    return model


def gradient_of(vector, x, y, counts):
    """Returns the loss of ``perceptron`` in float64, and its gradient by hand."""
    first, bias, head, offset = np.split(vector, np.cumsum([30, 5, 20]))
    first, head = first.reshape(6, 5), head.reshape(5, 4)
    hidden = np.tanh(x @ first + bias)
    logits = hidden @ head + offset
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    rows = np.arange(len(y))
    weights = counts / counts.sum()
    loss = -weights @ np.log(shares[rows, y]) + DECAY * (first**2).sum()
    back = shares.copy()
    back[rows, y] -= 1
    back *= weights[:, None]
    inner = (back @ head.T) * (1 - hidden**2)
    parts = (x.T @ inner + 2 * DECAY * first, inner.sum(0), hidden.T @ back, back.sum(0))
    return loss, np.concatenate([part.ravel() for part in parts])


def hessian_of(vector, *samples):
    step = 1e-5
    return np.array(
        [
            (gradient_of(vector + move, *samples)[1] - gradient_of(vector - move, *samples)[1]) / (2 * step)
            for move in step * np.eye(len(vector))
        ]
    )


def weights_of(model):
    return np.concatenate([array.ravel().astype(np.float64) for array in model.get_weights()])


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX compiles derivatives")
def test_products_are_compiled_once_for_all_points():
    traces = []

    def loss(y_true, y_pred):
        traces.append(1)
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)

    evaluator, counts = open_evaluator((loss, perceptron(), data(), {}), 16), []
    for _ in range(2):
        with evaluator.products(ProductSettings()) as shares:
            Products(shares)(shares.layout.gaussian(5))
        counts.append(len(traces))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("kind", ["mean", "weighted", "batches"])
def test_products_are_those_of_float64(kind):
    x, y = data()
    counts = np.ones(50, np.float32)
    model = perceptron()
    dataset = (x, y)
    if kind == "weighted":
        model = perceptron(loss=CrossEntropy(from_logits=True, reduction="mean_with_sample_weight"))
        counts = np.linspace(0.2, 2, 50).astype(np.float32)
        dataset = (x, y, counts)
    elif kind == "batches":
        model = perceptron(loss=lambda y_true, y_pred: keras.ops.mean(CrossEntropy(from_logits=True)(y_true, y_pred)))
        dataset = [(x[start : start + 10], y[start : start + 10]) for start in range(0, 50, 10)]
    before = weights_of(model)
    loss, slope = gradient_of(before, x.astype(np.float64), y, counts.astype(np.float64))
    hessian = hessian_of(before, x.astype(np.float64), y, counts.astype(np.float64))
    with open_evaluator((model, model, dataset, None)).products(ProductSettings()) as shares:
        products = Products(shares)
        vector = shares.layout.gaussian(5)
        assert products.loss == pytest.approx(loss, rel=1e-6)
        np.testing.assert_allclose(products.gradient(), slope, atol=1e-6)
        np.testing.assert_allclose(products(vector), hessian @ vector, atol=2e-5 * np.abs(hessian @ vector).max())
        shares.move({name: 1.5 * array for name, array in read_network(model).items()}, None)
        assert Products(shares).loss == pytest.approx(
            gradient_of(1.5 * before, x.astype(np.float64), y, counts.astype(np.float64))[0], rel=1e-6
        )
    np.testing.assert_array_equal(weights_of(model), before)


def test_the_curvature_of_a_checkpoint_with_other_statistics():
    model, (x, y) = small_model(dropout=False), data()
    parameters, rest = parts_of(model)
    state = parameters | rest
    buffers = {name: array + np.float32(0.5) for name, array in rest.items() if "moving" in name}
    settings = CurvatureSettings(top=2, bottom=1, trace_probes=20)
    with InProcessPool(lambda: (model, model, (x, y), None), MeasurementOptions(), plan=PLAN) as pool:
        pool.load(parameters, [parameters], rest)
        tasks = [
            CurvatureTask(number, lambda some=some: (parameters, some), settings)
            for number, some in enumerate((rest, rest | buffers))
        ]
        own, other = pool.run_curvature(tasks)
    assert own.error is None
    for result, some in ((own, {}), (other, buffers)):
        for info, variable in zip(describe_network(model).tensors, model.weights, strict=True):
            variable.assign(some.get(info.name, state[info.name]))
        expected = model.evaluate(x, y, batch_size=50, verbose=0, return_dict=True)["loss"]
        assert result.values.loss == pytest.approx(float(expected), rel=1e-5)
    assert own.values.eigenvalues[0] != pytest.approx(other.values.eigenvalues[0], rel=1e-2)


@pytest.mark.parametrize(
    ("build", "matrix", "message"),
    [
        (perceptron, "ggn", r'matrix must be "hessian" for a Keras network, but is \'ggn\''),
        (lambda: perceptron(loss=CrossEntropy(from_logits=True, reduction="sum")), "hessian",
         r'reduction="sum" beside what regularizers and layers add has no curvature'),
    ],
)  # fmt: skip
def test_what_has_no_products(build, matrix, message):
    model = build()
    evaluator = open_evaluator((model, model, data(), None))
    with pytest.raises(CurvatureError, match=message):
        Products(evaluator.products(ProductSettings(matrix)))


def test_low_precision_is_refused():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4, dtype="bfloat16")])
    model.compile("sgd", CrossEntropy(from_logits=True))
    with pytest.raises(CurvatureError, match="weights are bfloat16, in which derivatives are rounding"):
        open_evaluator((model, model, data(), None)).products(ProductSettings())


def of_policy(policy="float32"):
    keras.config.set_dtype_policy(policy)
    try:
        return small_model(dropout=False)
    finally:
        keras.config.set_dtype_policy("float32")


def test_bfloat16_is_keras_mixed_precision_and_derivatives_stay_in_float32():
    model, mixed = of_policy(), of_policy("mixed_bfloat16")
    policies = [layer.dtype_policy.name for layer in model.layers]
    expected, plain = (own_values((item, item, data(), None), PLAN)[0]["loss"] for item in (mixed, model))
    values, description = own_values((model, model, data(), None), PLAN, precision="bfloat16")
    assert values["loss"] == pytest.approx(expected, rel=1e-6)
    assert expected != pytest.approx(plain, rel=1e-5)
    assert description.plan.precision == "bfloat16"
    with open_evaluator((model, model, data(), None), precision="bfloat16").products(ProductSettings()) as shares:
        assert Products(shares).loss == pytest.approx(plain, rel=1e-6)
    assert [layer.dtype_policy.name for layer in model.layers] == policies == ["float32"] * len(policies)


@pytest.mark.parametrize(
    ("policy", "precision", "message"),
    [
        ("mixed_bfloat16", "bfloat16", "changes nothing: no layer of the network computes in float32"),
        ("float32", "tf32", 'precision="tf32" is not available for keras'),
    ],
)
def test_precisions_that_are_refused(policy, precision, message):
    model = of_policy(policy)
    with pytest.raises(ValueError, match=message):
        open_evaluator((model, model, data(), None), precision=precision)
