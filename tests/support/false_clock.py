"""A clock that goes on only where a test says so."""

import functools
from types import SimpleNamespace

from workers.measuring import tuning

# Where it is found out how long a pass takes, and whether a budget is spent.
_READERS = (
    "landscape.record.driver",
    "landscape.record.run",
    "workers.measuring.network_evaluator",
    "workers.measuring.measured_set",
    "workers.pools.in_process",
)


class FalseClock:
    """Takes the place of the clock by which surveys in this process keep a budget and know how long a pass takes.

    What is measured lets it go on by a number of seconds, which take no time. It shows whole multiples of 1/1024 s
    exactly, so that a test can say which point is the last one of a budget.
    """

    def __init__(self, monkeypatch):
        self.now = 1024.0
        for module in _READERS:
            monkeypatch.setattr(f"{module}.time", SimpleNamespace(perf_counter=self))  # time: a false clock
        monkeypatch.setattr("workers.torch.planning.tune", functools.partial(tuning.tune, clock=self))

    def __call__(self):
        return self.now

    def go_on(self, seconds):
        self.now += seconds
