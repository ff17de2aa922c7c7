"""NVIDIA/NeMo-Aligner#112: a random sampler gave each validation other samples."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from landscape import evaluate, random_plane

DATA = TensorDataset(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3)


@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
def test_it_is_said_and_noted_in_the_file(tmp_path):
    torch.manual_seed(0)
    network = nn.Linear(4, 3)
    loader = DataLoader(DATA, batch_size=4, sampler=RandomSampler(DATA, num_samples=7))
    with pytest.warns(UserWarning, match="RandomSampler draws 7 at random.*all 30 samples that it chooses from"):
        found = evaluate(
            random_plane(network), lambda: (nn.CrossEntropyLoss(), network, loader, {}), size=3, device_ids=[0],
            progress=False, output=tmp_path / "a.h5",
        )  # fmt: skip
    with torch.no_grad():
        expected = nn.functional.cross_entropy(network(DATA.tensors[0]), DATA.tensors[1]).item()
    assert found.loss[1, 1] == pytest.approx(expected, rel=1e-6)
    assert any("draws 7 at random" in note for note in found.attributes["notes"])
