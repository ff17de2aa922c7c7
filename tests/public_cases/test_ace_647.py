"""ai2cm/ace#647: drop_last leaves samples out of an evaluation, so that two evaluations are of other samples."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from landscape import evaluate, random_plane

INPUTS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(30) % 3


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_what_the_loader_gives_is_what_is_measured():
    torch.manual_seed(0)
    network = nn.Linear(4, 3)
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=8, drop_last=True)
    found = evaluate(
        random_plane(network), lambda: (nn.CrossEntropyLoss(), network, loader, {}), size=3, device_ids=[0],
        progress=False,
    )  # fmt: skip
    with torch.no_grad():
        expected = nn.functional.cross_entropy(network(INPUTS[:24]), TARGETS[:24]).item()
    assert found.loss[1, 1] == pytest.approx(expected, rel=1e-6)
    assert found.attributes["num_samples"] == 24
