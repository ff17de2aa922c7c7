"""A tuned plan is kept by network and machine, unless other programs disturbed it."""

import itertools
import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from worker_cases import classes, features, mlp

from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.torch import kept_plan, planning
from workers.torch.compile_record import CACHE_VARIABLE
from workers.torch.evaluator import TorchEvaluator

TUNED = MeasurementPlan(23, 1)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "summary-landscape" / "torchinductor" / "summary_landscape" / "plans"


@pytest.fixture
def tuned(monkeypatch):
    """Counts how often plans are tuned."""
    calls = []

    def tune(*_arguments, **options):
        calls.append(options)
        return TUNED, 1000.0

    monkeypatch.setattr(planning, "tune", tune)
    return calls


def clock(monkeypatch, share):
    """Lets the thread have that share of the time."""
    wall, thread = itertools.count(0.0, 1.0), itertools.count(0.0, share)
    times = SimpleNamespace(perf_counter=wall.__next__, thread_time=thread.__next__)  # time: a false clock
    monkeypatch.setattr(kept_plan, "time", times)


def plan_of(network=None, data=None, threads=1, precision="float32"):
    data = (features(), classes()) if data is None else data
    setup = MeasurementSetup(MeasurementOptions(precision=precision), threads=threads)
    evaluator = TorchEvaluator(nn.CrossEntropyLoss(), mlp() if network is None else network, data, {}, setup)
    evaluator.close()
    return evaluator.description.plan


def test_the_second_run_takes_it_without_timing(monkeypatch, tuned, folder):
    clock(monkeypatch, share=1.0)
    plan = plan_of()
    assert (plan.batch_size, len(tuned)) == (23, 1)
    assert plan_of() == plan
    assert len(tuned) == 1
    (path,) = folder.glob("*.json")
    assert json.loads(path.read_text())["samples_per_second"] == 1000.0


def test_another_network_or_shape_or_machine_is_tuned(monkeypatch, tuned):
    clock(monkeypatch, share=1.0)
    plan_of()
    plan_of(nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5)))
    plan_of(data=(features()[:40], classes()[:40]))
    plan_of(threads=2)
    plan_of(precision="bfloat16")
    monkeypatch.setattr(torch, "__version__", "another")
    plan_of()
    assert len(tuned) == 6
    plan_of()
    assert len(tuned) == 6


def test_a_disturbed_one_is_not_kept(monkeypatch, tuned, folder):
    clock(monkeypatch, share=0.5)
    assert plan_of() == plan_of()
    assert len(tuned) == 2
    assert not folder.exists()


@pytest.mark.slow
def test_none_counts_for_ever(monkeypatch, tuned):
    clock(monkeypatch, share=1.0)
    for _ in range(kept_plan._MOST_RUNS + 1):
        plan_of()
    assert len(tuned) == 2


DAMAGED = (
    "", "[]", "{}", '{"batch_size": 0}', '{"runs": 1, "batch_size": "many"}', "[" * 100_000, '{"a":' * 100_000, "\x00",
    '{"batch_size": 5, "threads": 1, "channels_last": false, "samples_per_second": NaN, "runs": 1}',
    '{"batch_size": 5, "threads": 1, "channels_last": false, "samples_per_second": 9, "runs": [1]}',
)  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_one_is_tuned_anew(monkeypatch, tuned, folder, text):
    clock(monkeypatch, share=1.0)
    plan_of()
    (path,) = folder.glob("*.json")
    path.write_text(text)
    plan_of()
    plan_of()
    assert len(tuned) == 2
