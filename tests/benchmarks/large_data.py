"""What a data set costs that memory does not hold: the time of a survey against that of its passes alone.

    python tests/benchmarks/large_data.py --gigabytes 1 --size 15

A pass is the loader's batches, each measured at all points of a group, in a loop of PyTorch alone. Seconds are those of
one core's work (``time.process_time``), so that other programs do not matter.
"""

import argparse
import math
import os
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import numpy as np
import torch
from large_rows import ROW_BYTES, LargeRows, large_rows_network
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from landscape import evaluate, random_plane

BATCH = 128


def seconds_of_a_pass(loader: DataLoader, points: int) -> tuple[float, float]:
    """Returns the seconds of reading all batches, and of reading them and measuring each at some points."""
    network = large_rows_network()
    plane = random_plane(network, seed=0)
    states = [
        {name: torch.as_tensor(plane.origin[name] + 0.01 * step * plane.directions[0][name]) for name in plane.origin}
        for step in range(points)
    ]
    start = time.process_time()
    for _ in loader:
        pass
    reading = time.process_time() - start
    start, losses = time.process_time(), np.zeros(points)
    with torch.no_grad():
        for inputs, targets in loader:
            for index, state in enumerate(states):
                network.load_state_dict(state)
                losses[index] += functional.cross_entropy(network(inputs), targets).item() * len(targets)
    return reading, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=15)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
    torch.set_num_threads(1)
    count = int(options.gigabytes * 1e9) // ROW_BYTES
    memory = count * ROW_BYTES // 4

    def loader() -> DataLoader:
        return DataLoader(LargeRows(count), batch_size=BATCH)

    def callback_fn() -> tuple[object, nn.Module, DataLoader, dict[str, object]]:
        return nn.CrossEntropyLoss(), large_rows_network(), loader(), {}

    start = time.process_time()
    landscape = evaluate(
        random_plane(large_rows_network(), seed=0),
        callback_fn,
        size=options.size,
        device_ids=[0],
        sample_memory=memory,
        progress=False,
    )
    whole = time.process_time() - start
    report = landscape.report
    chunks = report.forecast.passes
    points = math.ceil(options.size**2 / chunks)
    reading, one_pass = seconds_of_a_pass(loader(), points)
    print(f"forecast: {report.forecast}")
    print(f"{options.gigabytes:g} GB in {count} samples, {memory / 1e9:.2g} GB allowed, {options.size**2} points")
    print(f"one pass by hand: {reading:.2f} s of reading, {one_pass:.2f} s with {points} points measured")
    print(f"{chunks} chunks x one pass: {chunks * one_pass:.1f} s")
    print(f"survey: {whole:.1f} s, {whole / (chunks * one_pass):.2f} times as long")


if __name__ == "__main__":
    main()
