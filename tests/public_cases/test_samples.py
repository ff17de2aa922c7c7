"""Reports of other projects on samples: which are measured, and how they count."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from landscape import evaluate, random_plane
from workers import OwnLoss

pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
INPUTS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(30) % 3


def measured(loader, network, loss, metrics=()):
    """Returns a landscape and the network at its centre."""
    data = lambda: (loss, network, loader, dict(metrics))  # noqa: E731
    return evaluate(random_plane(network), data, size=3, device_ids=[0], progress=False), network


def test_of_weighted_samples_all_that_have_a_weight_are_measured():
    """fastai/fastai#2638: a WeightedRandomSampler was ignored without a word, and the whole data set was visited."""
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), 4, sampler=WeightedRandomSampler([0.0] * 20 + [1.0] * 10, 5))
    with pytest.warns(UserWarning, match="WeightedRandomSampler draws 5 at random by their weights.*all 10 samples"):
        found, network = measured(loader, nn.Linear(4, 3), nn.CrossEntropyLoss())
    with torch.no_grad():
        expected = nn.functional.cross_entropy(network.double()(INPUTS[20:].double()), TARGETS[20:]).item()
    assert found.loss[1, 1] == pytest.approx(expected, rel=1e-6)
    assert any("WeightedRandomSampler" in note for note in found.attributes["notes"])


def unexplained(network, batch):
    inputs, targets = batch
    return (network(inputs) - targets).square().sum() / (targets - targets.mean()).square().sum()


@pytest.mark.filterwarnings("ignore:loss depends on how samples are batched")
def test_it_is_said_that_a_share_is_a_mean_of_batches_and_what_to_do():
    """Mohamedelrefaie/DrivAerNet#27: a share of explained variance was averaged over batches."""
    inputs, targets = INPUTS[:12, :2], INPUTS[:12, 2:3]
    several, one = (
        measured(DataLoader(TensorDataset(inputs, targets), size), nn.Linear(2, 1), OwnLoss(unexplained))
        for size in (4, 12)
    )
    notes = " ".join(several[0].attributes["notes"])
    assert "the mean over these batches" in notes
    assert "let one batch hold them all" in notes
    with torch.no_grad():
        expected = unexplained(one[1].double(), (inputs.double(), targets.double())).item()
    assert one[0].loss[1, 1] == pytest.approx(expected, rel=1e-5)


own_batches = pytest.mark.filterwarnings(
    "ignore:.*which leaves open whether it depends on how samples are batched",
    "ignore:.*depends? on how samples are batched",
)
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


def loss_of_sequences(network, batch):
    return nn.functional.cross_entropy(network(batch[0]), batch[1])


@own_batches
def test_sequences_count_alike():
    """inferno-pytorch/inferno#101: batches were counted by their first axis, which is time for sequences."""
    loader = DataLoader(SEQUENCES, batch_size=4, collate_fn=time_first)
    found, network = measured(loader, Reader(), OwnLoss(loss_of_sequences))
    inputs, targets = time_first(SEQUENCES)
    with torch.no_grad():
        expected = loss_of_sequences(network.double(), (inputs.double(), targets)).item()
    assert found.origin.metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert found.attributes["num_samples"] == 5


BAGS = [([0], 0), ([1, 1, 1, 1, 1, 1], 1), ([2], 0)]


def bags_together(bags):
    tokens = torch.tensor([token for bag, _ in bags for token in bag])
    starts = torch.tensor([0, *(len(bag) for bag, _ in bags)]).cumsum(0)[:-1]
    return tokens, starts, torch.tensor([target for _, target in bags])


def loss_of_bags(network, batch):
    tokens, starts, targets = batch
    outputs = network(tokens, starts)
    return nn.functional.cross_entropy(outputs, targets), outputs


def right(outputs, batch):
    return (outputs.argmax(1) == batch[2]).float().mean()


@own_batches
def test_the_metric_is_that_of_all_bags():
    """Lightning-AI/pytorch-lightning#6889: a metric of graphs was wrong where the last batch is smaller."""
    network = nn.EmbeddingBag(3, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 0.0]] * 3))
    loader = DataLoader(BAGS, batch_size=2, collate_fn=bags_together)
    found, _ = measured(loader, network, OwnLoss(loss_of_bags), {"right": right})
    assert found.origin.metrics["right"] == pytest.approx(2 / 3)
