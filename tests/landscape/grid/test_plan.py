"""The measurement plan: the same seed and plan give the same file, and no clock shows in it."""

import functools
import hashlib

import numpy as np
import pytest
import torch
from false_clock import FalseClock
from landscape_examples import build, write_landscape
from torch import nn

from landscape import Landscape, MeasurementPlan, evaluate, random_plane
from landscape.errors import LandscapeNotFoundError
from landscape.grid.landscape_file import read_landscape
from landscape.record.checks import PointStatus
from landscape.record.option import check_plan
from workers.measurement_plan import plan_text


@pytest.fixture(autouse=True)
def fixed_date(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def images():
    """A network whose last digits depend on threads, layout and batch size."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 49, 10))
    data = (torch.randn(100, 1, 16, 16, generator=generator), torch.randint(0, 10, (100,), generator=generator))
    return nn.CrossEntropyLoss(), network, data, {}


def measure(output, callback_fn=images, *, size=5, device_ids=(0,), **options):
    plane = random_plane(callback_fn()[1], seed=0)
    return evaluate(
        plane, callback_fn, size=size, output=output, device_ids=list(device_ids), progress=False, **options
    )


@pytest.mark.slow
def test_how_long_a_pass_takes_does_not_show_in_the_file(tmp_path, monkeypatch):
    # One core, one batch and no images: there is one way to compute, and only the clock differs.
    monkeypatch.setattr("workers.pools.in_process.available_cores", lambda: (0,))
    # No later run takes over what is tuned by a false clock.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    clock = FalseClock(monkeypatch)

    def slow(seconds):
        def callback_fn():
            torch.manual_seed(0)
            network = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 10))

            def loss(outputs, targets):
                clock.go_on(seconds)
                return nn.functional.cross_entropy(outputs, targets)

            return loss, network, (torch.randn(20, 64), torch.arange(20) % 10), {}

        return callback_fn

    landscapes = [measure(tmp_path / f"{seconds}.h5", slow(seconds), size=3) for seconds in (0.001, 0.06)]
    assert [landscape.attributes["measurement_plan"]["compile"] for landscape in landscapes] == [False, False]
    assert digest(landscapes[0].path) == digest(landscapes[1].path)
    # What was measured is said where it belongs: in the forecast of that one run.
    assert "not compiled (compiling would not pay off; 9 points take" in str(landscapes[1].report.forecast)


def test_a_plan_of_a_file_that_is_missing():
    with pytest.raises(LandscapeNotFoundError, match=r"there is no landscape file .*missing\.h5"):
        measure(None, plan="missing.h5")


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({}, r"plan must be a landscape file that says how it was measured \(an imported one does not\), but got"),
        (
            {"measurement_plan": {"batch_size": 8, "speed": 3}},
            r"plan must be .* can be used here, .*file.h5 cannot \(measurement_plan has unknown keys \['speed'\]",
        ),
    ],
)
def test_a_file_without_a_plan_that_can_be_used(attributes, text, tmp_path):
    data = build()
    data.attributes.update(attributes)
    write_landscape(tmp_path / "file.h5", data)
    with pytest.raises(ValueError, match=text):
        measure(None, plan=tmp_path / "file.h5")


@pytest.mark.slow
def test_a_landscape_that_is_continued_with_another_plan_says_so(tmp_path):
    path = tmp_path / "landscape.h5"
    with pytest.warns(UserWarning, match="budget"):
        measure(path, plan=MeasurementPlan(64), budget=1e-6)
    continued = measure(path, plan=MeasurementPlan(32))
    (note,) = Landscape.load(path).attributes["notes"]
    assert note == (
        "the landscape was continued in another way: first in batches of 64 samples, 1 thread per worker, not "
        "compiled; then in batches of 32 samples, 1 thread per worker, not compiled."
    )
    assert continued.attributes["measurement_plan"]["batch_size"] == 32
    # Nothing is left to measure, so another plan changes nothing.
    measure(path, plan=MeasurementPlan(16))
    assert Landscape.load(path).attributes["measurement_plan"]["batch_size"] == 32


@pytest.mark.parametrize(
    ("again", "more"),
    [(PointStatus.FAILED, {}), (PointStatus.INTERPOLATED, {"sampling": "adaptive", "tolerance": 1e-9})],
)
def test_what_a_complete_file_still_lacks_is_measured_in_another_plan(again, more, tmp_path):
    path = tmp_path / "landscape.h5"
    measure(path, size=3, plan=MeasurementPlan(64))
    data = read_landscape(path)
    data.status[1, 1] = again
    write_landscape(path, data)
    assert Landscape.load(path).complete
    measure(path, size=3, plan=MeasurementPlan(32), **more)
    found = Landscape.load(path)
    assert (found.status == PointStatus.MEASURED).all()
    assert found.attributes["measurement_plan"]["batch_size"] == 32
    assert any("continued in another way: first in batches of 64" in note for note in found.attributes["notes"])


def perceptron():
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(196, 20), nn.Tanh(), nn.Linear(20, 10))
    data = (torch.randn(100, 1, 14, 14, generator=generator), torch.randint(0, 10, (100,), generator=generator))
    return nn.CrossEntropyLoss(), network, data, {}


measure_perceptron = functools.partial(measure, callback_fn=perceptron, size=7)


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
def test_a_first_layer_computed_once_is_in_the_plan_and_gives_the_same_file_and_nearly_the_plain_losses(tmp_path):
    first = measure_perceptron(tmp_path / "first.h5", compile=False)
    plan = MeasurementPlan.from_json(first.attributes["measurement_plan"])
    assert plan.first_layer
    assert "the first layer computed once for all points" in plan_text(plan.to_json())
    assert digest(measure_perceptron(tmp_path / "again.h5", compile=False, plan=first.path).path) == digest(first.path)
    for given in (plan, first.path, str(first.path), first.path.as_uri()):
        assert check_plan("plan", given) == plan
    plain = measure_perceptron(None, plan=MeasurementPlan(plan.batch_size, plan.threads))
    np.testing.assert_allclose(first.loss, plain.loss, rtol=3e-6)


def test_an_interrupted_survey_with_a_first_layer_goes_on_and_leaves_the_same_file(tmp_path):
    plan = MeasurementPlan(100, 1, first_layer=True)
    whole = measure_perceptron(tmp_path / "whole.h5", callback_fn=interrupted(10**9), plan=plan)
    with pytest.raises(KeyboardInterrupt):
        measure_perceptron(tmp_path / "parts.h5", callback_fn=interrupted(90), plan=plan)
    unfinished = Landscape.load(tmp_path / "parts.h5")
    assert not unfinished.complete
    assert np.isfinite(unfinished.loss).any()
    parts = measure_perceptron(tmp_path / "parts.h5", callback_fn=interrupted(10**9))
    assert parts.attributes["measurement_plan"]["first_layer"]
    assert digest(parts.path) == digest(whole.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("callback_fn", "plan"),
    [
        (images, None),
        (perceptron, MeasurementPlan(64, 1, first_layer=True)),
        (perceptron, MeasurementPlan(50, 1, compile=True, compiler="AOTInductor", first_layer=True)),
    ],
)
def test_two_ray_actors_write_the_same_file_as_this_process(callback_fn, plan, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    how = {"sampling": "adaptive", "tolerance": 0.05, "size": 17}
    first = measure(tmp_path / "first.h5", callback_fn, plan=plan, **how)
    actors = measure(tmp_path / "actors.h5", callback_fn, device_ids=(0, 1), plan=plan or first.path, **how)
    assert actors.report.workers == 2
    assert plan is None or actors.attributes["measurement_plan"] == plan.to_json()
    assert digest(actors.path) == digest(first.path)
