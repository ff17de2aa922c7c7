"""What recording costs the training thread: a recorded step, with a SummaryCollector and without one.

The first is that of a SummaryRecord, whose memory must stay flat over 100,000 steps, the second one of LeNet-5.

Run it by hand: ``python tests/benchmarks/record_cost.py``.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import torch
from move_cost import seconds
from networks import LeNet5
from torch import nn

from collectors.callbacks.callback import Callback
from collectors.model.model import Model
from collectors.recording.summary_collector import SummaryCollector
from collectors.summary.record import SummaryRecord

COLLECT_FREQ = 10
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


class Timed(SummaryCollector):
    """Measures its two step hooks apart from everything else, wall clock and processor."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.wall, self.processor = [], []

    def on_train_step_begin(self, run_context):
        started = time.perf_counter(), time.thread_time()
        super().on_train_step_begin(run_context)
        self._beginning = time.perf_counter() - started[0], time.thread_time() - started[1]

    def on_train_step_end(self, run_context):
        started = time.perf_counter(), time.thread_time()
        super().on_train_step_end(run_context)
        self.wall.append(self._beginning[0] + time.perf_counter() - started[0])
        self.processor.append(self._beginning[1] + time.thread_time() - started[1])


class Clock(Callback):
    """Measures whole steps, from the end of one to the end of the next."""

    def __init__(self):
        self.seconds, self._last = [], None

    def on_train_step_end(self, run_context):
        now = time.perf_counter()
        if self._last is not None:
            self.seconds.append(now - self._last)
        self._last = now


def host_copies(network, images):
    """Returns the milliseconds of copying what a recorded step holds: the pictures and the first five parameters."""
    arrays = [images.numpy(), *(parameter.detach().numpy() for parameter in list(network.parameters())[:5])]
    return 1000 * seconds(lambda: [array.copy() for array in arrays], 200)


def collected_step(steps, batch_size, threads):
    """Prints what steps of LeNet-5 cost; returns the milliseconds of a recorded one beyond host copies."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    images, labels = torch.rand(batch_size, 1, 32, 32), torch.randint(0, 10, (batch_size,))
    data = [(images, labels)] * steps
    network = LeNet5()
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), lr=0.01))
    model.train(1, data[:50])
    plain = Clock()
    model.train(1, data, plain)
    with tempfile.TemporaryDirectory() as folder:
        timed = Timed(folder, COLLECT_FREQ)
        model.train(1, data, timed)
    numbers = np.arange(1, steps + 1)
    due = numbers % COLLECT_FREQ == 0
    wall, processor = 1000 * np.array(timed.wall), 1000 * np.array(timed.processor)
    step = 1000 * float(np.median(plain.seconds))
    recorded, between = float(np.median(wall[due])), float(np.median(wall[~due]))
    copies = host_copies(network, images)
    share = (recorded + (COLLECT_FREQ - 1) * between) / (COLLECT_FREQ * step)
    print(f"a LeNet-5 step of {batch_size} pictures            {step:8.3f} ms")
    print(f"the first step, with the graph and the lineage {wall[0]:8.3f} ms")
    print(f"a recorded step                               {recorded:8.3f} ms ({np.median(processor[due]):.3f} of CPU)")
    print(f"  of which host copies                        {copies:8.3f} ms")
    print(f"a step between                                {between:8.3f} ms")
    print(f"share of training at collect_freq={COLLECT_FREQ}          {100 * share:8.2f} %")
    return recorded - copies


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--training-steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print(f"{'a step with':45s} {'ms':>8s} {'CPU ms':>8s} {'copies':>8s} {'beyond copies':>14s}")
    beyond = []
    for name, case in CASES.items():
        wall, processor, copies = step_cost(case, options.steps)
        beyond.append(wall - copies)
        print(f"{name:45s} {wall:8.3f} {processor:8.3f} {copies:8.3f} {beyond[-1]:14.3f}")
    growth = soak(options.records)
    beyond.append(collected_step(options.training_steps, options.batch_size, options.threads))
    if max(beyond) > LIMIT_MILLISECONDS or growth > 64:
        raise SystemExit(f"over the limit of {LIMIT_MILLISECONDS} ms beyond host copies, or of 64 MiB of growth")


if __name__ == "__main__":
    main()
