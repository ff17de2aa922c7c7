"""PrimeIntellect-ai/OpenDiloco#42: an evaluation on a stream without an end never ended."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from landscape import evaluate, random_plane
from workers.errors import SamplesError

pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")


class Endless(IterableDataset):
    def __iter__(self):
        return itertools.repeat((torch.zeros(1).expand(3_000_000, 1), torch.zeros(1).expand(3_000_000, 4)))


def test_it_ends_in_an_error_that_names_num_samples():
    network, loader = nn.Linear(1, 4), DataLoader(Endless(), batch_size=None)
    with pytest.raises(SamplesError, match=r"more than 10,000,000 samples.*num_samples="):
        evaluate(
            random_plane(network), lambda: (nn.MSELoss(), network, loader, {}), size=3, device_ids=[0], progress=False
        )
