"""Layers that hold a weight which was computed of others can be aligned: pruning, and the weight norm of before."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from landscape import align

INPUTS = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))


def pruned(network):
    prune.l1_unstructured(network[0], "weight", 0.5)
    network(INPUTS)
    return network


def build(seed, change):
    torch.manual_seed(seed)
    return change(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_the_planted_order_of_a_normed_network_is_found():
    one = build(0, lambda network: nn.Sequential(nn.utils.weight_norm(network[0]), *network[1:]))
    other, order = copy.deepcopy(build(0, lambda network: network)), torch.tensor([3, 0, 5, 1, 4, 2])
    other = nn.Sequential(nn.utils.weight_norm(other[0]), *other[1:])
    with torch.no_grad():
        for name, axis in (("0.weight_v", 0), ("0.weight_g", 0), ("0.bias", 0), ("2.weight", 1)):
            parameter = dict(other.named_parameters())[name]
            parameter.copy_(dict(one.named_parameters())[name].index_select(axis, order))
    one(INPUTS)
    found = align(other, to=one, example=INPUTS)
    assert found.distance_after == pytest.approx(0, abs=1e-6)


def test_a_pruned_network_is_aligned_and_stays_as_it_was():
    one, other = build(0, pruned), build(1, pruned)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    found = align(other, to=one, example=INPUTS)
    assert found.distance_after <= found.distance_before
    assert found.verified < 1e-5
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())
    twin = build(2, pruned)
    twin.load_state_dict({name: torch.from_numpy(np.asarray(array)) for name, array in found.weights.items()})
    torch.testing.assert_close(twin(INPUTS), other(INPUTS), rtol=1e-5, atol=1e-6)
