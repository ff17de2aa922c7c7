"""NCAR/miles-credit#394: averaged vectors of spectral normalization were shorter than one, and predictions exploded."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from landscape import line_between


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(spectral_norm(nn.Linear(6, 5)), nn.Linear(5, 2)).eval()


def test_between_networks_the_vectors_have_length_one():
    a, b = network(0), network(1)
    point = line_between(a, b).point((0.5,))
    vectors = [name for name in point if name.endswith(("_u", "_v"))]
    assert len(vectors) == 2
    for name in vectors:
        assert np.linalg.norm(point[name]) == pytest.approx(1, abs=1e-6)
    between = copy.deepcopy(a)
    between.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in point.items()})
    # A quotient of the longest vector and what it is measured by.
    assert torch.linalg.matrix_norm(between[0].weight.detach(), 2) < 3
