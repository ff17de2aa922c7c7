"""NVIDIA/garak#2076: where nothing was found, an interval of zero width read as certainty."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from landscape.functions import barrier

# The losses of 28 samples rise between the networks, those of 32 fall.
RISES = np.where(np.arange(60) % 15 < 7, 1.0, -1.0)
DATA = torch.ones(60, 1), torch.from_numpy(10 * RISES).float()[:, None]


class Squared(nn.Module):
    def __init__(self, weight=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([float(weight)]))

    def forward(self, inputs):
        return inputs * self.weight**2


def test_a_barrier_of_zero_says_how_high_it_may_be():
    found = barrier(
        Squared(-1), Squared(1), lambda: (nn.L1Loss(), Squared(), DATA, {}), points=3, device_ids=[0], progress=False
    )
    assert found.height == 0
    assert "0 ± 0" not in repr(found)
    # At t = 0.5 the outputs are 0, by one farther from targets of 10 and nearer to those of -10.
    expected = RISES.mean() + 1.6449 * RISES.std(ddof=1) / math.sqrt(60)
    assert expected > 0.1
    assert found.limit == pytest.approx(expected, abs=1e-4)
