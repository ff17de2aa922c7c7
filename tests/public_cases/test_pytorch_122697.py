"""pytorch/pytorch#122697: reading a data set of which no order is random moves the process's random numbers."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from landscape import evaluate, random_plane

pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")


class Numbers(IterableDataset):
    def __iter__(self):
        return iter([(torch.ones(4) * number, torch.ones(2)) for number in range(12)])


def test_random_numbers_go_on_as_if_nothing_was_measured():
    loader = DataLoader(Numbers(), batch_size=4)
    torch.manual_seed(7)
    expected = torch.rand(3)
    network, plane = nn.Linear(4, 2), None
    plane = random_plane(network)
    torch.manual_seed(7)
    evaluate(plane, lambda: (nn.MSELoss(), network, loader, {}), size=3, device_ids=[0], progress=False)
    assert torch.equal(torch.rand(3), expected)
