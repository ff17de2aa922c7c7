"""Networks whose eval() and train() are code of their own."""

import copy

import pytest
import torch
from torch import nn

from landscape import evaluate, random_plane
from landscape.functions import measure_curvature
from workers.errors import CallbackFunctionError
from workers.torch.snapshot import evaluate_mode

# Networks this small have few random directions to choose from.
pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
HOW = {"device_ids": [0], "progress": False}


class Merging(nn.Linear):
    """A layer that adds a product of two small matrices to its weight in eval mode, and takes it away again."""

    def __init__(self, size, out):
        super().__init__(size, out)
        self.weight.requires_grad_(False)
        self.small, self.merged = nn.Parameter(torch.ones(1, size)), False

    def train(self, mode=True):
        super().train(mode)
        if self.merged == mode:
            self.weight.data += (-1 if mode else 1) * self.small.data
            self.merged = not mode
        return self

    def forward(self, inputs):
        return nn.functional.linear(inputs, self.weight if self.merged else self.weight + self.small, self.bias)


class Replacing(nn.Linear):
    """A layer that has another parameter in eval mode."""

    def train(self, mode=True):
        if self.training != mode:
            self.weight = nn.Parameter((self.weight.detach() + (-1 if mode else 1)).contiguous())
        return super().train(mode)


class Counting(nn.Linear):
    """A layer that notes its changes of mode and leaves its weights alone."""

    def train(self, mode=True):
        self.calls = [*getattr(self, "calls", []), mode]
        return super().train(mode)


def callback(network):
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(16, 4, generator=generator), torch.randn(16, 2, generator=generator)
    return lambda: (nn.MSELoss(), network, samples, {})


@pytest.mark.parametrize("training", [True, False])
def test_eval_that_changes_weights_is_refused_and_undone(training):
    torch.manual_seed(0)
    network = nn.Sequential(Merging(4, 4), nn.ReLU(), nn.Linear(4, 2)).train(training)
    before, outputs = copy.deepcopy(network.state_dict()), network(torch.ones(1, 4))
    plane = random_plane(network)
    if training:
        for measure in (
            lambda: evaluate(plane, callback(network), size=3, **HOW),
            lambda: measure_curvature(network, callback(network), **HOW),
        ):
            with pytest.raises(
                CallbackFunctionError, match=r"eval\(\) changes its weights \('0\.weight'\).*merge_weights"
            ):
                measure()
            assert [layer.training for layer in network] == [True, True, True]
            assert not network[0].merged
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    for mode in (False, True):
        network.train(mode)
        torch.testing.assert_close(network(torch.ones(1, 4)), outputs)
    torch.testing.assert_close(network[0].weight, before["0.weight"] - (0 if training else 1))


def test_eval_that_replaces_weights_is_refused_and_undone():
    network = nn.Sequential(Replacing(4, 4), nn.Linear(4, 2))
    before, held = copy.deepcopy(network.state_dict()), list(network.parameters())
    with pytest.raises(CallbackFunctionError, match=r"eval\(\) changes its weights \('0\.weight'\)"):
        evaluate(random_plane(network), callback(network), size=3, **HOW)
    assert network[0].training
    assert all(one is other for one, other in zip(network.parameters(), held, strict=True))
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)


def test_weights_that_are_no_numbers_or_lie_elsewhere_are_no_change():
    network = nn.Sequential(Counting(4, 4), nn.Linear(4, 2))
    with torch.no_grad():
        network[1].bias[0] = torch.nan
    for item in (network, nn.Sequential(Counting(4, 4), nn.Linear(4, 2, device="meta"))):
        evaluate_mode(item)
        assert not item.training
