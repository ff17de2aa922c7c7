"""Prints what moving a network to a point costs, as a share of a forward pass over 1,024 samples.

Run it by hand: ``python tests/benchmarks/move_cost.py``. The goal is below one percent.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from networks import LeNet5
from torch import nn

from collectors.networks.weight_space import State
from landscape import random_plane
from workers.evaluator import MeasurementSetup
from workers.torch.evaluator import TorchEvaluator

SAMPLES = 1024


def many_small_tensors() -> nn.Module:
    """300 parameters in 150 layers."""
    layers = [layer for _ in range(149) for layer in (nn.Linear(32, 32), nn.Tanh())]
    return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(32), *layers, nn.Linear(32, 10))


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Returns the median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def plane_of(network: nn.Module) -> tuple[State, list[State], State]:
    """Returns the network's own state and two random directions."""
    plane = random_plane(network, seed=0)
    return plane.origin, plane.directions, plane.buffers


def main() -> None:
    torch.manual_seed(0)
    data = (torch.randn(SAMPLES, 1, 32, 32), torch.randint(0, 10, (SAMPLES,)))
    for name, network in (("LeNet-5", LeNet5()), ("300 small tensors", many_small_tensors())):
        torch.set_num_threads(1)
        evaluator = TorchEvaluator(nn.CrossEntropyLoss(), network, data, {}, MeasurementSetup())
        evaluator.load(*plane_of(network))
        with torch.no_grad():
            move = seconds(lambda evaluator=evaluator: evaluator._moves.move([0.1, 0.2]), 300)
        point = np.array([[0.1, 0.2]])
        forward = seconds(lambda evaluator=evaluator, point=point: evaluator.measure(point), 30) - move
        print(
            f"{name:18} move {1e6 * move:5.0f} us, forward pass {1e3 * forward:6.1f} ms, "
            f"share {100 * move / forward:.2f} %   ({evaluator.description.plan})"
        )
        evaluator.close()


if __name__ == "__main__":
    main()
