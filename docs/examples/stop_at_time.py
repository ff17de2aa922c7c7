"""A callback of your own: stop training when its time is up.

Run it with ``python docs/examples/stop_at_time.py``: it trains on handwritten digits for one second.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from collectors import Callback, LossMonitor, Model, RunContext


class StopAtTime(Callback):
    """Stops training after the step in which the time is up; at least one step runs.

    Args:
        seconds: how long training may take.
        clock: tells the time in seconds; a monotonic one does not jump when the computer's clock is set.

    Attributes:
        stopped_at: (epoch, step) where it asked for the stop, or None.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        self.stopped_at: tuple[int, int] | None = None

    def on_train_begin(self, run_context: RunContext) -> None:
        """Starts the time."""
        self.begin_time = self.clock()
        self.stopped_at = None

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Asks for a stop when the time is up."""
        if self.clock() - self.begin_time >= self.seconds:
            cb_params = run_context.original_args()
            self.stopped_at = (cb_params.cur_epoch_num, cb_params.cur_step_num)
            run_context.request_stop()


def main(seconds: float = 1.0) -> StopAtTime:
    """Trains for so many seconds and returns the callback."""
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    dataset = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.Adam(network.parameters()))
    stop_at_time = StopAtTime(seconds)
    model.train(1_000_000, DataLoader(dataset, batch_size=64, shuffle=True), [LossMonitor(100), stop_at_time])
    return stop_at_time


if __name__ == "__main__":
    main()
