"""Reports of other projects on several networks: what lies between them, and alignments."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from digits_networks import build, callback_fn, own_loss, train
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import spectral_norm

from landscape import Measure, line_between
from landscape.functions import barrier, connect
from landscape.paths.alignment import align

QUIET = {"device_ids": [0], "progress": False}
INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))


def test_a_curve_ends_at_its_networks():
    """timgaripov/dnn-mode-connectivity#8: BatchNorm's statistics made copies of other losses."""
    a, b = (train(build(seed), epochs=1, seed=seed) for seed in (0, 1))
    path = connect(a, b, callback_fn, steps=2, **QUIET)
    found = Measure(callback_fn, **QUIET).barrier(path, points=3).landscape.loss
    assert found[[0, -1]].tolist() == pytest.approx([own_loss(a), own_loss(b)], rel=1e-5)
    assert np.isfinite(found).all()


# The losses of 28 samples rise between the networks, those of 32 fall.
RISES = np.where(np.arange(60) % 15 < 7, 1.0, -1.0)
LINE = torch.ones(60, 1), torch.from_numpy(10 * RISES).float()[:, None]


class Squared(nn.Module):
    def __init__(self, weight=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([float(weight)]))

    def forward(self, inputs):
        return inputs * self.weight**2


def test_a_barrier_of_zero_says_how_high_it_may_be():
    """NVIDIA/garak#2076: where nothing was found, an interval of zero width read as certainty."""
    found = barrier(Squared(-1), Squared(1), lambda: (nn.L1Loss(), Squared(), LINE, {}), points=3, **QUIET)
    assert found.height == 0
    assert "0 ± 0" not in repr(found)
    # At t = 0.5 the outputs are 0, by one farther from targets of 10 and nearer to those of -10.
    expected = RISES.mean() + 1.6449 * RISES.std(ddof=1) / math.sqrt(60)
    assert expected > 0.1
    assert found.limit == pytest.approx(expected, abs=1e-4)


def with_weight_norm():
    torch.manual_seed(0)
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 3))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_the_planted_order_is_found_with_the_weight_norm_of_before():
    """pytorch/pytorch#28594: a network with the weight norm of before cannot be copied with deepcopy."""
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    one, other = with_weight_norm(), with_weight_norm()
    own, planted = dict(one.named_parameters()), dict(other.named_parameters())
    with torch.no_grad():
        for name, axis in (("0.weight_v", 0), ("0.weight_g", 0), ("0.bias", 0), ("2.weight", 1)):
            planted[name].copy_(own[name].index_select(axis, order))
    one(INPUTS)
    assert align(other, to=one, example=INPUTS).distance_after == pytest.approx(0, abs=1e-6)


def pruned(seed):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    prune.l1_unstructured(network[0], "weight", 0.5)
    network(INPUTS)
    return network


def test_a_pruned_network_is_aligned_and_stays_as_it_was():
    """pytorch/pytorch#37322: a network with pruned layers cannot be copied with deepcopy."""
    one, other = pruned(0), pruned(1)
    before = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    found = align(other, to=one, example=INPUTS)
    assert found.distance_after <= found.distance_before
    assert found.verified < 1e-5
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.state_dict().items())
    twin = pruned(2)
    twin.load_state_dict({name: torch.from_numpy(np.asarray(array)) for name, array in found.weights.items()})
    torch.testing.assert_close(twin(INPUTS), other(INPUTS), rtol=1e-5, atol=1e-6)


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
