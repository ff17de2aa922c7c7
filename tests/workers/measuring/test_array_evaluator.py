"""Networks that take their weights as NumPy arrays, whatever the framework."""

import contextlib

import numpy as np
import pytest

from collectors.networks.weight_space import TensorInfo, WeightSpace
from workers.evaluator import MeasurementSetup
from workers.measurement_plan import MeasurementPlan
from workers.measuring.array_evaluator import ArrayEvaluator
from workers.measuring.totals import batch_loss
from workers.samples.batches import Batch
from workers.samples.data_sets import ReadSet
from workers.samples.samples import Samples


class Line:
    """A network of one weight, where its framework computes."""

    space = WeightSpace("keras", "Line", (TensorInfo("slope", (1,), "float32", "parameter", trainable=True),))

    def __init__(self, device):
        self.device, self._slope = device, np.ones(1, np.float32)

    def read(self):
        return {"slope": self._slope.copy()}

    def write(self, state):
        self._slope = np.asarray(state["slope"], np.float32)

    def forward(self, inputs):
        return inputs * self._slope

    def settings(self, threads):
        return contextlib.nullcontext()

    def close(self):
        pass


def measured_on(device, of_worker):
    batch = Batch(np.arange(4, dtype=np.float32), np.ones(4, np.float32), 4)
    loss = batch_loss(lambda outputs, targets: ((outputs - targets) ** 2).mean())
    sets, setup = (
        [ReadSet("", Samples([batch], batch), [])],
        MeasurementSetup(device=of_worker, plan=MeasurementPlan(4)),
    )
    with contextlib.closing(ArrayEvaluator(Line(device), sets, [loss], {}, setup)) as evaluator:
        return [note for note in evaluator.description.notes if "GPU" in note]


def test_one_line_says_that_a_framework_was_set_up_without_the_gpu():
    with pytest.warns(UserWarning, match=r"has a GPU \(cuda:0\), but keras was set up without it, so .* on the CPU"):
        assert len(measured_on("cpu", "cuda:0")) == 1
    assert measured_on("gpu", "cuda:0") == measured_on("cpu", "cpu") == []
