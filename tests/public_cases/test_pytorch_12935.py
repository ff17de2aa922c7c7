"""pytorch/pytorch#12935: going through a data set that is only measured changed what was drawn after it."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from landscape import evaluate, random_plane

DATA = TensorDataset(torch.ones(8, 4), torch.arange(8) % 3)


def with_noise(items):
    inputs, targets = zip(*items, strict=True)
    random.random()
    np.random.rand()  # noqa: NPY002
    torch.rand(1)
    return torch.stack(inputs), torch.stack(targets)


def drawn():
    return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002


def seed():
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_what_a_collate_function_draws_is_put_back():
    network = nn.Linear(4, 3)
    plane, loader = random_plane(network), DataLoader(DATA, batch_size=4, collate_fn=with_noise)
    seed()
    expected = drawn()
    seed()
    evaluate(plane, lambda: (nn.CrossEntropyLoss(), network, loader, {}), size=3, device_ids=[0], progress=False)
    assert drawn() == expected
