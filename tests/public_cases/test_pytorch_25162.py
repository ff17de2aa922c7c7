"""pytorch/pytorch#25162: what a DistributedSampler gives a process is another set than all samples."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from landscape import evaluate, random_plane

INPUTS = torch.randn(31, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(31) % 3


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_a_process_measures_its_share():
    torch.manual_seed(0)
    network, data = nn.Linear(4, 3), TensorDataset(INPUTS, TARGETS)
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, num_replicas=3, rank=2, shuffle=False))
    found = evaluate(
        random_plane(network), lambda: (nn.CrossEntropyLoss(), network, loader, {}), size=3, device_ids=[0],
        progress=False,
    )  # fmt: skip
    # Of 31 samples, the third process has those that fill its share up from the beginning.
    share = [*range(2, 31, 3), 1]
    with torch.no_grad():
        expected = nn.functional.cross_entropy(network(INPUTS[share]), TARGETS[share]).item()
    assert found.loss[1, 1] == pytest.approx(expected, rel=1e-6)
    assert found.attributes["num_samples"] == 11
