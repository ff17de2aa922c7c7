"""pyg-team/pytorch_geometric#9829: the mean over batches of graphs was weighed by their nodes."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from landscape import evaluate, random_plane
from workers import OwnLoss

pytestmark = [
    pytest.mark.filterwarnings("ignore:the two random directions have a cosine"),
    pytest.mark.filterwarnings("ignore:loss .* which leaves open whether it depends on how samples are batched"),
    pytest.mark.filterwarnings("ignore:loss depends on how samples are batched"),
]
# Graphs as plain tensors: the features of their nodes, and what they are.
GRAPHS = [(torch.full((nodes, 1), float(value)), float(value)) for nodes, value in ((1, 1), (9, 5), (2, 2), (4, 3))]


def collate(graphs):
    nodes = torch.cat([features for features, _ in graphs])
    owner = torch.cat([torch.full((len(features),), place) for place, (features, _) in enumerate(graphs)])
    return nodes, owner, torch.tensor([[target] for _, target in graphs])


def step(network, batch):
    nodes, owner, targets = batch
    sums = torch.zeros(len(targets), 1).index_add(0, owner, network(nodes))
    counts = torch.bincount(owner, minlength=len(targets))[:, None]
    return nn.functional.mse_loss(sums / counts, targets)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_graphs_count_alike(batch_size):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 3), nn.Linear(3, 1))
    loader = DataLoader(GRAPHS, batch_size=batch_size, collate_fn=collate)
    drawn = evaluate(
        random_plane(network), lambda: (OwnLoss(step), network, loader, {}), size=3, device_ids=[0], progress=False
    )
    wide = network.double()
    expected = sum((wide(torch.tensor([[value]], dtype=torch.float64)).item() - value) ** 2 for _, value in GRAPHS) / 4
    assert drawn.origin.metrics["loss"] == pytest.approx(expected, rel=1e-5)
