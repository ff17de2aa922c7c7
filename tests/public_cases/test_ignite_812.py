"""pytorch/ignite#812: a subclass of DataLoader was replaced by a plain one, which gives other samples."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from landscape import evaluate, random_plane

INPUTS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(30) % 3


class WithoutTheLastClass(DataLoader):
    def __iter__(self):
        for inputs, targets in super().__iter__():
            yield inputs[targets < 2], targets[targets < 2]


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_what_it_gives_is_what_is_measured():
    torch.manual_seed(0)
    network = nn.Linear(4, 3)
    loader = WithoutTheLastClass(TensorDataset(INPUTS, TARGETS), batch_size=7, shuffle=True)
    found = evaluate(
        random_plane(network), lambda: (nn.CrossEntropyLoss(), network, loader, {}), size=3, device_ids=[0],
        progress=False,
    )  # fmt: skip
    kept = TARGETS < 2
    with torch.no_grad():
        expected = nn.functional.cross_entropy(network(INPUTS[kept]), TARGETS[kept]).item()
    assert found.loss[1, 1] == pytest.approx(expected, rel=1e-6)
    assert found.attributes["num_samples"] == 20
