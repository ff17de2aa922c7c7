"""Lightning-AI/pytorch-lightning#6889: a metric of graphs was wrong where the last batch is smaller."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from landscape import evaluate, random_plane
from workers import OwnLoss

pytestmark = [
    pytest.mark.filterwarnings("ignore:the two random directions have a cosine"),
    pytest.mark.filterwarnings("ignore:.*which leaves open whether it depends on how samples are batched"),
    pytest.mark.filterwarnings("ignore:.*depends? on how samples are batched"),
]
BAGS = [([0], 0), ([1, 1, 1, 1, 1, 1], 1), ([2], 0)]


def collate(bags):
    tokens = torch.tensor([token for bag, _ in bags for token in bag])
    starts = torch.tensor([0, *(len(bag) for bag, _ in bags)]).cumsum(0)[:-1]
    return tokens, starts, torch.tensor([target for _, target in bags])


def step(network, batch):
    tokens, starts, targets = batch
    outputs = network(tokens, starts)
    return nn.functional.cross_entropy(outputs, targets), outputs


def right(outputs, batch):
    return (outputs.argmax(1) == batch[2]).float().mean()


def test_the_metric_is_that_of_all_bags():
    network = nn.EmbeddingBag(3, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]))
    loader = DataLoader(BAGS, batch_size=2, collate_fn=collate)
    drawn = evaluate(
        random_plane(network), lambda: (OwnLoss(step), network, loader, {"right": right}), size=3, device_ids=[0],
        progress=False,
    )  # fmt: skip
    assert drawn.origin.metrics["right"] == pytest.approx(2 / 3)
