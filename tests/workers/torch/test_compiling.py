"""Compilation: where it pays off, that it changes no value, and what is remembered of it."""

from __future__ import annotations

import math
import os
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from worker_cases import classes, evaluator_of, features, images, mlp, plane_of, seeded

from landscape import evaluate, random_plane
from landscape.facts import summary_text
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan, Workload, check_compile
from workers.measuring import tuning
from workers.measuring.checks import check_determinism
from workers.measuring.tuning import tune
from workers.pools.open_pool import open_pool
from workers.samples.batches import Batch
from workers.samples.samples import Samples
from workers.samples.torch_samples import place_samples
from workers.torch import packages
from workers.torch.compile_record import CACHE_VARIABLE, CompileCache, CompileRecord, forecast_compile
from workers.torch.compiling import has_images
from workers.torch.evaluator import TorchEvaluator

COMPILER_WARNINGS = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
COLD = CompileRecord(40, 4, 1.4, None, compiled=False)
KNOWN = CompileRecord(40, 4, 1.6, 25)
POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [0.1, 0.1], [0.2, 0.4]])


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "summary-landscape" / "torchinductor"


class Fusible(nn.Module):
    """Many passes over memory that compiled code makes one."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((256,), 0.5))
        self.head = nn.Linear(256, 4)

    def forward(self, inputs):
        for _ in range(24):
            inputs = (inputs * self.scale + 0.1).relu() - 0.2
        return self.head(inputs)


class OtherWhenCompiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4))

    def forward(self, inputs):
        return self.layer(inputs) * (2 if torch.compiler.is_compiling() else 1)


@pytest.mark.parametrize(
    ("record", "workload", "pays", "text"),
    [
        (COLD, Workload("auto", 100), False, "100 points take 10 s on each worker without it, compiling takes 40 s"),
        (COLD, Workload("auto", 2000), True, r"1.40 times as fast \(an estimate\)"),
        (COLD, Workload("auto", 1450), True, "40 s"),
        (COLD, Workload("auto", 1450, workers=2), False, "44 s"),
        (COLD, Workload("auto", 10**6, seconds=60), False, "the budget is 60 s"),
        (KNOWN, Workload("auto", 100), False, "compiling takes 4 s"),
        (KNOWN, Workload("auto", 200), True, r"\(measured before\)"),
        (
            CompileRecord(40, 4, 1.02, 25),
            Workload("auto", 1500),
            False,
            r"^compiled code is not clearly faster: 1.02 times as fast \(measured",
        ),
    ],
)
def test_the_forecast_says_whether_compiling_pays(record, workload, pays, text):
    forecast = forecast_compile(record, 0.1, workload, shapes=1)
    assert forecast.pays is pays
    assert re.search(text, f"{forecast.reason}: {forecast.details}")
    assert not re.search(r"\d", forecast.reason)  # it is kept in the landscape file, whose bytes no clock may change


def test_batches_of_many_shapes_are_never_compiled():
    forecast = forecast_compile(KNOWN, 1, Workload("auto", 10**6), shapes=3)
    assert not forecast.pays
    assert "3 shapes" in forecast.reason


@pytest.mark.slow
@given(st.floats(1e-6, 1e6), st.floats(1, 1e7), st.floats(1, 10), st.booleans(), st.floats(0, 100))
def test_what_pays_for_few_points_pays_for_more(seconds, points, factor, known, missed):
    record = CompileRecord(40, 4, 1.5, 25, compiled=known, missed_seconds=missed)
    workloads = (Workload("auto", count) for count in (points, points * factor))
    few, more = (forecast_compile(record, seconds, workload, shapes=1).pays for workload in workloads)
    assert more >= few


def test_runs_that_were_not_compiled_count():
    """Ten equal runs: one of the first pays for compiling, after which all are compiled."""
    here, compiled = cache_of(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3))), []
    for _ in range(10):
        record = here.record()
        forecast = forecast_compile(record, 0.1, Workload("auto", 110), shapes=1)  # 11 s, of which 3.1 s are saved
        compiled.append(forecast.pays)
        if forecast.pays:
            here.keep(0.2 if record.compiled else 11.0, 1.4, 25)
        else:
            here.keep_missed(forecast.gain)
    assert compiled == [False, False, *[True] * 8]
    assert here.record().compiled


def test_a_network_that_could_not_be_compiled_is_not_tried_in_every_run():
    here = cache_of()
    here.keep_missed(30.0)
    here.keep_failed(20.0)
    forecast = forecast_compile(here.record(), 0.1, Workload("auto", 5000), shapes=1)
    assert (forecast.pays, forecast.reason) == (False, "compiled code could not be used before")
    assert forecast_compile(here.record(), 0.1, Workload("auto", 20_000), shapes=1).pays


def test_a_network_that_was_not_faster_is_looked_at_again_where_that_is_cheap():
    """A record from a disturbed machine must not count for ever."""
    record = CompileRecord(22, 0.5, 0.96, 256)
    assert not forecast_compile(record, 0.1, Workload("auto", 200), shapes=1).pays  # 20 s
    assert forecast_compile(record, 0.1, Workload("auto", 300), shapes=1).pays  # 30 s


def cache_of(network=None, batch_size=25, threads=1, inputs=None):
    inputs = features() if inputs is None else inputs
    batch = Batch(inputs, classes(len(inputs)), len(inputs))
    plan = MeasurementPlan(batch_size, threads)
    return CompileCache(network or mlp(), plan, Samples([batch], batch), torch.device("cpu"))


def test_what_compiling_cost_is_remembered(cache):
    assert not cache_of().record().compiled
    assert not cache.exists()
    cache_of().keep(33.0, 1.7, 25)
    assert cache_of().record() == CompileRecord(33.0, pytest.approx(0.1), 1.7, 25)
    cache_of(batch_size=10).keep(2.5, 1.8, 25)
    assert cache_of().record() == CompileRecord(33.0, pytest.approx(0.1), 1.8, 25)  # 2.5 s: its package was gone
    cache_of().keep(0.05, 1.8, 25)
    assert cache_of().record() == CompileRecord(33.0, 0.05, 1.8, 25)
    cache_of().keep(20.0, 1.5, 10)
    assert cache_of().record() == CompileRecord(20.0, pytest.approx(0.1), 1.5, 10)
    for other in (cache_of(mlp(outputs=5)), cache_of(threads=2), cache_of(inputs=features(20))):
        assert not other.record().compiled


def test_larger_networks_are_expected_to_take_longer():
    deep = nn.Sequential(*(nn.Linear(6, 6) for _ in range(50)))
    assert cache_of(deep).record().cold_seconds > cache_of().record().cold_seconds > 7


def test_the_users_own_cache_folder_is_kept(monkeypatch, tmp_path, cache):
    assert cache_of().folder == cache
    with cache_of().in_use():
        assert os.environ[CACHE_VARIABLE] == str(cache)
    assert CACHE_VARIABLE not in os.environ
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "own"))
    assert cache_of().folder == tmp_path / "own"
    with pytest.raises(KeyError), cache_of().in_use():
        raise KeyError
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "own")


WHOLE = '"warm_seconds": 1, "speed_up": 2, "batch_size": 25'
DAMAGED = (
    "", "{", "[]", '{"speed": 1}', "[" * 100_000, '{"a":' * 100_000, f'{{"cold_seconds": "9", {WHOLE}}}',
    f'{{"cold_seconds": NaN, {WHOLE}}}', f'{{"cold_seconds": -1, {WHOLE}}}', f'{{"cold_seconds": null, {WHOLE}}}',
    f'{{"cold_seconds": 9, "compiled": 1, {WHOLE}}}', f'{{"cold_seconds": 9, {WHOLE.replace("25", "2.5")}}}',
)  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_record_counts_as_none(content):
    here = cache_of()
    here.keep(1, 2, 25)
    here._path.write_text(content)
    assert not here.record().compiled


def writable_by_all(cache):
    cache.mkdir(parents=True)
    cache.chmod(0o777)


def below_what_is_writable_by_all(cache):
    cache.parent.mkdir(parents=True)
    cache.parent.chmod(0o777)


def of_another_user_in_a_sticky_folder(cache):
    cache.mkdir(parents=True)
    cache.parent.chmod(0o1777)
    os.chown(cache, 12345, -1)


def the_users_own_and_writable_by_all(cache):
    writable_by_all(cache)
    os.environ[CACHE_VARIABLE] = str(cache)  # as the fixture leaves it, it is taken away again


@pytest.mark.parametrize(
    "make",
    [
        writable_by_all,
        below_what_is_writable_by_all,
        of_another_user_in_a_sticky_folder,
        the_users_own_and_writable_by_all,
    ],
)
@pytest.mark.parametrize("plan", [MeasurementPlan(25, compile=True), None], ids=["a plan", "tuning"])
def test_code_is_not_run_from_a_folder_in_which_others_can_put_it(make, plan, cache, monkeypatch):
    if make is of_another_user_in_a_sticky_folder and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    monkeypatch.setenv(CACHE_VARIABLE, "")
    make(cache)
    setup = MeasurementSetup(MeasurementOptions(), plan=plan, workload=Workload(True, 1000))
    with pytest.warns(
        UserWarning, match=r"runs eagerly: the folder of compiled code is not safe .*set XDG_CACHE_HOME .*that is"
    ):
        found = TorchEvaluator(nn.CrossEntropyLoss(), mlp(), (features(), classes(50)), {}, setup).description.plan
    assert not found.compile
    assert [path for path in cache.parent.rglob("*") if path.suffix in (".so", ".py")] == []


def test_a_folder_of_an_earlier_version_becomes_this_users_alone(cache):
    cache.mkdir(mode=0o755, parents=True)
    assert cache_of().danger() == ""
    assert cache.stat().st_mode & 0o777 == 0o700


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    cache_of().keep(1, 2, 25)
    assert not cache_of().record().compiled


@pytest.mark.parametrize(
    ("value", "error"), [("yes", ValueError), (1, TypeError), (None, TypeError), ("auto", None), (True, None)]
)
def test_the_choice_is_checked(value, error):
    if error is None:
        assert check_compile("compile", value) == value
    else:
        with pytest.raises(error, match='compile must be True, False or "auto"'):
            open_pool(lambda: None, MeasurementOptions(), compile=value)


def built(network, workload, data=None):
    data = (features(), classes()) if data is None else data
    return TorchEvaluator(nn.CrossEntropyLoss(), network, data, {}, MeasurementSetup(workload=workload))


def test_a_short_survey_is_not_compiled_and_says_why(cache):
    evaluator = built(nn.Sequential(nn.LayerNorm(6), mlp()), Workload("auto", 9))
    plan = evaluator.description.plan
    assert not plan.compile
    assert plan.reason == "not compiled: compiling would not pay off"
    assert plan.details.startswith("9 points take")
    assert plan.to_json().keys() == {
        "batch_size",
        "threads",
        "channels_last",
        "compile",
        "compiler",
        "first_layer",
        "precision",
        "gradients",
        "reason",
    }
    assert evaluator.description.notes == ()
    assert not list(cache.glob("summary_landscape/*.json"))
    evaluator.close()


def test_a_user_may_forbid_it():
    evaluator = built(mlp(), Workload(False, 10**9))
    assert not evaluator.description.plan.compile
    assert evaluator.description.plan.reason == ""
    evaluator.close()


@pytest.mark.parametrize(("asked", "before", "after"), [("auto", True, True), (False, True, False)])
def test_a_given_plan_counts_unless_the_user_says_otherwise(asked, before, after, monkeypatch):
    seen = []
    monkeypatch.setattr("workers.pools.open_pool.InProcessPool", lambda *_, plan, **__: seen.append(plan))
    open_pool(lambda: None, MeasurementOptions(), device_ids=[0], plan=MeasurementPlan(compile=before), compile=asked)
    assert seen[0].compile is after


@pytest.mark.slow
@COMPILER_WARNINGS
def test_a_long_survey_is_compiled_once_and_gives_the_same(cache, monkeypatch):
    compilations, compile_ahead = [], packages.compile_ahead
    monkeypatch.setattr(
        packages, "compile_ahead", lambda *how, **more: (compilations.append(how), compile_ahead(*how, **more))[1]
    )
    # Which is faster here, a clock would have to say.
    monkeypatch.setattr("workers.torch.compiling.speed_up", lambda eager, compiled, _: (eager(), compiled(), 3.0)[-1])
    generator = torch.Generator().manual_seed(1)
    data = (torch.randn(3000, 256, generator=generator), classes(3000))
    plane = plane_of(seeded(Fusible), scale=0.05)
    compiled = built(seeded(Fusible), Workload("auto", 1e9), data)
    plan = compiled.description.plan
    assert plan.compile, plan.reason
    assert plan.reason == "compiled: compiling pays off"
    assert "compiled in" in plan.details
    assert list((cache / "summary_landscape").glob("*.json"))
    compiled.load(*plane)
    with torch._dynamo.config.patch(error_on_recompile=True):
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        found = compiled.measure(POINTS)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    compiled.close()
    eager = evaluator_of(nn.CrossEntropyLoss(), seeded(Fusible), data, batch_size=3000)
    eager.load(*plane)
    np.testing.assert_allclose(found["loss"], eager.measure(POINTS)["loss"], rtol=1e-5, atol=1e-7)
    assert np.ptp(found["loss"]) > 1e-3
    eager.close()
    kept = sorted(cache.parent.glob("packages/**/*.so"))
    assert kept
    assert len(compilations) == len(kept)
    again = built(seeded(Fusible), Workload("auto", 1e9), data)
    assert "compiled in" in again.description.plan.details
    assert len(compilations) == len(kept), "what is kept was compiled again"
    assert sorted(cache.parent.glob("packages/**/*.so")) == kept
    assert again.description.plan.batch_size == plan.batch_size  # what the cache holds, whatever tuning found now
    again.close()


@pytest.mark.slow
@COMPILER_WARNINGS
@pytest.mark.parametrize("asked", ["auto", True])
def test_compiled_code_that_gives_other_values_is_not_used(asked):
    network = OtherWhenCompiled()
    with pytest.warns(UserWarning, match="runs eagerly: compiled it gives other values, eager against compiled"):
        evaluator = built(network, Workload(asked, 1e12))
    assert not evaluator.description.plan.compile
    assert "other values" in evaluator.description.notes[0]
    evaluator.load(*plane_of(network))
    reference = evaluator_of(
        nn.CrossEntropyLoss(), OtherWhenCompiled(), (features(), classes()), plan=evaluator.description.plan
    )
    reference.load(*plane_of(network))
    np.testing.assert_array_equal(evaluator.measure(POINTS)["loss"], reference.measure(POINTS)["loss"])
    evaluator.close()
    reference.close()


def test_images_of_one_channel_get_the_strides_of_channels_last():
    batch = Batch(images()[:, :1].contiguous(), classes(40), 40)
    placed = place_samples(Samples([batch], batch), torch.device("cpu"), channels_last=True)
    assert placed.own_batches[0].inputs.stride() == (36, 1, 6, 1)
    assert torch.equal(placed.own_batches[0].inputs, batch.inputs)
    assert has_images(placed, nn.Conv2d(1, 2, 3))
    assert not has_images(placed, nn.Sequential(nn.Flatten(), nn.Linear(36, 2)))


def compiled_callback():
    generator = torch.Generator().manual_seed(1)
    data = (torch.randn(600, 256, generator=generator), classes(600))
    return nn.CrossEntropyLoss(), seeded(Fusible), data, {}


@pytest.mark.slow
@COMPILER_WARNINGS
@pytest.mark.timeout(300)  # the C++ compiler runs in Ray's workers; beside other programs that took 70 s
def test_every_worker_of_a_pool_compiles_the_first_ones_plan(cache):
    from workers.pools.ray_pool import RayPool

    with RayPool(compiled_callback, MeasurementOptions(), device_ids=(0, 1), workload=Workload(True, 100)) as pool:
        assert pool.description.plan.compile
        assert pool.description.notes == ()
        pool.load(*plane_of(compiled_callback()[1], scale=0.05))
        found = check_determinism(pool.measure_origin())
    assert len(list((cache / "summary_landscape").glob("*.json"))) == 1
    eager = evaluator_of(*compiled_callback()[:3], batch_size=100)
    eager.load(*plane_of(compiled_callback()[1], scale=0.05))
    np.testing.assert_allclose(found["loss"], eager.measure(POINTS[:1])["loss"][0], rtol=1e-5, atol=1e-7)
    eager.close()


def test_a_landscape_says_how_it_was_computed(tmp_path):
    network = mlp()
    landscape = evaluate(
        random_plane(network, seed=0),
        lambda: (nn.CrossEntropyLoss(), network, (features(), classes()), {}),
        size=3,
        device_ids=[0],
        output=tmp_path / "a.h5",
        progress=False,
    )
    text = summary_text(landscape)
    assert re.search(
        r"measured in +batches of \d+ samples, \d+ threads? per worker, .*not compiled \([a-z ]+\)\n", text
    )


@pytest.mark.parametrize("failing", [0, 2])
def test_a_gpu_takes_the_largest_batch_that_fits(failing):
    """Batches above a limit run out of memory; the largest of the others wins unless another is clearly faster."""
    batch = Batch(features(5000), classes(5000), 5000)
    limit = (10**9, 0, 4096)[failing]
    tried, passed = [], [0.0]

    def run(plan, _batches):
        tried.append(plan.batch_size)
        if plan.batch_size > limit:
            raise MemoryError
        passed.append(0.01 * 5000 / plan.batch_size)

    plan, _ = tune(
        run,
        1,
        Samples([batch], batch),
        fixed_batches=False,
        ran_out_of_memory=lambda error: isinstance(error, MemoryError),
        largest_first=True,
        clock=lambda: sum(passed),
    )
    assert tried[0] == 5000
    assert plan.batch_size == min(5000, limit)


@pytest.mark.parametrize(("advantage", "threads"), [(1.0, 1), (1.25, 1), (1.4, 2)])
def test_several_threads_must_be_faster_by_far(monkeypatch, advantage, threads):
    """Where other programs run, threads that wait for each other may be ten times as slow as they were."""
    monkeypatch.setattr(tuning, "samples_per_second", lambda _run, plan, *_: advantage if plan.threads > 1 else 1)
    batch = Batch(features(50), classes(50), 50)
    plan, _ = tune(
        lambda _plan, _batches: None,
        2,
        Samples([batch], batch),
        fixed_batches=False,
        ran_out_of_memory=lambda _: False,
    )
    assert plan.threads == threads


def test_when_nothing_fits_the_error_is_raised():
    def run(_plan, _batches):
        raise MemoryError("too large")

    batch = Batch(features(), classes(), 50)
    for largest_first in (True, False):
        with pytest.raises(MemoryError, match="too large"):
            tune(
                run,
                1,
                Samples([batch], batch),
                fixed_batches=False,
                ran_out_of_memory=lambda _: True,
                largest_first=largest_first,
            )


def test_an_unlimited_budget_is_the_default():
    assert Workload().seconds == math.inf
