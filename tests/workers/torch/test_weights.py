"""Weights that several parameters lie in the memory of: derivatives by them are those of one variable."""

import contextlib

import numpy as np
import pytest
import torch
from curve_tasks import curve_task
from torch import nn
from worker_cases import evaluator_of, seeded

from collectors.networks.readers import read_network
from workers.curvature.products import Products, ProductSettings
from workers.measuring.curve_fitting import CurveSamples
from workers.torch.derivatives.curve_fitting import TorchCurveFitter

INPUTS = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(40) % 3


class Tied(nn.Module):
    """Two layers with the same weight, the second perhaps with its transpose."""

    def __init__(self, tie, *, transposed):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.transposed = transposed
        if tie is not None:
            self.second.weight = tie(self.first.weight)

    def forward(self, inputs):
        # Without a weight of its own, the second layer is computed from the first one's, which is the oracle.
        weight = self.first.weight.t() if self.transposed else self.first.weight
        second = self.second.weight if hasattr(self.second, "weight") else weight
        hidden = nn.functional.linear(torch.tanh(self.first(inputs)), second, self.second.bias)
        return self.last(torch.tanh(hidden))


def oracle(*, transposed):
    network = seeded(lambda: Tied(None, transposed=transposed))
    del network.second.weight
    return network


def frozen(weight):
    return nn.Parameter(weight.data, requires_grad=False)


WAYS = {
    "the same parameter": (lambda weight: weight, False),
    "the same memory": (lambda weight: nn.Parameter(weight.data), False),
    "transposed": (lambda weight: nn.Parameter(weight.data.t()), True),
    "one of them frozen": (frozen, False),
}


def build(way):
    tie, transposed = WAYS[way]
    return seeded(lambda: Tied(tie, transposed=transposed)), oracle(transposed=transposed)


def product(network, matrix, inputs=INPUTS):
    with (
        contextlib.closing(evaluator_of(nn.CrossEntropyLoss(), network, (inputs, TARGETS))) as evaluator,
        evaluator.products(ProductSettings(matrix)) as shares,
    ):
        products = Products(shares)
        return shares.layout.names, products(shares.layout.gaussian(3)), products.gradient()


@pytest.mark.parametrize("matrix", ["hessian", "ggn"])
@pytest.mark.parametrize("way", WAYS)
def test_derivatives_are_those_of_one_weight(way, matrix):
    network, wanted = build(way)
    trainable = [parameter.requires_grad for parameter in network.parameters()]
    found, expected = product(network, matrix), product(wanted, matrix)
    assert found[0] == expected[0]
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        assert np.abs(other).max() > 1e-3
    assert [parameter.requires_grad for parameter in network.parameters()] == trainable
    assert network.second.weight.data_ptr() == network.first.weight.data_ptr()


@pytest.mark.parametrize("way", WAYS)
def test_low_precision_is_widened_together(way):
    network, wanted = (item.bfloat16() for item in build(way))
    if way != "the same parameter":  # each parameter was converted by itself
        network.second.weight.data = network.first.weight.data.t() if way == "transposed" else network.first.weight.data
    found, expected = (product(item, "hessian", INPUTS.bfloat16())[1] for item in (network, wanted))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    assert network.first.weight.dtype == network.second.weight.dtype == torch.bfloat16
    assert network.second.weight.data_ptr() == network.first.weight.data_ptr()


@pytest.mark.parametrize("way", WAYS)
def test_bends_follow_the_gradient_by_one_weight(way):
    slopes = []
    for network in build(way):
        evaluator = evaluator_of(nn.CrossEntropyLoss(), network, (INPUTS, TARGETS))
        first = read_network(network)
        task = curve_task(evaluator, first, {name: value + 0.3 for name, value in first.items()})
        samples = CurveSamples(evaluator._main.samples, False, task.settings)
        with contextlib.closing(TorchCurveFitter(evaluator._differentiated(), samples, task)) as fitter:
            bends = np.full((1, sum(value.size for value in first.values())), 0.1, np.float32)
            slopes.append(fitter.gradient(bends, 0.4, samples.batch(0)[0])[1])
        evaluator.close()
    np.testing.assert_allclose(*slopes, rtol=1e-4, atol=1e-6)
    assert np.abs(slopes[0]).max() > 1e-3
