"""lucidrains/phenaki-pytorch#21: buffers that are no statistics, such as positions, were averaged like weights."""

import copy

import pytest
import torch
from torch import nn

from landscape.functions import barrier

INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))


class Ordered(nn.Module):
    def __init__(self, order=(0, 1, 2, 3)):
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.register_buffer("order", torch.tensor(order))

    def forward(self, inputs):
        return self.last(inputs[:, self.order])


def own_loss(network):
    with torch.no_grad():
        return nn.functional.mse_loss(copy.deepcopy(network).double()(INPUTS.double()), TARGETS.double()).item()


@pytest.mark.filterwarnings("ignore:the buffers 'order' .*differ between the networks")
def test_each_end_has_its_own_and_what_lies_between_is_said():
    torch.manual_seed(0)
    a, b = Ordered(), Ordered((3, 0, 2, 1))
    found = barrier(
        a, b, lambda: (nn.MSELoss(), Ordered(), (INPUTS, TARGETS), {}), points=3, device_ids=[0], progress=False
    ).landscape
    assert found.loss[[0, -1]].tolist() == pytest.approx([own_loss(a), own_loss(b)], rel=1e-5)
    assert any("'order'" in note for note in found.attributes["notes"])
