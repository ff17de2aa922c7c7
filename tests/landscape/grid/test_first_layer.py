"""Surveys whose first layer is computed once for a plane: the same file in any order, process and number of calls."""

import hashlib

import numpy as np
import pytest
import torch
from torch import nn

from landscape import Landscape, MeasurementPlan, evaluate, random_plane
from workers.measurement_plan import plan_text


@pytest.fixture(autouse=True)
def fixed_date(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def perceptron():
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(196, 20), nn.Tanh(), nn.Linear(20, 10))
    data = (torch.randn(100, 1, 14, 14, generator=generator), torch.randint(0, 10, (100,), generator=generator))
    return nn.CrossEntropyLoss(), network, data, {}


def measure(output, *, size=7, device_ids=(0,), callback_fn=perceptron, **options):
    plane = random_plane(perceptron()[1], seed=0)
    return evaluate(
        plane, callback_fn, size=size, output=output, device_ids=list(device_ids), progress=False, **options
    )


def interrupted(after):
    """Returns a callback_fn whose loss is stopped by the user."""
    calls = []

    def callback_fn():
        loss, network, data, metrics = perceptron()

        def counted(outputs, targets):
            calls.append(0)
            if len(calls) == after:
                raise KeyboardInterrupt
            return loss(outputs, targets)

        return counted, network, data, metrics

    return callback_fn


@pytest.mark.slow
def test_the_plan_says_so_and_gives_the_same_file_and_nearly_the_plain_ones(tmp_path):
    first = measure(tmp_path / "first.h5", compile=False)
    plan = MeasurementPlan.from_json(first.attributes["measurement_plan"])
    assert plan.first_layer
    assert "the first layer computed once for all points" in plan_text(plan.to_json())
    assert digest(measure(tmp_path / "again.h5", compile=False, plan=first.path).path) == digest(first.path)
    plain = measure(None, plan=MeasurementPlan(plan.batch_size, plan.threads))
    np.testing.assert_allclose(first.loss, plain.loss, rtol=3e-6)


def test_an_interrupted_survey_goes_on_and_leaves_the_same_file(tmp_path):
    plan = MeasurementPlan(100, 1, first_layer=True)
    whole = measure(tmp_path / "whole.h5", callback_fn=interrupted(10**9), plan=plan)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path / "parts.h5", callback_fn=interrupted(90), plan=plan)
    unfinished = Landscape.load(tmp_path / "parts.h5")
    assert not unfinished.complete
    assert np.isfinite(unfinished.loss).any()
    parts = measure(tmp_path / "parts.h5", callback_fn=interrupted(10**9))
    assert parts.attributes["measurement_plan"]["first_layer"]
    assert digest(parts.path) == digest(whole.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan",
    [
        MeasurementPlan(64, 1, first_layer=True),
        MeasurementPlan(50, 1, compile=True, compiler="AOTInductor", first_layer=True),
    ],
)
def test_two_ray_actors_write_the_same_file_as_this_process(plan, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    how = {"sampling": "adaptive", "tolerance": 0.05, "size": 17, "plan": plan, "compile": "auto"}
    first = measure(tmp_path / "first.h5", **how)
    actors = measure(tmp_path / "actors.h5", device_ids=(0, 1), **how)
    assert actors.report.workers == 2
    assert actors.attributes["measurement_plan"] == plan.to_json()
    assert digest(actors.path) == digest(first.path)
