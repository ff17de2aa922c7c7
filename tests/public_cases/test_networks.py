"""Reports of other projects on networks: weights that share memory, layers with a state, buffers, hooks."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from landscape import evaluate, line_between, random_plane
from workers.errors import CallbackFunctionError

pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
INPUTS, TARGETS = torch.ones(8, 4), torch.arange(8) % 3
HOW = {"size": 3, "device_ids": [0], "progress": False}


def measure(network, loss=None, data=(INPUTS, TARGETS)):
    evaluate(random_plane(network), lambda: (loss or nn.CrossEntropyLoss(), network, data, {}), **HOW)


class Prepared(nn.Linear):
    """A layer that prepares something when its mode changes."""

    prepared_for_training = True

    def train(self, mode=True):
        self.prepared_for_training = mode
        return super().train(mode)


def test_all_layers_are_in_the_modes_that_they_were_in():
    """Lightning-AI/pytorch-lightning#18930: after an evaluation, layers were in another mode than before."""
    network = nn.Sequential(Prepared(4, 4), nn.Dropout(), Prepared(4, 3))
    network[1].eval()
    measure(network)
    assert [layer.training for layer in network] == [True, False, True]
    assert network[0].prepared_for_training
    assert network[2].prepared_for_training


class LowRank(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.weight.requires_grad_(False)
        self.left, self.right = nn.Parameter(torch.ones(3, 1)), nn.Parameter(torch.ones(1, 4))
        self.merged = False

    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            self.weight.data += (-1 if mode else 1) * (self.left @ self.right).data
            self.merged = not mode
        return self

    def forward(self, inputs):
        return nn.functional.linear(inputs, self.weight if self.merged else self.weight + self.left @ self.right)


def test_a_network_whose_eval_changes_weights_is_refused_and_left_as_it_was():
    """microsoft/LoRA#61: eval() adds the low-rank part to the weight, and what is trained afterwards moves nothing."""
    network = LowRank()
    before = network.weight.clone()
    with pytest.raises(CallbackFunctionError, match=r"eval\(\) changes its weights \('weight'\)"):
        measure(network, nn.MSELoss(), (INPUTS, torch.ones(8, 3)))
    assert torch.equal(network.weight, before)
    assert network.training


class Sliced(nn.Module):
    """The second layer has the last rows of the first one's weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(4, 3)
        self.second.weight = nn.Parameter(self.first.weight.detach()[3:])

    def forward(self, inputs):
        return torch.cat([self.first(inputs), self.second(inputs)], dim=1)


def test_a_part_of_another_weight_is_refused_by_name():
    """safetensors/safetensors#379: which tensors lie in the memory of one another was told by where they begin."""
    network = Sliced()
    before = network.first.weight.detach().clone()
    with pytest.raises(TypeError, match=r"'first\.weight' and 'second\.weight' share a part of .*clone\(\)"):
        measure(network, nn.MSELoss(), (INPUTS, torch.ones(8, 9)))
    assert torch.equal(network.first.weight, before)


def test_an_expanded_parameter_is_refused_by_name_and_stays_as_it_is():
    """lucidrains/titans-pytorch#64: an expanded parameter, whose elements are one number in memory, cannot be moved."""
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    network[0].bias = nn.Parameter(torch.full((1,), 0.25).expand(6))
    with pytest.raises(TypeError, match=r"'0\.bias' has elements that share memory.*clone\(\)"):
        random_plane(network)
    assert network[0].bias.stride() == (0,)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_layer_is_told_what_to_do():
    """galilai-group/stable-pretraining#189: a network with a lazy layer ended in an error from within PyTorch."""
    plane, lazy = random_plane(nn.Sequential(nn.Linear(4, 3))), nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(TypeError, match=r"'0\.weight' has no shape yet \(a lazy layer\); run one batch through"):
        evaluate(plane, lambda: (nn.CrossEntropyLoss(), lazy, (INPUTS, TARGETS), {}), **HOW)


def test_gains_of_weight_normalization_stay():
    """marcellodebernardi/loss-landscapes#3: weights of one number for each filter were normalized as filters."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3))
    for direction in random_plane(network).directions:
        assert not direction["0.parametrizations.weight.original0"].any()
        moved = direction["0.parametrizations.weight.original1"].astype(float)
        weights = network[0].parametrizations.weight.original1.detach().double().numpy()
        np.testing.assert_allclose(np.linalg.norm(moved, axis=1), np.linalg.norm(weights, axis=1), rtol=1e-6)


def with_spectral_norm(seed):
    torch.manual_seed(seed)
    return nn.Sequential(spectral_norm(nn.Linear(6, 5)), nn.Linear(5, 2)).eval()


def test_between_networks_the_vectors_of_spectral_normalization_have_length_one():
    """NCAR/miles-credit#394: averaged vectors of spectral normalization were shorter, and predictions exploded."""
    a, b = with_spectral_norm(0), with_spectral_norm(1)
    point = line_between(a, b).point((0.5,))
    vectors = [name for name in point if name.endswith(("_u", "_v"))]
    assert len(vectors) == 2
    for name in vectors:
        assert np.linalg.norm(point[name]) == pytest.approx(1, abs=1e-6)
    between = copy.deepcopy(a)
    between.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in point.items()})
    # A quotient of the longest vector and what it is measured by.
    assert torch.linalg.matrix_norm(between[0].weight.detach(), 2) < 3
