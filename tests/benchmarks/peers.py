"""Measures a landscape with one of the other tools: ``python peers.py NAME WORK STEPS``; prints one line of JSON.

Each tool gets what suits it best: all samples in one batch where it takes any, no worker processes for loading, two
CPU threads as PyTorch chooses by itself.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from networks import read_work
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LI_BATCH_SIZE = 128  # the default of their script


def measure_with_li(network: nn.Module, work: dict[str, Any], axis: np.ndarray) -> np.ndarray:
    """Li et al.'s script as plain code of ours: weights set from copies, then one pass through a DataLoader.

    The script itself no longer starts (numpy >= 1.18), and would load with two processes for each point anew.
    """
    loader = DataLoader(TensorDataset(work["inputs"], work["targets"]), batch_size=LI_BATCH_SIZE)
    weights = [parameter.data.clone() for parameter in network.parameters()]
    first, second = ([direction[name] for name, _ in network.named_parameters()] for direction in work["directions"])
    criterion = nn.CrossEntropyLoss()
    losses = np.full((len(axis), len(axis)), -1.0)
    for flat in range(losses.size):
        x, y = axis[flat % len(axis)], axis[flat // len(axis)]
        changes = [d0 * x + d1 * y for d0, d1 in zip(first, second, strict=True)]
        for parameter, weight, change in zip(network.parameters(), weights, changes, strict=True):
            parameter.data = weight + change
        losses.flat[flat] = _evaluate(network, criterion, loader)
    return losses


def _evaluate(network: nn.Module, criterion: Callable[..., torch.Tensor], loader: DataLoader[Any]) -> float:
    correct, total_loss, total = 0, 0.0, 0
    network.eval()
    with torch.no_grad():
        for inputs, targets in loader:
            outputs = network(inputs)
            total_loss += criterion(outputs, targets).item() * len(inputs)
            correct += int(outputs.max(1)[1].eq(targets).sum())
            total += len(inputs)
    return total_loss / total


def measure_with_loss_landscapes(network: nn.Module, work: dict[str, Any], axis: np.ndarray) -> np.ndarray:
    """loss-landscapes: directions of its own making, which it always centres on the network."""
    import loss_landscapes
    from loss_landscapes.metrics import Loss

    metric = Loss(nn.CrossEntropyLoss(), work["inputs"], work["targets"])
    with torch.no_grad():
        return loss_landscapes.random_plane(network, metric, distance=1, steps=len(axis))


def measure_with_landscaper(network: nn.Module, work: dict[str, Any], axis: np.ndarray) -> np.ndarray:
    """Landscaper: our directions, which it scales anew, tensor by tensor."""
    from landscaper import LossLandscape

    criterion = nn.CrossEntropyLoss()
    directions = [
        [direction[name].clone() for name, _ in network.named_parameters()] for direction in work["directions"]
    ]

    def loss_of(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> float:
        return criterion(model(data[0]), data[1]).item()

    data = (work["inputs"], work["targets"])
    found = LossLandscape.compute(
        network, data, directions, loss_of, steps=len(axis), distance=float(axis[-1]), dim=2, device="cpu"
    )
    return np.asarray(found.loss).T  # it stores [x, y]


def measure_with_loss_landscape_3d(network: nn.Module, work: dict[str, Any], axis: np.ndarray) -> np.ndarray:
    """loss-landscape-3d: our directions, as they are."""
    from loss_landscape_3d import LossLandscapeCalculator

    batches = [(work["inputs"], work["targets"])]
    center = {key: value.clone() for key, value in network.state_dict().items()}
    calculator = LossLandscapeCalculator(network, batches, nn.CrossEntropyLoss())
    return calculator.calculate(axis, axis, *work["directions"], center).T  # it stores [x, y]


PEERS = {
    "Li et al.'s loop": measure_with_li,
    "loss-landscapes": measure_with_loss_landscapes,
    "Landscaper": measure_with_landscaper,
    "loss-landscape-3d": measure_with_loss_landscape_3d,
}
SAME_PLANE = ("Li et al.'s loop", "loss-landscape-3d")
DISTRIBUTIONS = ("loss-landscapes", "Landscaper", "loss-landscape-3d", "torch", "numpy")


def main(name: str, path: str, steps: int) -> None:
    network, work = read_work(path)
    axis = np.linspace(-1, 1, steps)
    _import(name)
    start = time.perf_counter()
    losses = PEERS[name](network, work, axis)
    seconds = time.perf_counter() - start
    versions = {item: importlib.metadata.version(item) for item in DISTRIBUTIONS}
    print(json.dumps({"seconds": seconds, "points": steps * steps, "loss": losses.tolist(), "versions": versions}))


def _import(name: str) -> None:
    """Imports a tool before the clock of its measuring starts: that belongs to its start-up."""
    module = name.lower().replace("-", "_")
    if name in DISTRIBUTIONS:
        importlib.import_module(module)
        if module == "loss_landscapes":
            importlib.import_module("loss_landscapes.metrics")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
