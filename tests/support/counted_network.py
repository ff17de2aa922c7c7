"""A network that counts the samples that it computes, in one file for each process."""

import os
from pathlib import Path

import torch
from examples import accuracy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCHES, BATCH_SIZE = 100, 256
SAMPLES = BATCHES * BATCH_SIZE


class CountedNetwork(nn.Module):
    """A layer that writes down how many samples it was given, and says which process it was."""

    def __init__(self, folder, inputs=32, outputs=10):
        super().__init__()
        self.layer, self.folder = nn.Linear(inputs, outputs), str(folder)

    def forward(self, features):
        with (Path(self.folder) / f"{os.getpid()}.count").open("a") as file:
            file.write(f"{len(features)}\n")
        return self.layer(features)


def counted_network(folder, *sizes):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return CountedNetwork(folder, *sizes)


def large_data(inputs=32):
    """Returns a loader of so many samples that a pass is dear."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(SAMPLES, inputs, generator=generator)
    targets = (features[:, 0] + 0.5 * torch.randn(SAMPLES, generator=generator) > 0).long()
    return DataLoader(TensorDataset(features, targets), batch_size=BATCH_SIZE)


def counted_callback(folder, *, with_metric):
    def callback_fn():
        metrics = {"right": accuracy} if with_metric else {}
        return nn.CrossEntropyLoss(), counted_network(folder), large_data(), metrics

    return callback_fn


def passes_of(folder):
    """Returns for each process how many passes over the samples it made."""
    found = {path.stem: sum(map(int, path.read_text().split())) / SAMPLES for path in Path(folder).glob("*.count")}
    return [found[name] for name in sorted(found)]
