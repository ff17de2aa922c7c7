"""The trace from losses alone: against traces that are known, where nothing can be differentiated."""

import numpy as np
import pytest
import torch
from many_perceptrons import perceptron, train
from torch import nn

from collectors.networks.weight_space import numpy_dtype
from landscape.functions import measure_curvature, trace_by_lines
from workers.errors import CurvatureError
from workers.function_evaluator import FunctionEvaluator

MATRIX = np.random.default_rng(0).standard_normal((12, 12))
MATRIX = MATRIX @ MATRIX.T
POINT = {"x": np.linspace(-1, 1, 5), "y": np.linspace(1, 2, 7).reshape(1, 7)}


def bowl():
    def loss(arrays):
        flat = np.concatenate([arrays["x"], arrays["y"].ravel()])
        return 0.5 * flat @ MATRIX @ flat

    return FunctionEvaluator(loss, POINT)


def test_a_functions_trace_has_an_interval_that_covers_it():
    found = [trace_by_lines(POINT, bowl, 20, seed=seed, device_ids=[0]) for seed in range(20)]
    assert sum(trace.low <= np.trace(MATRIX) <= trace.high for trace in found) >= 17
    assert abs(np.mean([trace.value for trace in found]) / np.trace(MATRIX) - 1) < 0.05
    assert trace_by_lines(POINT, bowl, 20, device_ids=[0]).value == found[0].value


def test_each_line_is_the_matrix_between_its_direction():
    trace = trace_by_lines({"x": POINT["x"], "y": POINT["y"]}, bowl, 3, device_ids=[0])
    assert (trace.samples >= -1e-6).all()
    assert np.isnan(trace_by_lines(POINT, bowl, 1, device_ids=[0]).low)


@pytest.mark.slow
def test_a_network_in_float32_beside_its_derivatives():
    (weights,) = train("large", 1, steps=30)
    lines = trace_by_lines(weights, perceptron, 60, device_ids=[0])
    exact = measure_curvature(weights, perceptron, top=1, trace_probes=60, device_ids=[0], progress=False)
    low, high = exact.trace_interval[0]
    assert lines.low < high
    assert low < lines.high
    assert lines.value == pytest.approx(exact.trace[0], rel=0.2)


def test_a_loss_that_is_not_a_number():
    with pytest.raises(CurvatureError, match="not a finite number"):
        trace_by_lines({"x": POINT["x"] * np.nan, "y": POINT["y"]}, bowl, device_ids=[0])
    network = nn.Linear(3, 1)
    network.weight.data[0, 0] = np.nan
    data = torch.ones(8, 3), torch.arange(8.0)[:, None]
    with pytest.raises(CurvatureError, match="some of which are NaN or infinite"):
        trace_by_lines(network, lambda: (nn.MSELoss(), nn.Linear(3, 1), data, {}), device_ids=[0])
    with pytest.raises(ValueError, match="lines must be"):
        trace_by_lines(POINT, bowl, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_steps_are_more_than_what_weights_are_rounded_to(dtype):
    """Of a diagonal matrix each line is the trace."""
    scales, random = np.random.default_rng(0).uniform(0, 1, 200), np.random.default_rng(1)
    point = {"w": random.standard_normal(200).astype(numpy_dtype(dtype))}
    lowest = point["w"].astype(np.float64) + 0.1 * random.standard_normal(200)

    def steep():
        return FunctionEvaluator(lambda at: 0.5 * scales @ (at["w"].astype(np.float64) - lowest) ** 2, point)

    assert trace_by_lines(point, steep, 10, device_ids=[0]).value == pytest.approx(scales.sum(), rel=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_where_the_loss_is_zero_the_step_does_not_drown_in_the_weights(dtype):
    """A network that fits all samples has a curvature like every other one."""
    point = {"w": np.random.default_rng(1).normal(size=12).astype(dtype)}

    def fitted():
        def loss(arrays):
            away = arrays["w"].astype(np.float64) - point["w"]
            return 0.5 * away @ MATRIX @ away

        return FunctionEvaluator(loss, point)

    trace = trace_by_lines(point, fitted, 40, device_ids=[0])
    assert trace.low <= np.trace(MATRIX) <= trace.high
    assert trace.low > 0.5 * np.trace(MATRIX)
