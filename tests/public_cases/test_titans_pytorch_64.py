"""lucidrains/titans-pytorch#64: an expanded parameter, whose elements are one number in memory, cannot be moved."""

import pytest
import torch
from torch import nn

from landscape import random_plane


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_it_is_refused_by_name_and_stays_as_it_is():
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    network[0].bias = nn.Parameter(torch.full((1,), 0.25).expand(6))
    with pytest.raises(TypeError, match=r"'0\.bias' has elements that share memory.*clone\(\)"):
        random_plane(network)
    assert network[0].bias.stride() == (0,)
