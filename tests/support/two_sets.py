"""A small network with statistics of its own, and two data sets by name."""

import torch
from examples import accuracy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from landscape import pca_plane
from workers import MeasurementPlan

OPTIONS = {"progress": False, "device_ids": [0], "plan": MeasurementPlan(batch_size=32), "size": (4, 3)}


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 6, generator=generator)
    return TensorDataset(inputs, (inputs[:, :3] + torch.randn(count, 3, generator=generator)).argmax(1))


def both(test_seed=2):
    sets = {"train": DataLoader(data(100, 1), 16, shuffle=True), "test": DataLoader(data(60, test_seed), 16)}
    return nn.CrossEntropyLoss(), network(), sets, {"accuracy": accuracy}


def plane():
    """Returns a plane through three networks with statistics of their own."""
    members = [network(seed) for seed in (3, 2, 0)]
    for index, member in enumerate(members):
        member[1].running_mean += 0.3 * index
    return pca_plane(members)
