"""A small network in NumPy that writes down every point as soon as it is measured, and traps at chosen points."""

import ctypes
import functools
import os
import resource
import time
from pathlib import Path

import numpy as np

from landscape import MeasurementPlan, random_plane
from workers.function_evaluator import FunctionEvaluator

PLAN = MeasurementPlan()
X_RANGE, Y_RANGE = (-1.0, 1.2), (-0.9, 1.1)


class LoggedNetwork(FunctionEvaluator):
    """Two layers, fitted to a wave.

    Args:
        log: the file that gets a line for every measured point: when, by which process, and where.
        seconds: how long a point takes at least; the rest is slept.
        raises_at: grid coordinates at which the loss raises.
        crashes_at: grid coordinates at which the process dies of a segmentation fault.
    """

    def __init__(self, log, seconds, raises_at=(), crashes_at=()):
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._seconds = seconds
        self._raises_at, self._crashes_at = set(map(tuple, raises_at)), set(map(tuple, crashes_at))
        inputs = np.linspace(-2, 2, 64)[:, None]
        targets = np.sin(3 * inputs)

        def loss(weights):
            hidden = np.tanh(inputs @ weights["first"] + weights["bias"])
            return float(np.mean((hidden @ weights["second"] - targets) ** 2))

        super().__init__(loss, weights(), num_samples=64, samples=(inputs, targets))

    def measure(self, points):
        rows = [self._measure_one(point) for point in points]
        return {"loss": np.concatenate([row["loss"] for row in rows])}

    def _measure_one(self, point):
        start = time.monotonic()
        place = tuple(float(value) for value in point)
        if place in self._raises_at:
            raise FloatingPointError("the loss overflows here")
        if place in self._crashes_at:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            ctypes.string_at(0)
        row = super().measure(point[None])
        time.sleep(max(0.0, start + self._seconds - time.monotonic()))
        line = f"{time.time()!r} {os.getpid()} {place[0]!r} {place[1]!r}\n"
        os.write(self._log, line.encode())
        return row


def weights():
    """Returns the origin: parameters that fit the wave a little."""
    generator = np.random.default_rng(7)
    return {
        "first": generator.normal(size=(1, 24)) * 2,
        "bias": generator.normal(size=24),
        "second": generator.normal(size=(24, 1)) * 0.3,
    }


def plane():
    """Returns the plane that all trials measure."""
    return random_plane(weights(), network=LoggedNetwork(os.devnull, 0.0).description.space, seed=3)


def axes(size):
    """Returns x and y of a grid of size by size points; the origin is none of them."""
    return np.linspace(*X_RANGE, size), np.linspace(*Y_RANGE, size)


def callback_of(log, seconds, raises_at=(), crashes_at=()):
    """Returns a callback_fn."""
    return functools.partial(LoggedNetwork, str(Path(log)), seconds, raises_at, crashes_at)
