"""Prints what two data sets cost in one survey, beside two surveys less their second start.

Run it by hand: ``python tests/benchmarks/data_sets.py``. The goal is at most 1.05 times. Points of all surveys are
measured in turns under one plan, so that other programs disturb all of them alike.
"""

import statistics
import time

import numpy as np
import torch
from move_cost import plane_of
from networks import LeNet5, ResNet20
from torch import nn

from workers.callback_fn import make_evaluator
from workers.evaluator import Evaluator, MeasurementSetup

TRAIN, TEST = 1024, 512
TURNS, POINTS = 9, 2


def data(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 32, 32, generator=generator), torch.randint(0, 10, (count,), generator=generator)


def main() -> None:
    torch.set_num_threads(1)
    points = np.random.default_rng(1).normal(size=(POINTS, 2)) / 10
    sets = {"train": data(TRAIN, 0), "test": data(TEST, 1)}
    for name, build in (("LeNet-5", LeNet5), ("ResNet-20", ResNet20)):

        def opened(dataset: object, plan: object = None, build: type[nn.Module] = build) -> tuple[Evaluator, float]:
            start = time.perf_counter()
            torch.manual_seed(0)
            result = (nn.CrossEntropyLoss(), build(), dataset, {})
            evaluator = make_evaluator(result, MeasurementSetup(plan=plan))  # type: ignore[arg-type]
            evaluator.load(*plane_of(result[1]), far_points=[(1.0, 1.0)])
            return evaluator, time.perf_counter() - start

        both, start_of_both = opened(sets)
        alone = [opened(dataset, both.description.plan) for dataset in sets.values()]
        times: list[list[float]] = [[], [], []]
        with torch.no_grad():
            for _ in range(TURNS):
                for evaluator, found in zip([both, *(item for item, _ in alone)], times, strict=True):
                    start = time.thread_time()
                    evaluator.measure(points)
                    found.append((time.thread_time() - start) / POINTS)
        together, first, second = (1e3 * statistics.median(found) for found in times)
        print(
            f"{name:10} both {together:7.2f} ms, alone {first:.2f} + {second:.2f} = {first + second:.2f} ms a point: "
            f"{together / (first + second):.3f} times; start {start_of_both:.2f} s against {alone[0][1]:.2f} + "
            f"{alone[1][1]:.2f} s"
        )


if __name__ == "__main__":
    main()
