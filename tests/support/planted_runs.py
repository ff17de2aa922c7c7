"""Runs whose answers are known: the weights are a point, and the loss of a sample is a surface that a test chooses."""

import numpy as np
import torch
from torch import nn

from collectors import SummaryCollector


class Point(nn.Module):
    """Weights that are a point of a surface; the output for a sample is that point, moved by the sample."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, size, dtype=torch.float64))

    def forward(self, moves):
        return self.weight[0] + moves


def spiral(size, turns=2.0, count=13, end=2.0, start=3.0):
    """Returns points, shape (count, size): a spiral in the first two coordinates that ends at ``end``."""
    t = np.linspace(0, 1, count)
    points = np.full((count, size), end, np.float64)
    radius = start * (1 - t) ** 2
    points[:, 0] += radius * np.cos(turns * np.pi * t)
    points[:, 1] += radius * np.sin(turns * np.pi * t)
    return points


def moves(count, size, spread=0.1, shift=0.0, seed=0):
    """Returns by how much each sample moves the weights, shape (count, size), and targets, which are its numbers."""
    drawn = np.random.default_rng(seed).normal(size=(count, size))
    centred = spread * (drawn - drawn.mean(0)) + shift
    return torch.from_numpy(centred), torch.arange(count, dtype=torch.float64)


def train(folder, points, size=11, samples=None):
    """Writes a run whose checkpoints are the points, number 0 the first."""
    network = Point(points.shape[1])
    with torch.no_grad():
        network.weight[0] = torch.from_numpy(points[0])
    settings = {
        "unit": "epoch",
        "intervals": [range(len(points))],
        "landscape_size": size,
        **({} if samples is None else {"num_samples": samples}),
    }
    collector = SummaryCollector(folder, collect_landscape=settings)
    with collector.watch(network) as run:
        for point in points[1:]:
            with torch.no_grad():
                network.weight[0] = torch.from_numpy(point)
            run.step()
            run.end_epoch()
    return folder


class Surface(nn.modules.loss._Loss):
    """The mean of a function of each sample's output and target."""

    def __init__(self, height_of):
        super().__init__(reduction="mean")
        self.height_of = height_of

    def forward(self, outputs, targets):
        values = self.height_of(outputs, targets)
        return values.mean() if self.reduction == "mean" else values


def bowl(*curvatures, height=1.0, at=2.0):
    """Returns a parabola with these curvatures around ``at``, ``height`` at its lowest point."""
    bends = torch.tensor(curvatures, dtype=torch.float64)
    return Surface(lambda outputs, _targets: height + ((outputs - at) ** 2 @ bends) / 2)
