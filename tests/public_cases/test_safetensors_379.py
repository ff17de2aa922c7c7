"""safetensors/safetensors#379: which tensors lie in the memory of one another was told by where they begin."""

import pytest
import torch
from torch import nn

from landscape import evaluate, random_plane

DATA = torch.ones(8, 4), torch.ones(8, 9)


class Sliced(nn.Module):
    """The second layer has the last rows of the first one's weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(4, 3)
        self.second.weight = nn.Parameter(self.first.weight.detach()[3:])

    def forward(self, inputs):
        return torch.cat([self.first(inputs), self.second(inputs)], dim=1)


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_a_part_of_another_weight_is_refused_by_name():
    network = Sliced()
    before = network.first.weight.detach().clone()
    with pytest.raises(TypeError, match=r"'first\.weight' and 'second\.weight' share a part of .*clone\(\)"):
        evaluate(
            random_plane(network), lambda: (nn.MSELoss(), network, DATA, {}), size=3, device_ids=[0], progress=False
        )
    assert torch.equal(network.first.weight, before)
