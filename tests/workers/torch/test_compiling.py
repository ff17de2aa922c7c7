"""Compilation: where it pays off, in which batches, and that it changes no value."""

import contextlib
import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from measured_planes import measure_plane
from torch import nn
from worker_cases import classes, classifier, evaluator_of, features, images, labelled, mlp, plane_of, seeded

from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan, Workload, plan_text
from workers.measuring import tuning
from workers.measuring.checks import check_determinism
from workers.measuring.tuning import tune
from workers.pools.local_pool import LocalPool
from workers.pools.open_pool import open_pool
from workers.samples.batches import Batch
from workers.samples.samples import Samples
from workers.samples.torch_samples import place_samples
from workers.torch import planning
from workers.torch.compiled import compiling, packages
from workers.torch.compiled.ahead_of_time import TRUSTED
from workers.torch.compiled.compiling import Compiled, compile_network
from workers.torch.compiled.packages import CACHE_VARIABLE
from workers.torch.forward import ForwardPass
from workers.torch.losses import split_into_samples
from workers.torch.placement import Placement
from workers.torch.planning import NetworkPlanning, has_images

COMPILER_WARNINGS = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
CPU = torch.device("cpu")
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
        for _ in range(6):
            inputs = (inputs * self.scale + 0.1).relu() - 0.2
        return self.head(inputs)


class OtherWhenCompiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4))

    def forward(self, inputs):
        return self.layer(inputs) * (2 if torch.compiler.is_compiling() else 1)


def planned(network, inputs, count=4096, others=()):
    batch = Batch(inputs(count), torch.zeros(count, dtype=torch.long), count)
    main = SimpleNamespace(loss=split_into_samples(nn.CrossEntropyLoss()), metrics={})
    sets = [main, *(SimpleNamespace(samples=samples) for samples in others)]
    placement = Placement(CPU, (CPU,))
    chosen = NetworkPlanning(
        network.eval(),
        placement,
        ForwardPass(None, MeasurementOptions(), [CPU]),
        lambda _: contextlib.nullcontext(),
        sets,
    )
    return chosen, Samples([batch], batch)


def tuned_plan(network, inputs, batch_size, rate, workload, **data):
    chosen, samples = planned(network, inputs, **data)
    with torch.no_grad():
        return chosen.from_tuning(samples, MeasurementPlan(batch_size), rate, workload).plan


def rows(count):
    return torch.randn(count, 6)


def wide_rows(count):
    return torch.randn(count, 256, generator=torch.Generator().manual_seed(1)), classes(count)


def normalized():
    return nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 5))


@pytest.fixture
def compiler(monkeypatch):
    """Compiles nothing, and notes what it was asked for."""
    state = SimpleNamespace(built=[], packages=False)

    def compile_network(network, *_arguments, builds):
        state.built.append(builds)
        there = builds or state.packages
        return Compiled(network, compiler="AOTInductor", was_there=state.packages) if there else Compiled()

    monkeypatch.setattr(planning, "compile_network", compile_network)
    return state


WITHOUT = "compiling would not pay off; "


@pytest.mark.parametrize(
    ("workload", "compiled", "text"),
    [
        (Workload("auto", 29), False, f"{WITHOUT}29 points take 29 s on each worker without it, and it"),
        (Workload("auto", 30), True, "compiling pays off; compiled in"),
        (Workload("auto", 10**6, seconds=29), False, f"{WITHOUT}the budget is 29 s, and it does from 3"),
        (Workload("auto", 10**6, seconds=31), True, "compiling pays off"),
        (Workload(True, 1), True, "asked for"),
        (Workload(True, 1, rehearsal=True), False, "a dry run compiles nothing; a run would: asked for"),
        (Workload("auto", 29, rehearsal=True), False, f"{WITHOUT}29 points"),
        (Workload("auto", 50, rehearsal=True), False, "a dry run compiles nothing; a run would: 50 points take 50 s"),
    ],
)
def test_a_network_is_compiled_where_measuring_takes_long(workload, compiled, text, compiler):
    plan = tuned_plan(normalized(), rows, 25, 100.0, workload, count=100)
    assert plan.compile is compiled
    assert compiler.built == [compiled]
    assert text in plan_text(plan.to_json(), plan.details)
    assert not re.search(r"\d", plan.reason)  # it is kept in the landscape file, whose bytes no clock may change


@pytest.mark.parametrize("rehearsal", [False, True])
def test_a_package_that_is_there_is_used_for_a_single_point(rehearsal, compiler):
    compiler.packages = True
    plan = tuned_plan(normalized(), rows, 25, 100.0, Workload("auto", 1, rehearsal=rehearsal), count=100)
    assert (plan.compile, plan.reason, compiler.built) == (True, "compiled: its package is there", [False])
    assert plan.details.startswith("loaded in")


def test_all_data_sets_count(compiler):
    batch = Batch(features(100), classes(100), 100)
    others = [Samples([batch], batch)]
    assert tuned_plan(normalized(), rows, 25, 100.0, Workload("auto", 15), count=100, others=others).compile


def test_batches_of_many_shapes_and_perceptrons_are_never_compiled(compiler):
    """Compiled perceptrons were slower, and compiling took 11 CPU seconds."""
    others = [Samples([batch], batch) for batch in (Batch(features(count), classes(count), count) for count in (7, 8))]
    plan = tuned_plan(normalized(), rows, 256, 1000.0, Workload("auto", 1e9), others=others)
    assert plan.reason == "not compiled: batches have 3 shapes, and each would be compiled separately"
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 5))
    plan = tuned_plan(network, lambda count: torch.randn(count, 36), 256, 1000.0, Workload("auto", 1e9))
    assert plan.reason == "not compiled: compiled code of fully connected layers alone is not clearly faster"
    assert compiler.built == []


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
    chosen, samples = planned(network(), lambda count: torch.randn(count, *inputs), count=2048)
    with torch.no_grad():
        assert chosen.compiled_batch_size(samples, 64) == expected
        assert chosen.compiled_batch_size(samples, None) is None


def test_a_gpus_outputs_are_copies_of_what_a_graph_writes(monkeypatch):
    """A CUDA graph needs a GPU (test_on_cuda.py); here PyTorch runs the network as it is."""
    wanted, torch_compile = [], torch.compile

    def compile(network, **options):
        wanted.append(options)
        return torch_compile(network, backend="eager")

    monkeypatch.setattr(torch, "compile", compile)
    network = nn.Identity()
    compiled = compiling._compile(network, torch.device("cuda"), {})
    inputs = features()
    outputs = compiled({"logits": inputs})["logits"]
    assert torch.equal(outputs, inputs)
    assert outputs.data_ptr() != inputs.data_ptr()
    assert wanted == [{"dynamic": False, "mode": "reduce-overhead"}]
    assert not network._forward_hooks


def test_a_gpus_values_are_checked_once_a_graph_is_replayed(monkeypatch):
    monkeypatch.setattr(compiling, "_compile", lambda *_: "compiled")
    values = iter([1.0, 1.0, 2.0])

    def measure(network):
        return {"loss": next(values) if network == "compiled" else 1.0}

    found = compile_network(nn.Identity(), torch.device("cuda"), measure, MeasurementPlan())
    assert "compiled it gives other values" in found.problem


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_compiler_older_than_the_cpu_is_asked_which_instructions_it_knows(monkeypatch):
    tried = []

    def compile(network, _device, options):
        tried.append(options)
        if options.keys() >= TRUSTED.keys():
            raise RuntimeError("no such instructions")
        return network

    monkeypatch.setattr(compiling, "_compile", compile)
    plan = MeasurementPlan(compiler="torch.compile")
    found = compile_network(nn.Identity(), CPU, lambda _: {"loss": 1.0}, plan)
    assert (found.compiler, found.problem) == ("torch.compile", "")
    assert tried == [compiling._CPU_OPTIONS | TRUSTED, compiling._CPU_OPTIONS]


def test_the_users_own_cache_folder_is_kept(monkeypatch, tmp_path, cache):
    with packages.compiler_cache():
        assert os.environ[CACHE_VARIABLE] == str(cache)
    assert CACHE_VARIABLE not in os.environ
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "own"))
    with pytest.raises(KeyError, match="own"), packages.compiler_cache():
        raise KeyError(os.environ[CACHE_VARIABLE])
    assert os.environ[CACHE_VARIABLE] == str(tmp_path / "own")


UNSAFE = {
    "writable by all": lambda cache: cache.chmod(0o777),
    "below what is writable by all": lambda cache: cache.parent.chmod(0o777),
    "of another user in a sticky folder": lambda cache: (cache.parent.chmod(0o1777), os.chown(cache, 12345, -1)),
    "the user's own": lambda cache: cache.chmod(0o777),
}


@pytest.mark.parametrize("kind", UNSAFE)
@pytest.mark.parametrize("plan", [MeasurementPlan(25, compile=True), None], ids=["a plan", "tuning"])
def test_code_is_not_run_from_a_folder_in_which_others_can_put_it(kind, plan, cache, monkeypatch):
    if "another user" in kind and os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    monkeypatch.setenv(CACHE_VARIABLE, str(cache) if kind == "the user's own" else "")
    cache.mkdir(parents=True)
    UNSAFE[kind](cache)
    text = r"runs eagerly: the folder of compiled code is not safe .*set XDG_CACHE_HOME .*that is"
    with pytest.warns(UserWarning, match=text):
        found = built(mlp(), Workload(True, 1000), plan=plan).description.plan
    assert not found.compile
    assert [path for path in cache.parent.rglob("*") if path.suffix in (".so", ".py")] == []


def test_a_folder_of_an_earlier_version_becomes_this_users_alone(cache):
    cache.mkdir(mode=0o755, parents=True)
    assert packages.danger() == ""
    assert cache.stat().st_mode & 0o777 == 0o700


def built(network, workload, data=None, plan=None):
    return evaluator_of(nn.CrossEntropyLoss(), network, data or labelled(), plan=plan, workload=workload)


def test_a_short_survey_is_not_compiled_and_says_why(cache):
    description = built(nn.Sequential(nn.LayerNorm(6), mlp()), Workload("auto", 9)).description
    plan = description.plan
    assert not plan.compile
    assert plan.reason == "not compiled: compiling would not pay off"
    assert plan.details.startswith("9 points take")
    names = "batch_size threads channels_last compile compiler first_layer precision gradients reason"
    assert plan.to_json().keys() == set(names.split())
    assert description.notes == ()
    assert not cache.parent.exists()


def test_a_user_may_forbid_it():
    plan = built(mlp(), Workload(False, 10**9)).description.plan
    assert (plan.compile, plan.reason) == (False, "")


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
    data = wide_rows(3000)
    plane = plane_of(seeded(Fusible), scale=0.05)
    compiled = built(seeded(Fusible), Workload("auto", 1e9), data)
    plan = compiled.description.plan
    assert plan.compile, plan.reason
    assert plan.reason == "compiled: compiling pays off"
    assert "compiled in" in plan.details
    compiled.load(*plane)
    with torch._dynamo.config.patch(error_on_recompile=True):
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        found = compiled.measure(POINTS)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    compiled.close()
    eager = evaluator_of(nn.CrossEntropyLoss(), seeded(Fusible), data, batch_size=3000)
    np.testing.assert_allclose(found["loss"], measure_plane(eager, plane, POINTS)["loss"], rtol=1e-5, atol=1e-7)
    assert np.ptp(found["loss"]) > 1e-3
    kept = sorted(cache.parent.glob("packages/**/*.so"))
    assert kept
    assert len(compilations) == len(kept)
    again = built(seeded(Fusible), Workload("auto", 1), data)
    assert again.description.plan == replace(plan, reason="compiled: its package is there")
    assert "loaded in" in again.description.plan.details
    assert len(compilations) == len(kept), "what is kept was compiled again"
    assert sorted(cache.parent.glob("packages/**/*.so")) == kept


@pytest.mark.slow
@COMPILER_WARNINGS
def test_compiled_code_that_gives_other_values_is_not_used():
    with pytest.warns(UserWarning, match="runs eagerly: compiled it gives other values, eager against compiled"):
        evaluator = built(OtherWhenCompiled(), Workload(True, 1e12))
    plan, plane = evaluator.description.plan, plane_of(OtherWhenCompiled())
    assert not plan.compile
    assert "other values" in evaluator.description.notes[0]
    reference = classifier(OtherWhenCompiled(), plan=plan)
    found, expected = (measure_plane(item, plane, POINTS)["loss"] for item in (evaluator, reference))
    np.testing.assert_array_equal(found, expected)


def test_images_of_one_channel_get_the_strides_of_channels_last():
    batch = Batch(images()[:, :1].contiguous(), classes(40), 40)
    placed = place_samples(Samples([batch], batch), torch.device("cpu"), channels_last=True)
    assert placed.own_batches[0].inputs.stride() == (36, 1, 6, 1)
    assert torch.equal(placed.own_batches[0].inputs, batch.inputs)
    assert has_images(placed, nn.Conv2d(1, 2, 3))
    assert not has_images(placed, nn.Sequential(nn.Flatten(), nn.Linear(36, 2)))


def compiled_callback():
    return nn.CrossEntropyLoss(), seeded(Fusible), wide_rows(600), {}


@pytest.mark.slow
@COMPILER_WARNINGS
@pytest.mark.timeout(300)  # the C++ compiler runs in a worker; beside other programs that took 70 s
def test_every_worker_of_a_pool_compiles_the_first_ones_plan(cache):
    plane = plane_of(compiled_callback()[1], scale=0.05)
    with LocalPool(compiled_callback, MeasurementOptions(), device_ids=(0, 1), workload=Workload(True, 100)) as pool:
        assert pool.description.plan.compile
        assert pool.description.notes == ()
        pool.load(*plane)
        found = check_determinism(pool.measure_origin())
    assert len(list((cache.parent / "packages").glob("*.so"))) == 1
    eager = measure_plane(evaluator_of(*compiled_callback()[:3], batch_size=100), plane, POINTS[:1])
    np.testing.assert_allclose(found["loss"], eager["loss"][0], rtol=1e-5, atol=1e-7)


def tuned(run, count, threads=1, ran_out_of_memory=lambda _: False, **more):
    """Returns the plan that is tuned to some samples by a function of a plan and batches."""
    batch = Batch(features(count), classes(count), count)
    samples = Samples([batch], batch)
    return tune(run, threads, samples, fixed_batches=False, ran_out_of_memory=ran_out_of_memory, **more)[0]


@pytest.mark.parametrize("failing", [0, 2])
def test_a_gpu_takes_the_largest_batch_that_fits(failing):
    """Batches above a limit run out of memory; the largest of the others wins unless another is clearly faster."""
    limit = (10**9, 0, 4096)[failing]
    tried, passed = [], [0.0]

    def run(plan, _batches):
        tried.append(plan.batch_size)
        if plan.batch_size > limit:
            raise MemoryError
        passed.append(0.01 * 5000 / plan.batch_size)

    plan = tuned(
        run, 5000, ran_out_of_memory=lambda error: isinstance(error, MemoryError), largest_first=True,
        clock=lambda: sum(passed),
    )  # fmt: skip
    assert tried[0] == 5000
    assert plan.batch_size == min(5000, limit)


@pytest.mark.parametrize(("advantage", "threads"), [(1.0, 1), (1.25, 1), (1.4, 2)])
def test_several_threads_must_be_faster_by_far(monkeypatch, advantage, threads):
    """Where other programs run, threads that wait for each other may be ten times as slow as they were."""
    monkeypatch.setattr(tuning, "_timed", lambda _run, plan, *_: (advantage if plan.threads > 1 else 1, 1.0))
    assert tuned(lambda _plan, _batches: None, 50, 2).threads == threads


@pytest.mark.parametrize(("stalls", "threads", "size"), [(0, 2, 1024), (0.2, 1, 1024), (2, 1, 1024)])
def test_threads_that_wait_for_other_programs_are_judged_by_all_their_batches(stalls, threads, size):
    """Every second batch of two threads waits; the others are as fast as two threads alone on the machine."""
    passed, computed = [0.0], [0]

    def run(plan, batches):
        computed[0] += 1
        seconds = sum(0.0005 + 1e-6 * item.size for item in batches) / plan.threads
        passed[0] += seconds + (stalls if plan.threads > 1 and computed[0] % 2 else 0)

    plan = tuned(run, 5000, 2, clock=lambda: passed[0])
    assert (plan.threads, plan.batch_size) == (threads, size)
    # Not all of the time is spent on waiting.
    assert passed[0] < 1 + 3 * stalls


@pytest.mark.parametrize("disturbed", [MeasurementPlan(64, 2), MeasurementPlan(1024, 2, channels_last=True)])
def test_what_disturbs_several_threads_for_a_moment_does_not_cost_them_the_rest(disturbed):
    passed, computed = [0.0], Counter()
    batch = Batch(features(5000), classes(5000), 5000)

    def run(plan, batches):
        computed[plan] += 1
        seconds = sum(0.0005 + 1e-6 * item.size for item in batches) / plan.threads / (1.7 if plan.channels_last else 1)
        passed[0] += seconds + (0.2 if plan == disturbed and computed[plan] == 2 else 0)

    plan = tuned(run, 5000, 2, clock=lambda: passed[0], channels_last=lambda: Samples([batch], batch))
    assert (plan.threads, plan.channels_last) == (2, True)


@pytest.mark.parametrize("waiting", [0.0, 0.05])
def test_one_thread_that_waits_for_other_programs_tries_all_sizes(waiting):
    """What it waits, at every second batch, is not what it spends."""
    passed, ran, computed = [0.0], [0.0], [0]

    def run(_plan, batches):
        computed[0] += 1
        seconds = sum(0.0005 + 1e-7 * item.size for item in batches)
        ran[0] += seconds
        passed[0] += seconds + waiting * (computed[0] % 2)

    plan = tuned(run, 1024, clock=lambda: passed[0], busy=lambda: ran[0])
    assert plan.batch_size == 1024
    # It does not wait without end either.
    assert passed[0] < 8


@pytest.mark.parametrize("largest_first", [True, False])
def test_when_nothing_fits_the_error_is_raised(largest_first):
    def run(_plan, _batches):
        raise MemoryError("too large")

    with pytest.raises(MemoryError, match="too large"):
        tuned(run, 50, ran_out_of_memory=lambda _: True, largest_first=largest_first)
