"""What recording costs the training thread: a step of LeNet-5 with and without a SummaryCollector.

Run it by hand: ``python tests/benchmarks/collector_cost.py``.
"""

import argparse
import tempfile
import time

import numpy as np
import torch
from move_cost import seconds
from networks import LeNet5
from torch import nn

from collectors.callbacks.callback import Callback
from collectors.model.model import Model
from collectors.recording.summary_collector import SummaryCollector

COLLECT_FREQ = 10
LIMIT_MILLISECONDS = 1.0


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


def main():
    """Prints the measurements and fails when a recorded step costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    images, labels = torch.rand(options.batch_size, 1, 32, 32), torch.randint(0, 10, (options.batch_size,))
    data = [(images, labels)] * options.steps
    network = LeNet5()
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), lr=0.01))
    model.train(1, data[:50])
    plain = Clock()
    model.train(1, data, plain)
    with tempfile.TemporaryDirectory() as folder:
        timed = Timed(folder, COLLECT_FREQ)
        model.train(1, data, timed)
    numbers = np.arange(1, options.steps + 1)
    due = numbers % COLLECT_FREQ == 0
    wall, processor = 1000 * np.array(timed.wall), 1000 * np.array(timed.processor)
    step = 1000 * float(np.median(plain.seconds))
    recorded, between = float(np.median(wall[due])), float(np.median(wall[~due]))
    copies = host_copies(network, images)
    share = (recorded + (COLLECT_FREQ - 1) * between) / (COLLECT_FREQ * step)
    print(f"a LeNet-5 step of {options.batch_size} pictures            {step:8.3f} ms")
    print(f"the first step, with the graph and the lineage {wall[0]:8.3f} ms")
    print(f"a recorded step                               {recorded:8.3f} ms ({np.median(processor[due]):.3f} of CPU)")
    print(f"  of which host copies                        {copies:8.3f} ms")
    print(f"a step between                                {between:8.3f} ms")
    print(f"share of training at collect_freq={COLLECT_FREQ}          {100 * share:8.2f} %")
    if recorded - copies > LIMIT_MILLISECONDS:
        raise SystemExit(f"over the limit of {LIMIT_MILLISECONDS} ms beyond host copies")


if __name__ == "__main__":
    main()
