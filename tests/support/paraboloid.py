"""An evaluator without a framework: workers that measure it start in a moment."""

import os
import threading

import numpy as np

from collectors.networks.weight_space import TensorInfo, WeightSpace
from workers.evaluator import Evaluator, EvaluatorDescription
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan


class Paraboloid(Evaluator):
    """The squared distance from zero; raises where the first coordinate is large, ends its process where very small."""

    def __init__(self, size=3, samples="0" * 64):
        space = WeightSpace("none", "Paraboloid", (TensorInfo("x", (size,), "float64", "parameter", True),))
        options, plan = MeasurementOptions(), MeasurementPlan()
        self._description = EvaluatorDescription(space, ("loss",), 1, samples, options, False, plan, "cpu")

    @property
    def description(self):
        return self._description

    def load(self, origin, directions, buffers):
        self.origin = origin["x"]
        self.directions = np.array([direction["x"] for direction in directions])

    def measure(self, points):
        return {"loss": np.array([self._loss(point) for point in self.origin + points @ self.directions])}

    def measure_state(self, parameters, buffers):
        return {"loss": self._loss(parameters["x"])}

    def _loss(self, x):
        if x[0] < -10:
            os._exit(13)
        if x[0] > 10:
            raise ValueError("the trap is sprung")
        return float(np.square(x).sum())


def paraboloid_plane():
    return {"x": np.zeros(3)}, [{"x": np.array([1.0, 0, 0])}, {"x": np.array([0, 1.0, 2.0])}], {}


def different_samples():
    """Process ids stand for a seed that nobody set."""
    return Paraboloid(samples=f"{os.getpid():064d}")


def different_networks():
    return Paraboloid(size=os.getpid())


def locked():
    lock = threading.Lock()

    def callback():
        with lock:
            return Paraboloid()

    return callback
