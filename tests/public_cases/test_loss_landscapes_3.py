"""marcellodebernardi/loss-landscapes#3: weights of one number for each filter were normalized as filters."""

import numpy as np
import pytest
import torch
from torch import nn

from landscape import random_plane


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_gains_of_weight_normalization_stay():
    torch.manual_seed(0)
    network = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 4)), nn.Tanh(), nn.Linear(4, 3))
    plane = random_plane(network)
    for direction in plane.directions:
        assert not direction["0.parametrizations.weight.original0"].any()
        moved = direction["0.parametrizations.weight.original1"].astype(float)
        weights = network[0].parametrizations.weight.original1.detach().double().numpy()
        np.testing.assert_allclose(np.linalg.norm(moved, axis=1), np.linalg.norm(weights, axis=1), rtol=1e-6)
