"""Keras: curves between two networks, on each back end, against Adam and gradients in float64 in NumPy."""

import keras
import numpy as np
import pytest
from cases import open_evaluator
from curve_tasks import curve_task, fitted_step_by_step
from keras_cases import QUIET, data, small_model
from test_keras_products import gradient_of, perceptron, weights_of

from collectors.networks.readers import describe_network, read_network
from landscape import Measure, evaluate
from landscape.functions import connect
from workers.errors import CurveError
from workers.measuring.curve_fitting import CurveSamples

pytestmark = QUIET

HERE = {"device_ids": [0], "progress": False}
LONG = 1e9


def another(state, seed=0):
    random = np.random.default_rng(seed)
    return {
        name: array + 0.5 * random.standard_normal(array.shape).astype("f") if array.dtype == "f" else array
        for name, array in state.items()
    }


def fitted_in_float64(first, last, evaluator, settings):
    """Returns the bend and the losses of Bezier curves by Adam, as Kingma and Ba write it."""
    x, y = (np.asarray(part) for part in data())
    samples = CurveSamples(evaluator._main.samples, False, settings)
    bend, mean, square, losses = (first + last) / 2, 0.0, 0.0, []
    for step in range(settings.steps):
        t = settings.place(step)
        rows = settings.order(step // (50 // settings.batch_size), 50)
        start = step % (50 // settings.batch_size) * settings.batch_size
        rows = rows[start : start + settings.batch_size]
        assert samples.batch(step)[0].size == len(rows)
        point = (1 - t) ** 2 * first + 2 * t * (1 - t) * bend + t**2 * last
        loss, slope = gradient_of(point, x[rows].astype(np.float64), y[rows], np.ones(len(rows)))
        slope = 2 * t * (1 - t) * slope
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        rate = settings.learning_rate * (1 - step / settings.steps)
        bend = bend - rate * (mean / (1 - 0.9 ** (step + 1))) / (np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8)
        losses.append(loss)
    return bend, losses


def test_a_curve_is_that_of_float64_however_it_is_cut():
    model = perceptron()
    state, before = read_network(model), weights_of(model)
    evaluator = open_evaluator((model, model, data(), None))
    task = curve_task(evaluator, state, another(state), steps=10, batch_size=20, learning_rate=0.02)
    ends = [np.concatenate([part[info.name].ravel() for info in describe_network(model).trainable]).astype(np.float64)
            for part in (task.first, task.last)]  # fmt: skip
    bend, losses = fitted_in_float64(*ends, evaluator, task.settings)
    whole = evaluator.fit_curve(task, None, LONG)
    np.testing.assert_allclose(whole.bends[0], bend, atol=2e-5)
    np.testing.assert_allclose(whole.losses, losses, rtol=1e-5)
    np.testing.assert_array_equal(fitted_step_by_step(evaluator, task).bends, whole.bends)
    # The plane that was loaded is still there, and the network goes back to what it was.
    assert evaluator.measure(np.zeros((1, 1)))["loss"][0] == pytest.approx(
        gradient_of(ends[0], np.float64(data()[0]), data()[1], np.ones(50))[0], rel=1e-5
    )
    evaluator.close()
    np.testing.assert_array_equal(weights_of(model), before)


def test_batch_normalization_computes_with_the_batch_and_keeps_its_statistics():
    model = small_model(dropout=False)
    state = read_network(model)
    evaluator = open_evaluator((model, model, data(), None))
    task = curve_task(evaluator, state, another(state), steps=2, batch_size=25, seed=4)
    found = evaluator.fit_curve(task, None, LONG)
    x, y = data()
    t, rows = task.settings.place(0), task.settings.order(0, 50)[:25]
    for info, variable in zip(describe_network(model).tensors, model.weights, strict=True):
        # Before the first step the bend is in the middle, so that the point lies on the line.
        variable.assign(state[info.name] + t * (task.last.get(info.name, state[info.name]) - state[info.name]))
    expected = model.compute_loss(x[rows], y[rows], model(x[rows], training=True))
    assert found.losses[0] == pytest.approx(float(keras.ops.convert_to_numpy(expected)), rel=1e-5)
    evaluator.close()
    for name, array in read_network(model).items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)
    with pytest.raises(CurveError, match="batches of at least two samples"):
        evaluator.fit_curve(curve_task(evaluator, state, another(state), batch_size=1), None, LONG)


def test_what_has_no_curve():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, dtype="bfloat16")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    state = read_network(model)
    evaluator = open_evaluator((model, model, data(), None))
    with pytest.raises(CurveError, match="weights are bfloat16, in which derivatives are rounding"):
        evaluator.fit_curve(curve_task(evaluator, state, state), None, LONG)
    model = perceptron()
    state = read_network(model)
    evaluator = open_evaluator((model, model, data(), None))
    task = curve_task(evaluator, state, another(state), steps=40, learning_rate=1e30)
    with pytest.raises(CurveError, match=r"not finite at t = 0\.\d+ of the curve, in step \d+ of 40"):
        evaluator.fit_curve(task, None, LONG)


def test_along_a_curve_statistics_are_recalibrated_and_the_loss_is_lower():
    def build():
        model = small_model(dropout=False)
        return model, model, data(), {}

    first = build()[0]
    last = another(read_network(first), seed=1)
    path = connect(first, last, build, steps=40, batch_size=25, learning_rate=0.05, **HERE)
    curved = evaluate(path.line(), build, size=5, **HERE)
    assert curved.attributes["buffers"] == "recalibrate"
    straight = Measure(build, **HERE).barrier(first, last, points=5).landscape
    assert straight.attributes["buffers"] == "recalibrate"
    assert (curved.loss[1:-1] < straight.loss[1:-1] - 0.1).all()
