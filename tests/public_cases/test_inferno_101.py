"""inferno-pytorch/inferno#101: batches were counted by their first axis, which is time for sequences."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from landscape import evaluate, random_plane
from workers import OwnLoss

pytestmark = [
    pytest.mark.filterwarnings("ignore:the two random directions have a cosine"),
    pytest.mark.filterwarnings("ignore:.*depends? on how samples are batched"),
]
GENERATOR = torch.Generator().manual_seed(0)
SEQUENCES = [(torch.randn(5, 3, generator=GENERATOR), number % 2) for number in range(5)]


def time_first(items):
    inputs, targets = zip(*items, strict=True)
    return torch.stack(inputs, dim=1), torch.tensor(targets)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent, self.head = nn.RNN(3, 4), nn.Linear(4, 2)

    def forward(self, inputs):
        return self.head(self.recurrent(inputs)[0][-1])


def step(network, batch):
    return nn.functional.cross_entropy(network(batch[0]), batch[1])


def test_sequences_count_alike():
    torch.manual_seed(0)
    network = Reader()
    loader = DataLoader(SEQUENCES, batch_size=4, collate_fn=time_first)
    found = evaluate(
        random_plane(network), lambda: (OwnLoss(step), network, loader, {}), size=3, device_ids=[0], progress=False
    )
    wide = network.double()
    inputs, targets = time_first(SEQUENCES)
    with torch.no_grad():
        expected = nn.functional.cross_entropy(wide(inputs.double()), targets).item()
    assert found.origin.metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert found.attributes["num_samples"] == 5
