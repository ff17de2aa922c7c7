"""Which networks are compiled, and in which batches."""

import pytest
import torch
from torch import nn

from workers.measurement_plan import MeasurementPlan, Workload
from workers.measuring.totals import run_batches
from workers.samples.batches import Batch
from workers.samples.samples import Samples
from workers.torch.compile_record import CACHE_VARIABLE, CompileCache
from workers.torch.compiling import PlanChooser, SettledPlan
from workers.torch.losses import split_into_samples


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def chooser_of(network, inputs, count=4096):

    batch = Batch(inputs(count), torch.zeros(count, dtype=torch.long), count)
    loss = split_into_samples(nn.CrossEntropyLoss())
    samples = Samples([batch], batch)

    def run(network, batches):
        with torch.no_grad():
            return run_batches(network, batches, loss, {})

    return PlanChooser(network.eval(), samples, torch.device("cpu"), run), samples


def test_no_perceptron_on_a_guess():
    """Compiled ones were slower, and compiling took 11 CPU seconds."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 5))
    chooser, samples = chooser_of(network, lambda count: torch.randn(count, 36))
    settled = chooser.from_tuning(MeasurementPlan(256), 1000.0, Workload("auto", 1e9))
    assert settled.plan.reason == "not compiled: compiled code is not clearly faster"
    record = CompileCache(network, MeasurementPlan(256), samples, torch.device("cpu")).record()
    assert (record.compiled, record.speed_up, record.missed_seconds) == (False, 1.0, 0.0)


@pytest.mark.parametrize(
    ("network", "inputs", "expected"),
    [
        # The largest activation of LeNet-5 is 6 x 28 x 28 numbers, of ResNet-20 16 x 32 x 32.
        (lambda: nn.Sequential(nn.Conv2d(1, 6, 5), nn.Flatten(), nn.Linear(4704, 3)), (1, 32, 32), 256),
        (lambda: nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.Flatten(), nn.Linear(16384, 3)), (1, 32, 32), 64),
        (lambda: nn.Sequential(nn.Linear(36, 9), nn.GELU(), nn.Linear(9, 5)), (36,), 1024),
    ],
)
def test_compiled_batches_stay_in_a_cache(network, inputs, expected):
    chooser, _ = chooser_of(network(), lambda count: torch.randn(count, *inputs), count=2048)
    assert chooser._compiled_batch_size(64) == expected
    assert chooser._compiled_batch_size(None) is None


@pytest.mark.parametrize("eager", [16, 64, 1000, 4096])
def test_eager_and_compiled_code_are_compared_on_as_many_samples(monkeypatch, eager):
    """Of a few small batches everything stays in a cache, which made eager code look faster than it is."""
    network = nn.Sequential(nn.Conv2d(1, 6, 5), nn.Flatten(), nn.Linear(4704, 3)).eval()
    chooser, samples = chooser_of(network, lambda count: torch.randn(count, 1, 32, 32))
    counts = []

    def counted(*ways):
        for run in ways[:2]:
            counts.append(0)
            run()
        return 1.0

    def run(_network, batches):
        counts[-1] += sum(batch.size for batch in batches)

    monkeypatch.setattr("workers.torch.compiling.speed_up", counted)
    monkeypatch.setattr(chooser, "_run", run)
    settled = SettledPlan(MeasurementPlan(256, compile=True), samples, network)
    factor = chooser._speed_up(settled, samples, MeasurementPlan(eager))
    assert counts[1] == 1024
    assert 1024 <= counts[0] < 1024 + eager
    assert factor == counts[1] / counts[0]
