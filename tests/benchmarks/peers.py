"""Measures a landscape with one of the other tools: ``python peers.py JSON``; prints one line of JSON.

The JSON names the tool (``name``), ``work`` (the file of ``prepare_work``), ``steps`` (points along each side) and
``batch_size``; where several processes share a grid, also ``part``, ``parts`` and ``threads``. Each tool gets what
suits it best: mini-batches that are cut once, no worker processes for loading, as many CPU threads as PyTorch chooses.
"""

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

Batches = list[tuple[torch.Tensor, torch.Tensor]]
Directions = list[dict[str, torch.Tensor]]


def measure_with_li(
    network: nn.Module, batches: Batches, directions: Directions, x_axis: np.ndarray, y_axis: np.ndarray
) -> np.ndarray:
    """Li et al.'s script as plain code of ours: weights set from copies, then one pass through the batches.

    The script itself no longer starts (numpy >= 1.18), and would load with two processes for each point anew.
    """
    weights = [parameter.data.clone() for parameter in network.parameters()]
    first, second = ([direction[name] for name, _ in network.named_parameters()] for direction in directions)
    criterion = nn.CrossEntropyLoss()
    losses = np.full((len(y_axis), len(x_axis)), -1.0)
    for flat in range(losses.size):
        x, y = x_axis[flat % len(x_axis)], y_axis[flat // len(x_axis)]
        changes = [d0 * x + d1 * y for d0, d1 in zip(first, second, strict=True)]
        for parameter, weight, change in zip(network.parameters(), weights, changes, strict=True):
            parameter.data = weight + change
        losses.flat[flat] = _evaluate(network, criterion, batches)
    return losses


def _evaluate(network: nn.Module, criterion: Callable[..., torch.Tensor], batches: Batches) -> float:
    correct, total_loss, total = 0, 0.0, 0
    network.eval()
    with torch.no_grad():
        for inputs, targets in batches:
            outputs = network(inputs)
            total_loss += criterion(outputs, targets).item() * len(inputs)
            correct += int(outputs.max(1)[1].eq(targets).sum())
            total += len(inputs)
    return total_loss / total


def mean_loss(forward: Callable[..., torch.Tensor], batches: Batches) -> float:
    criterion = nn.CrossEntropyLoss()
    sums = (criterion(forward(inputs), targets).item() * len(inputs) for inputs, targets in batches)
    return sum(sums) / sum(len(inputs) for inputs, _ in batches)


def measure_with_loss_landscapes(
    network: nn.Module, batches: Batches, _directions: Directions, x_axis: np.ndarray, _y_axis: np.ndarray
) -> np.ndarray:
    """loss-landscapes: directions of its own making, which it always centres on the network; whole squares only."""
    import loss_landscapes
    from loss_landscapes.metrics.metric import Metric

    class BatchedLoss(Metric):  # type: ignore[misc]
        """What its own ``Loss`` does, batch by batch."""

        def __call__(self, model_wrapper: Any) -> float:
            return mean_loss(model_wrapper.forward, batches)

    with torch.no_grad():
        return loss_landscapes.random_plane(network, BatchedLoss(), distance=1, steps=len(x_axis))


def measure_with_landscaper(
    network: nn.Module, batches: Batches, directions: Directions, x_axis: np.ndarray, _y_axis: np.ndarray
) -> np.ndarray:
    """Landscaper: our directions, which it scales anew, tensor by tensor; whole squares only."""
    from landscaper import LossLandscape

    own = [[direction[name].clone() for name, _ in network.named_parameters()] for direction in directions]
    square = {"steps": len(x_axis), "distance": float(x_axis[-1]), "dim": 2}
    found = LossLandscape.compute(network, batches, own, mean_loss, **square, device=batches[0][0].device.type)
    return np.asarray(found.loss).T  # it stores [x, y]


def measure_with_loss_landscape_3d(
    network: nn.Module, batches: Batches, directions: Directions, x_axis: np.ndarray, y_axis: np.ndarray
) -> np.ndarray:
    """loss-landscape-3d: our directions, as they are."""
    from loss_landscape_3d import LossLandscapeCalculator

    center = {key: value.clone() for key, value in network.state_dict().items()}
    calculator = LossLandscapeCalculator(network, batches, nn.CrossEntropyLoss())
    return calculator.calculate(x_axis, y_axis, *directions, center).T  # it stores [x, y]


PEERS = {
    "Li et al.'s loop": measure_with_li,
    "loss-landscapes": measure_with_loss_landscapes,
    "Landscaper": measure_with_landscaper,
    "loss-landscape-3d": measure_with_loss_landscape_3d,
}
DISTRIBUTIONS = ("loss-landscapes", "Landscaper", "loss-landscape-3d", "torch", "numpy")


def main(wanted: dict[str, Any]) -> None:
    if "threads" in wanted:
        torch.set_num_threads(wanted["threads"])
    name, steps = wanted["name"], wanted["steps"]
    network, work = read_work(wanted["work"])
    size = wanted["batch_size"]
    batches = list(zip(work["inputs"].split(size), work["targets"].split(size), strict=True))
    axis = np.linspace(-1, 1, steps)
    rows = axis[wanted.get("part", 0) :: wanted.get("parts", 1)]
    _import(name)
    start = time.perf_counter()
    losses = PEERS[name](network, batches, work["directions"], axis, rows)
    seconds = time.perf_counter() - start
    versions = {item: importlib.metadata.version(item) for item in DISTRIBUTIONS}
    print(json.dumps({"seconds": seconds, "points": losses.size, "loss": losses.tolist(), "versions": versions}))


def _import(name: str) -> None:
    """Imports a tool before the clock of its measuring starts: that belongs to its start-up."""
    module = name.lower().replace("-", "_")
    if name in DISTRIBUTIONS:
        importlib.import_module(module)
        if module == "loss_landscapes":
            importlib.import_module("loss_landscapes.metrics.metric")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
