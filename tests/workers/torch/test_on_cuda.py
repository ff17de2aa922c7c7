"""What only a GPU can show. Those of CUDA graphs were written without one and have never run: expect to mend them.

``python tests/benchmarks/gpu.py`` runs them with the project's other tests for GPUs.
"""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from worker_cases import case, classes, features, plane_of

from workers.callback_fn import make_evaluator
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.torch.settings import measurement_settings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [1.0, 1.0]])
FIRST = torch.device("cuda", 0)


def measured(name, metrics=None, device="cuda:0", plan=None, precision="float32", data=None):
    loss, network, dataset = case(name)
    plane = plane_of(network)
    options = MeasurementOptions(precision=precision)
    setup = MeasurementSetup(options, plan=plan or MeasurementPlan(16), device=device)
    evaluator = make_evaluator((loss, network, data or dataset, metrics or {}), setup)
    try:
        evaluator.load(*plane)
        return evaluator.measure(POINTS), evaluator.description
    finally:
        evaluator.close()


def accuracy_that_waits(outputs, targets):
    return torch.tensor((outputs.argmax(1) == targets).double().mean().item(), device=outputs.device)


class Kept:
    """Keeps the outputs of all batches until the end, as metrics of torchmetrics may."""

    def reset(self):
        self.outputs = []

    def update(self, outputs, _targets):
        self.outputs.append(outputs)

    def compute(self):
        return torch.cat(self.outputs).double().mean()


@pytest.mark.parametrize("name", ["plain", "batchnorm", "regression", "frozen layer", "float64"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_gpu_gives_what_the_cpu_gives(name, compiled):
    metrics = {"mean": Kept()}
    expected, _ = measured(name, metrics, device="cpu")
    skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
    found, description = measured(name, metrics, plan=MeasurementPlan(16, compile=compiled))
    assert description.plan.compile is compiled, description.notes
    assert torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] == skipped
    for key, values in expected.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-4, atol=1e-7)


def test_a_metric_that_waits_changes_nothing():
    plan = MeasurementPlan(16, compile=True)
    expected, _ = measured("plain", plan=plan)
    found, _ = measured("plain", {"accuracy": accuracy_that_waits}, plan=plan)
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_the_second_gpu_alone():
    plan = MeasurementPlan(16, compile=True)
    expected, _ = measured("plain", plan=plan)
    found, description = measured("plain", device="cuda:1", plan=plan)
    assert description.plan.compile
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)
    assert torch.cuda.current_device() == 0


def test_samples_beyond_the_gpus_memory(monkeypatch):
    how = {"data": (features(200_000), classes(200_000)), "plan": MeasurementPlan(10_000)}
    expected, _ = measured("plain", **how)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1 << 20, 1 << 37))
    # Earlier tests leave memory that is reserved and free, which is room as well.
    monkeypatch.setattr(torch.cuda, "memory_reserved", torch.cuda.memory_allocated)
    found, description = measured("plain", **how)
    assert any("do not fit on cuda:0" in note for note in description.notes), description.notes
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)


@pytest.mark.parametrize(("precision", "smallest", "largest"), [("tf32", 1e-8, 2e-3), ("bfloat16", 1e-7, 2e-2)])
def test_a_lower_precision_shows_and_leaves_no_trace(precision, smallest, largest):
    expected, _ = measured("batchnorm")
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    found, description = measured("batchnorm", precision=precision)
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before
    assert description.plan.precision == precision
    assert smallest < np.abs(found["loss"] / expected["loss"] - 1).max() < largest
    again, _ = measured("batchnorm", precision=precision)
    assert again["loss"].tobytes() == found["loss"].tobytes()


def test_full_precision_whatever_the_user_has_set():
    torch.manual_seed(0)
    layer = nn.Conv2d(64, 64, 3).to(FIRST)
    images = torch.randn(8, 64, 16, 16, device=FIRST)
    expected = copy.deepcopy(layer).double()(images.double())
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    try:
        with measurement_settings([FIRST], 1):
            found = layer(images)
        assert torch.backends.cudnn.conv.fp32_precision == "tf32"
    finally:
        torch.backends.cudnn.conv.fp32_precision = before
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
