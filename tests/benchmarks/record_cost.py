"""What a recorded step costs the training thread, and whether memory stays flat over 100,000 of them.

Run it by hand: ``python tests/benchmarks/record_cost.py``.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from collectors.summary.record import SummaryRecord

LIMIT_MILLISECONDS = 1.0
CASES = {
    "two scalars": {"scalars": 2},
    "ten scalars": {"scalars": 10},
    "two scalars, five histograms of 10,000": {"scalars": 2, "histograms": 5, "elements": 10_000},
    "two scalars, five histograms of 1,000,000": {"scalars": 2, "histograms": 5, "elements": 1_000_000},
    "an image batch of 16 x 3 x 32 x 32": {"images": 16},
    "a tensor of 1,000,000": {"tensors": 1, "elements": 1_000_000},
}


def add_all(record, arrays, scalars=0, histograms=0, images=0, tensors=0, elements=0):
    for index in range(scalars):
        record.add_value("scalar", f"scalar{index}", 0.5)
    for index in range(histograms):
        record.add_value("histogram", f"histogram{index}", arrays["elements"])
    for index in range(tensors):
        record.add_value("tensor", f"tensor{index}", arrays["elements"])
    if images:
        record.add_value("image", "images", arrays["images"])


def copy_all(arrays, scalars=0, histograms=0, images=0, tensors=0, elements=0):
    """Makes the host copies of one step and nothing else."""
    return [arrays["elements"].copy() for _ in range(histograms + tensors)] + [arrays["images"].copy()] * bool(images)


def step_cost(case, steps):
    """Returns the training thread's milliseconds per step: wall clock and processor, less the host copies."""
    generator = np.random.default_rng(0)
    arrays = {
        "elements": generator.normal(size=case.get("elements", 1)).astype(np.float32),
        "images": generator.integers(0, 256, (case.get("images", 1), 3, 32, 32), np.uint8),
    }
    wall, processor, copies = [], [], []
    with tempfile.TemporaryDirectory() as folder, SummaryRecord(folder, raise_exception=True) as record:
        for step in range(steps):
            started = time.perf_counter(), time.thread_time()
            add_all(record, arrays, **case)
            record.record(step)
            wall.append(time.perf_counter() - started[0])
            processor.append(time.thread_time() - started[1])
            # As in training, the writing thread has the time of a step to catch up.
            record.flush()
            copying = time.perf_counter()
            copy_all(arrays, **case)
            copies.append(time.perf_counter() - copying)
    return [1000 * float(np.median(times)) for times in (wall, processor, copies)]


def soak(records):
    """Records many steps as fast as they are taken; prints their rate and the growth of memory."""
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder, SummaryRecord(folder, raise_exception=True) as record:
        started = time.perf_counter()
        for step in range(records):
            record.add_value("scalar", "loss", float(step))
            record.record(step)
            if step == records // 10:
                record.flush()
                before = process.memory_info().rss
        record.flush()
        seconds = time.perf_counter() - started
        growth = (process.memory_info().rss - before) / 2**20
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 2**20
    print(f"{records} records: {records / seconds:.0f} a second, {size:.1f} MiB of files, memory grew {growth:.1f} MiB")
    return growth


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args()
    print(f"{'a step with':45s} {'ms':>8s} {'CPU ms':>8s} {'copies':>8s} {'beyond copies':>14s}")
    beyond = []
    for name, case in CASES.items():
        wall, processor, copies = step_cost(case, options.steps)
        beyond.append(wall - copies)
        print(f"{name:45s} {wall:8.3f} {processor:8.3f} {copies:8.3f} {beyond[-1]:14.3f}")
    growth = soak(options.records)
    if max(beyond) > LIMIT_MILLISECONDS or growth > 64:
        raise SystemExit(f"over the limit of {LIMIT_MILLISECONDS} ms beyond host copies, or of 64 MiB of growth")


if __name__ == "__main__":
    main()
