"""How much of our CPU time plain forward passes would take: network and loss over the same batches, nothing else.

Run it by hand: ``python tests/benchmarks/forward_share.py``. Everything has one thread and nothing is compiled. The
first share is that of a further point (a grid less a smaller one), the second that of a whole call, the choice of a
plan and the end included. The goals are 0.9 for networks of 1e5 parameters and more, and 0.7 for tiny ones.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from networks import NETWORKS, digits
from torch import nn

from landscape import Measure, random_plane
from workers.measurement_plan import MeasurementPlan


class Tiny(nn.Sequential):
    """A network of 6,506 parameters, most of them in its first layer."""

    def __init__(self) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(64, 80), nn.Tanh(), nn.Linear(80, 10))


# Samples, and points along each side of the whole grid and of the smaller one.
CASES = {
    "tiny": (1024, 40, 12),
    "perceptron": (1024, 20, 8),
    "transformer": (512, 14, 6),
    "LeNet-5": (1024, 14, 6),
    "ResNet-20": (64, 10, 4),
}


def cpu_seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def shares(name: str, samples: int, size: int, smaller: int) -> tuple[float, float, float]:
    """Returns the share of a further point, that of the whole call, and the CPU seconds of a plain point."""
    torch.manual_seed(0)
    network = {"tiny": Tiny, **NETWORKS}[name]().eval()
    data = tuple(part[:samples].clone() for part in digits())
    loss, plane = nn.CrossEntropyLoss(), random_plane(network, seed=0)
    measure = Measure(lambda: (loss, network, data, {}), progress=False, compile=False)
    found = measure.grid(plane, size=size)
    plan = found.attributes["measurement_plan"]
    given = replace(MeasurementPlan.from_json(plan), threads=1)

    def ours(side: int, plan: MeasurementPlan | None) -> float:
        one = Measure(lambda: (loss, network, data, {}), progress=False, compile=False, plan=plan)
        return cpu_seconds(lambda: one.grid(plane, size=side))

    batches = list(zip(*(part.split(plan["batch_size"]) for part in data), strict=True))

    def plain() -> None:
        with torch.no_grad():
            for inputs, targets in batches:
                loss(network(inputs), targets)

    points = max(3, 100 // len(batches))
    point = cpu_seconds(lambda: [plain() for _ in range(points)]) / points
    further = (ours(size, given) - ours(smaller, given)) / (size**2 - smaller**2)
    return point / further, point * size**2 / ours(size, None), point


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, (samples, size, smaller) in CASES.items():
        network = {"tiny": Tiny, **NETWORKS}[name]()
        parameters = sum(parameter.numel() for parameter in network.parameters())
        rounds = [shares(name, samples, size, smaller) for _ in range(repeats)]
        point, further, whole = (
            f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
            for found in zip(*((1e3 * point, further, whole) for further, whole, point in rounds), strict=True)
        )
        print(
            f"{name}, {parameters:,} parameters, {samples:,} samples: {point} ms of CPU a plain point; share of a "
            f"further point {further}, of a call of {size} x {size} points {whole}",
            flush=True,
        )


if __name__ == "__main__":
    main()
