"""pytorch/pytorch#37322: a network with pruned layers cannot be copied with deepcopy."""

import numpy as np
import torch
from torch import nn
from torch.nn.utils import prune

from landscape.paths.alignment import align

INPUTS = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))


def build(seed):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    prune.l1_unstructured(network[0], "weight", 0.5)
    network(INPUTS)
    return network


def test_it_is_aligned_and_stays_as_it_was():
    one, other = build(0), build(1)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    found = align(other, to=one, example=INPUTS)
    assert found.distance_after <= found.distance_before
    assert found.verified < 1e-5
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())
    twin = build(2)
    twin.load_state_dict({name: torch.from_numpy(np.asarray(array)) for name, array in found.weights.items()})
    torch.testing.assert_close(twin(INPUTS), other(INPUTS), rtol=1e-5, atol=1e-6)
