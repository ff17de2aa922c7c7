"""ultralytics/ultralytics#25734: a loader that shuffles and drops the rest evaluates other samples each time."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from landscape import evaluate, random_plane

INPUTS = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(30) % 3


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_it_is_said_and_all_samples_are_measured():
    torch.manual_seed(0)
    network = nn.Linear(4, 3)
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=8, shuffle=True, drop_last=True)
    with pytest.warns(UserWarning, match="visits other samples each time, but a landscape needs a fixed set: all 30"):
        found = evaluate(
            random_plane(network), lambda: (nn.CrossEntropyLoss(), network, loader, {}), size=3, device_ids=[0],
            progress=False,
        )  # fmt: skip
    assert any("visits other samples each time" in note for note in found.attributes["notes"])
    assert found.attributes["num_samples"] == 30
