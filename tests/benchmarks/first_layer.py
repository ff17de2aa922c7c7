"""The first layer computed once for a plane beside the same network computed whole, in turns in one process.

Run it by hand: ``python tests/benchmarks/first_layer.py``. Rates are samples per CPU second of one thread, the best of
a few rows of points; those count on a machine that others use as well. Each way is tried with the batches that suit it.
"""

import argparse
import itertools
import tempfile
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from networks import LeNet5
from torch import nn

from landscape import random_plane
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.torch.evaluator import TorchEvaluator

SAMPLES = 1024
POINTS_IN_A_ROW = 4


def perceptron() -> nn.Module:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    )


NETWORKS = {"LeNet-5": (LeNet5, (1, 32, 32)), "MLP 784-512-256-10": (perceptron, (1, 28, 28))}


def evaluator_of(name: str, batch_size: int, *, compiled: bool, first_layer: bool) -> TorchEvaluator:
    build, shape = NETWORKS[name]
    torch.manual_seed(0)
    network = build()
    data = (torch.randn(SAMPLES, *shape), torch.randint(0, 10, (SAMPLES,)))
    layout = compiled and name == "LeNet-5"
    plan = MeasurementPlan(batch_size, 1, channels_last=layout, compile=compiled, first_layer=first_layer)
    plane = random_plane(network, seed=0)
    evaluator = TorchEvaluator(
        nn.CrossEntropyLoss(), network, data, {}, MeasurementSetup(MeasurementOptions(), 1, "cpu", plan)
    )
    found = evaluator.description.plan
    assert (found.compile, found.first_layer) == (compiled, first_layer), evaluator.description.notes
    evaluator.load(plane.origin, plane.directions, plane.buffers)
    return evaluator


def compare(name: str, batch_sizes: list[int], rounds: int, *, compiled: bool) -> None:
    """Prints the rates of both ways, and how far their losses are from each other."""
    ways = list(itertools.product((False, True), batch_sizes))
    evaluators = {way: evaluator_of(name, way[1], compiled=compiled, first_layer=way[0]) for way in ways}
    best = dict.fromkeys(ways, float("inf"))
    for number in range(rounds):
        row = np.array([[x, 0.1 * number] for x in np.linspace(-1, 1, POINTS_IN_A_ROW)])
        for way, evaluator in evaluators.items():
            start = time.thread_time()
            evaluator.measure(row)
            best[way] = min(best[way], time.thread_time() - start)
    points = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    values = [evaluators[way].measure(points)["loss"] for way in ways]
    far = max(float(np.max(np.abs(value / values[0] - 1))) for value in values)
    plain, once = (
        max((SAMPLES * POINTS_IN_A_ROW / best[first, size], size) for size in batch_sizes) for first in (False, True)
    )
    print(
        f"{name:20} {'compiled' if compiled else 'eager':8}  whole {plain[0]:8.0f} (batches of {plain[1]})  once "
        f"{once[0]:8.0f} (batches of {once[1]})  {once[0] / plain[0]:.2f} x  losses within {far:.0e}"
    )
    for evaluator in evaluators.values():
        evaluator.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=list(NETWORKS), action="append")
    parser.add_argument("--batch-size", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--eager", action="store_true", help="leave out compiled networks")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="landscape-bench-first-layer-") as folder:
        environment = {"XDG_CACHE_HOME": folder, "TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "compiler"))}
        with mock.patch.dict("os.environ", environment):
            for name in options.network or NETWORKS:
                compare(name, options.batch_size or [64, 256], options.rounds, compiled=False)
                if not options.eager:
                    compare(name, (options.batch_size or [256])[-1:], options.rounds, compiled=True)


if __name__ == "__main__":
    main()
