"""Mohamedelrefaie/DrivAerNet#27: a share of explained variance was averaged over batches."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from landscape import evaluate, random_plane
from workers import OwnLoss

INPUTS = torch.randn(12, 2, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randn(12, 1, generator=torch.Generator().manual_seed(1))


def unexplained(network, batch):
    inputs, targets = batch
    return (network(inputs) - targets).square().sum() / (targets - targets.mean()).square().sum()


@pytest.mark.filterwarnings(
    "ignore:the two random directions have a cosine", "ignore:loss depends on how samples are batched"
)
def test_it_is_said_that_it_is_a_mean_of_batches_and_what_to_do():
    torch.manual_seed(0)
    network = nn.Linear(2, 1)
    measured = {}
    for batch_size in (4, 12):
        loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=batch_size)
        found = evaluate(
            random_plane(network), lambda loader=loader: (OwnLoss(unexplained), network, loader, {}), size=3,
            device_ids=[0], progress=False,
        )  # fmt: skip
        measured[batch_size] = found.loss[1, 1], " ".join(found.attributes["notes"])
    assert "the mean over these batches" in measured[4][1]
    assert "let one batch hold them all" in measured[4][1]
    with torch.no_grad():
        expected = unexplained(network.double(), (INPUTS.double(), TARGETS.double())).item()
    assert measured[12][0] == pytest.approx(expected, rel=1e-5)
