"""pytorch/pytorch#65495: an averaged network kept the first one's buffers, so that it belonged to no network."""

import copy

import pytest
import torch
from torch import nn

from landscape.functions import barrier

INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))


class Scaled(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 2), nn.BatchNorm1d(2)
        self.register_buffer("scale", torch.tensor([scale, 2 * scale]))

    def forward(self, inputs):
        return self.norm(self.linear(inputs)) * self.scale


def test_every_buffer_of_the_last_network_is_its_own():
    torch.manual_seed(0)
    a, b = Scaled().eval(), Scaled(3.0).eval()
    b.norm.running_mean += 0.5
    found = barrier(
        a, b, lambda: (nn.MSELoss(), Scaled(), (INPUTS, TARGETS), {}), points=3, device_ids=[0], progress=False
    )
    wide = copy.deepcopy(b).double()
    expected = nn.functional.mse_loss(wide(INPUTS.double()), TARGETS.double()).item()
    assert found.landscape.loss[-1] == pytest.approx(expected, rel=1e-5)
