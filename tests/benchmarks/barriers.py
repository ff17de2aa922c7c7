"""How far the loss rises between two LeNet-5 of different seeds: straight, with units in order, and along a curve.

Run it by hand: ``python tests/benchmarks/barriers.py``; it takes about a minute. The goals are at most 0.35 aligned and
0.01 along the curve after 300 steps. ``--images docs/images`` also draws the pictures of docs/barriers.md.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from networks import LeNet5, digits
from torch.nn import functional

from landscape import Measure, MeasurementPlan, evaluate
from landscape.figures import plot_barriers, plot_routes, save_figure
from landscape.functions import barrier, connect
from landscape.paths.alignment import align

COUNT, EPOCHS = 1024, 12  # 192 steps of 64 samples
PAIRS = ((0, 1), (2, 3), (4, 5))
HERE: dict[str, Any] = {"device_ids": [0], "progress": False}
PLAN = MeasurementPlan(batch_size=256, threads=1)


IMAGES, TARGETS = (item[:COUNT] for item in digits())


def trained(seed: int) -> LeNet5:
    torch.manual_seed(seed)
    network, generator = LeNet5(), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(COUNT, generator=generator).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(network(IMAGES[rows]), TARGETS[rows]).backward()
            optimizer.step()
    return network.eval()


def callback_fn() -> tuple[Any, ...]:
    return torch.nn.CrossEntropyLoss(), LeNet5(), (IMAGES, TARGETS), {}


def main(images: Path | None) -> None:
    heights: dict[str, list[float]] = {"straight": [], "aligned": [], "curved": []}
    print("| seeds | straight | aligned | along the curve | align | connect |\n|---|---|---|---|---|---|")
    for first, second in PAIRS:
        a, b = trained(first), trained(second)
        start = time.perf_counter()
        aligned = align(b, to=a, example=IMAGES[:32])
        ordered = time.perf_counter()
        path = connect(a, b, callback_fn, steps=300, **HERE)
        fitted = time.perf_counter()
        ways = {
            "straight": barrier(a, b, callback_fn, plan=PLAN, **HERE),
            "aligned": barrier(a, aligned.weights, callback_fn, plan=PLAN, **HERE),
            "curved": Measure(callback_fn, plan=PLAN, **HERE).barrier(path),
        }
        for name, way in ways.items():
            heights[name].append(way.height)
        texts = [f"{way.height:.4f} ± {way.stderr:.4f}" for way in ways.values()]
        seconds = f"{ordered - start:.1f} s | {fitted - ordered:.1f} s"
        print(f"| {first}, {second} | {' | '.join(texts)} | {seconds} |", flush=True)
        if images is not None and first == PAIRS[0][0]:
            lines = {name: way.landscape for name, way in ways.items()}
            save_figure(plot_barriers(lines, theme="light"), images / "barriers_ways.png", dpi=110)
            plane = evaluate(path.plane(), callback_fn, size=25, plan=PLAN, **HERE)
            save_figure(plot_routes(plane, path.routes(), theme="light"), images / "barriers_routes.png", dpi=110)
    print("medians:", ", ".join(f"{name} {statistics.median(values):.4f}" for name, values in heights.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path)
    main(parser.parse_args().images)
