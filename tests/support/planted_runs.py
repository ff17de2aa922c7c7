"""Runs whose answers are known: the weights are a point, and the loss of a sample is a surface that a test chooses."""

import math

import h5py
import numpy as np
import torch
from torch import nn

from collectors import SummaryCollector
from collectors.run_directory import RunDirectory
from landscape import SummaryLandscape
from landscape.record.option_kinds import ReportOptions
from landscape.record.options import checked
from landscape.report.measuring import ReportMeasuring
from landscape.report.report import answers_of
from landscape.report.statement import EXACT


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


def train(folder, points, size=11, samples=None, network=Point):
    """Writes a run whose checkpoints are the points, number 0 the first."""
    network = network(points.shape[1])
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


def measuring_of(folder, points, loss, data, network=Point):
    """Returns what measures a report on a run whose checkpoints are the points."""
    run = train(folder / "run", points, network=network)
    chosen = checked(ReportOptions, {"device_ids": [0], "progress": False})

    def callback_fn():
        return loss, network(points.shape[1]), data, {}

    return ReportMeasuring(SummaryLandscape(run), RunDirectory(run), callback_fn, run, chosen)


def answers(folder, points, loss, data, recipes=None):
    """Returns the answers by the name of their question."""
    measuring = measuring_of(folder, points, loss, data)
    return checked_answers(measuring, measuring.findings(recipes))


def checked_answers(measuring, findings):
    found = {answer.name: answer for answer in answers_of(findings)}
    for answer in found.values():
        for statement in answer.statements:
            check_number(statement.number, measuring.folder)
    return found


def check_number(number, folder):
    """Recomputes a number and its interval from the arrays of its file."""
    if number.formula.startswith("Comparison"):
        return
    with h5py.File(folder / number.file) as file:
        arrays = {name: np.asarray(file[place][()], np.float64) for name, place in number.arrays.items()}
    for formula, expected in (
        (number.formula, number.value), (number.low_formula, number.low), (number.high_formula, number.high),
    ):  # fmt: skip
        if formula:
            np.testing.assert_equal(float(eval(formula, vars(np) | arrays)), expected)
    assert number.low_formula or math.isnan(number.low) or number.kind == EXACT


def two_sets(train, **test):
    return {"train": train, "test": moves(**{"count": 200, "size": 4, "seed": 1, **test})}


def turned(points, column, first, last):
    """Returns points that also go straight in one coordinate."""
    points[:, column] += np.linspace(first, last, len(points))
    return points


def of_numbers(height_of, drawn):
    """Returns a surface that knows a number, or several, of each sample."""
    return Surface(lambda outputs, targets: height_of(outputs, torch.from_numpy(drawn)[targets.long()]))
