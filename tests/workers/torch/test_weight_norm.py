"""Weight normalization has second derivatives, which are those of its formula."""

import contextlib

import numpy as np
import pytest
import torch
from torch import nn
from worker_cases import evaluator_of, seeded

from workers.curvature.measuring import check_products
from workers.curvature.products import Products, ProductSettings
from workers.torch.weight_norm import PlainWeightNorm

INPUTS = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.arange(30) % 3
MAKERS = {
    "parametrization": nn.utils.parametrizations.weight_norm,
    "of before": nn.utils.weight_norm,
    "another axis": lambda layer: nn.utils.parametrizations.weight_norm(layer, dim=1),
    "of the whole": lambda layer: nn.utils.parametrizations.weight_norm(layer, dim=None),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")


def build(name):
    return seeded(lambda: nn.Sequential(MAKERS[name](nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3))).double()


def gradient(network, vector, like):
    """Returns the gradient at some weights, by first derivatives alone."""
    with torch.no_grad():
        nn.utils.vector_to_parameters(vector, like)
    loss = nn.functional.cross_entropy(network(INPUTS), TARGETS)
    return torch.cat([item.reshape(-1) for item in torch.autograd.grad(loss, like)])


@pytest.mark.parametrize("name", MAKERS)
def test_values_are_those_of_pytorch(name):
    network = build(name)
    expected = network(INPUTS)
    with PlainWeightNorm():
        torch.testing.assert_close(network(INPUTS), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_products_are_differences_of_gradients(name):
    network = build(name)
    with (
        contextlib.closing(evaluator_of(nn.CrossEntropyLoss(), network, (INPUTS, TARGETS))) as evaluator,
        evaluator.products(ProductSettings()) as shares,
    ):
        products = Products(shares)
        check_products(products, 0)
        vector = shares.layout.gaussian(3).astype(np.float64)
        found, order = products(vector), shares.layout.names
    named = dict(network.named_parameters())
    parameters = [named[key] for key in order]
    here, along = nn.utils.parameters_to_vector(parameters).detach(), 1e-5 * torch.from_numpy(vector)
    after, before = (gradient(network, here + sign * along, parameters) for sign in (1, -1))
    np.testing.assert_allclose(found, (after - before) / 2e-5, rtol=1e-5, atol=1e-8)
    assert np.abs(found).max() > 1e-2
