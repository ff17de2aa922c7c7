"""fastai/fastai#2638: a WeightedRandomSampler was ignored without a word, and the whole data set was visited."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from landscape import evaluate, random_plane

INPUTS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(30) % 3


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_it_is_said_and_what_it_can_choose_is_measured():
    torch.manual_seed(0)
    network = nn.Linear(4, 3)
    sampler = WeightedRandomSampler([0.0] * 20 + [1.0] * 10, 5)
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=4, sampler=sampler)
    with pytest.warns(UserWarning, match="WeightedRandomSampler draws 5 at random by their weights.*all 10 samples"):
        found = evaluate(
            random_plane(network), lambda: (nn.CrossEntropyLoss(), network, loader, {}), size=3, device_ids=[0],
            progress=False,
        )  # fmt: skip
    wide = network.double()
    with torch.no_grad():
        expected = nn.functional.cross_entropy(wide(INPUTS[20:].double()), TARGETS[20:]).item()
    assert found.loss[1, 1] == pytest.approx(expected, rel=1e-6)
    assert any("WeightedRandomSampler" in note for note in found.attributes["notes"])
