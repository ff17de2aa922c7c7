"""Networks that compute with copies of their weights: named where a plane moves the weights and not the copies."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from landscape import MeasurementPlan, evaluate, random_plane

pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
PLAN = MeasurementPlan(batch_size=8, threads=1)
COPIES = "moving these weights changes nothing that the network computes: "


class Layer(nn.Module):
    """A product of two small matrices, which a subclass may keep."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.randn(2, 4))
        self.bias = nn.Parameter(torch.randn(4))

    def weight(self):
        return self.left @ self.right

    def forward(self, inputs):
        return functional.linear(inputs, self.weight(), self.bias)


class WithGraph(Layer):
    """Its copy is made in ``__init__``, and remembers of what."""

    def __init__(self):
        super().__init__()
        self.product = super().weight()

    def weight(self):
        return self.product


class AtFirst(Layer):
    """Its copy is made in the first forward pass of eval mode."""

    product = None

    def weight(self):
        if self.training or self.product is None:
            self.product = super().weight()
        return self.product


class AsBuffer(Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("product", super().weight().detach())

    def weight(self):
        return self.product


class InList(Layer):
    def __init__(self):
        super().__init__()
        self.products = {"eval": [super().weight().detach()]}

    def weight(self):
        return self.products["eval"][0]


class OfAnother(nn.Module):
    """A network that keeps twice the weight of a layer, which it never calls."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.doubled = 2 * self.layer.weight.detach()

    def forward(self, inputs):
        return functional.linear(inputs, self.doubled, self.layer.bias)


class ByVersion(Layer):
    """Its copy is made anew when the weights have changed."""

    version, product = None, None

    def weight(self):
        version = self.left._version, self.right._version
        if version != self.version:
            self.version, self.product = version, super().weight().detach()
        return self.product


class WithoutGraph(Layer):
    """It computes with its weights, and lets nobody differentiate; a table of its own is no copy."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(4))

    @torch.no_grad()
    def weight(self):
        return super().weight() + self.table


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(_, inputs):
        return inputs.round()

    @staticmethod
    def backward(*_):
        raise AssertionError("nobody may differentiate")


class NotDifferentiable(Layer):
    def __init__(self):
        super().__init__()
        self.table = torch.ones(4, 4)

    def weight(self):
        return Rounded.apply(super().weight()) * self.table


class Heads(nn.Module):
    """Of two heads, the loss needs one; a third one is never called. A table lies beside them."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = Layer(), WithoutGraph(), WithoutGraph()
        self.table = torch.randn(4)

    def forward(self, inputs):
        inputs = inputs + self.table
        self.seen = self.second(inputs)
        return self.first(inputs)


class Stateful(AsBuffer):
    """It counts, draws random numbers without using them, and keeps what it saw last."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs):
        self.calls += 1
        self.seen += 1
        torch.rand(3)
        self.last = inputs
        return super().forward(inputs)


def measured(build, *, loss=None, **options):
    """Returns the network, the landscape and the warnings about copies."""
    torch.manual_seed(0)
    network = nn.Sequential(build(), nn.Tanh(), nn.Linear(4, 2)).eval()
    samples = torch.randn(24, 4), torch.randn(24, 2)
    plane = random_plane(network)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call = lambda: (loss or nn.MSELoss(), network, samples, {})  # noqa: E731
        landscape = evaluate(plane, call, size=3, device_ids=[0], progress=False, **options)
    return network, landscape, [str(item.message) for item in caught if COPIES in str(item.message)]


@pytest.mark.parametrize("build", [WithGraph, AtFirst, AsBuffer, InList])
def test_weights_of_which_a_copy_computes_are_named(build):
    _, landscape, (text,) = measured(build)
    assert f"{COPIES}'0.left', '0.right'. Their layers keep other tensors" in text
    assert text in landscape.attributes["notes"]


def test_a_copy_that_lies_in_another_layer():
    _, _, (text,) = measured(OfAnother)
    assert f"{COPIES}'0.layer.weight'." in text


@pytest.mark.parametrize("build", [Layer, ByVersion, WithoutGraph, NotDifferentiable, Heads, nn.Identity])
def test_nothing_is_said_of_others(build):
    _, _, found = measured(build)
    assert found == []


def test_nothing_is_said_where_the_loss_has_no_graph():
    wrong = lambda outputs, targets: ((outputs > 0) != (targets > 0)).float().mean()  # noqa: E731
    _, _, (text,) = measured(AsBuffer, loss=wrong)
    assert "'0.left', '0.right'." in text
    _, _, found = measured(WithoutGraph, loss=wrong)
    assert found == []


@pytest.mark.parametrize("options", [{}, {"seed_each_point": True}])
def test_the_network_stays_as_it_is_and_values_stay_the_same(options, monkeypatch):
    torch.manual_seed(0)
    before = copy.deepcopy(nn.Sequential(Stateful(), nn.Tanh(), nn.Linear(4, 2)).state_dict())
    network, landscape, found = measured(Stateful, plan=PLAN, **options)
    assert len(found) == 1
    drawn = torch.rand(2)
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    monkeypatch.setattr("workers.torch.evaluator.weight_copies_warning", lambda *_: None)
    other, without, _ = measured(Stateful, plan=PLAN, **options)
    assert torch.equal(torch.rand(2), drawn)
    assert network[0].calls == other[0].calls
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())
    np.testing.assert_array_equal(landscape.loss, without.loss)
