"""A PyTorch network that runs out of memory in the middle of a survey, and writes down every point it has measured."""

import functools

import numpy as np
import torch
from hungry_network import HungryNetwork, loader
from logged_network import PointLog
from torch import nn

from landscape import MeasurementPlan, random_plane
from workers.evaluator import MeasurementSetup
from workers.torch.evaluator import TorchEvaluator

PLAN = MeasurementPlan(64)


class LoggedHunger(TorchEvaluator):
    """Measures a ``HungryNetwork`` point by point, at least some seconds for each beside the network's own time."""

    def __init__(self, log, seconds, free):
        torch.set_num_threads(1)
        self._log = PointLog(log, seconds)
        network = HungryNetwork(free)
        super().__init__(nn.CrossEntropyLoss(), network, loader(), {}, MeasurementSetup(plan=PLAN))

    def measure(self, points):
        rows = [self._measure_one(point) for point in points]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def _measure_one(self, point):
        row = super().measure(point[None])
        self._log.add(point)
        return row


def plane():
    return random_plane(HungryNetwork(), seed=1)


def callback_of(log, seconds, free=10**9):
    return functools.partial(LoggedHunger, str(log), seconds, free)
