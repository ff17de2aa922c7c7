"""A small network in NumPy that writes down every point as soon as it is measured, and traps at chosen points."""

import ctypes
import functools
import os
import resource
import time

import numpy as np
from waiting import Gate

from landscape import MeasurementPlan, random_plane
from workers.function_evaluator import FunctionEvaluator

PLAN = MeasurementPlan()
X_RANGE, Y_RANGE = (-1.0, 1.2), (-0.9, 1.1)


class PointLog:
    """The file that gets a line for every measured point: when, by which process, and where.

    Each process waits at the gate, if there is one, after a number of points.
    """

    def __init__(self, path, seconds, gate=None, before_gate=0):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._seconds, self._gate, self._before_gate = seconds, gate, before_gate

    def add(self, point):
        """Takes as long as a point does, and notes it as measured."""
        time.sleep(self._seconds)  # time: what a point costs, which limits how many of them are a chunk
        now = time.time()  # time: docs/stress.md reports how long recovering takes
        os.write(self._file, f"{now!r} {os.getpid()} {float(point[0])!r} {float(point[1])!r}\n".encode())
        self._before_gate -= 1
        if self._gate is not None and self._before_gate <= 0:
            gate, self._gate = Gate(self._gate), None
            gate.pass_through()


class LoggedNetwork(FunctionEvaluator):
    """Two layers, fitted to a wave; at some grid coordinates the loss raises, at others the process dies of a fault."""

    def __init__(self, log, raises_at=(), crashes_at=()):
        self._log = log
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
        place = tuple(float(value) for value in point)
        if place in self._raises_at:
            raise FloatingPointError("the loss overflows here")
        if place in self._crashes_at:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            ctypes.string_at(0)
        row = super().measure(point[None])
        self._log.add(place)
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
    return random_plane(weights(), network=make_network(os.devnull, 0.0).description.space, seed=3)


def axes(size):
    """Returns x and y of a grid of size by size points; the origin is none of them."""
    return np.linspace(*X_RANGE, size), np.linspace(*Y_RANGE, size)


def make_network(log, seconds, raises_at=(), crashes_at=(), gate=None, before_gate=0):
    """Returns a network that has a log; the arguments are theirs."""
    return LoggedNetwork(PointLog(log, seconds, gate, before_gate), raises_at, crashes_at)


def callback_of(log, seconds, **more):
    """Returns a callback_fn; the arguments are those of ``make_network``."""
    return functools.partial(make_network, str(log), seconds, **more)
