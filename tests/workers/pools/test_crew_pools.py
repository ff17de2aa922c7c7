"""Pools of several workers: the same numbers as in one process, whatever dies; on Ray, and in processes without it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import re
import signal
import sys

import cloudpickle
import numpy as np
import pytest
import torch
from cluster_devices import wait_longer_for_places, wait_until_free
from late_actor import GATE_VARIABLE, LateActor
from paraboloid import Paraboloid, different_networks, different_samples, locked, paraboloid_plane
from torch import nn
from waiting import Gate
from worker_cases import (
    ConvNet,
    TinyTransformer,
    case,
    classes,
    features,
    mlp,
    plane_of,
    seeded,
    state_of,
    values,
    weighted_from_zeros,
)

from workers.errors import CallbackFunctionError, FrozenNetworkError, NondeterministicLossError, PoolError, SamplesError
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.measuring.checks import check_determinism
from workers.pool import PointTask, StateTask
from workers.pools import chunks, crew, local_pool, placement
from workers.pools.crew_worker import MeasurementActor, mentioned_frameworks
from workers.pools.in_process import InProcessPool
from workers.pools.local_pool import LocalPool
from workers.pools.open_pool import open_pool
from workers.pools.ray_pool import RayPool
from workers.pools.ray_session import RaySession, ray_is_running

PLAN = MeasurementPlan(16, 1)
OPTIONS = MeasurementOptions(buffers="recalibrate", recalibration_batch_size=16)
GRID = [(float(x), float(y)) for x in np.linspace(-1, 1, 7) for y in np.linspace(-0.5, 0.7, 5)]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray")


RAY = pytest.param("Ray", marks=pytest.mark.slow)  # its start alone takes as long as hundreds of quick tests


class SpawnedPool(LocalPool):
    """As on systems that do not fork."""

    __init__ = functools.partialmethod(LocalPool.__init__, forked=False)


PROCESSES = {"forked": LocalPool, "spawned": SpawnedPool}
SPAWNED = pytest.param("spawned", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[RAY, "forked", SPAWNED])
def workers_on(request):
    """The kind of pool. One Ray serves all tests; the pools find it running and leave it so."""
    with pytest.MonkeyPatch.context() as patch:
        wait_longer_for_places(patch.setattr)
        if request.param in PROCESSES:
            yield PROCESSES[request.param]
        else:
            with RaySession(None, slots=4):
                yield RayPool
    assert not ray_is_running()


class OwnError(ValueError):
    def __init__(self, what, index):
        super().__init__(f"{what} {index}")


def raising():
    return {}["x"]


def reading(make):
    """A callback_fn whose data raise an error, which is made anew each time."""

    def unreadable(_):
        raise make()

    return lambda: (nn.MSELoss(), nn.Linear(2, 1), map(unreadable, range(8)), {})


strange = reading(lambda: OwnError("row", 3))
# Text and place of what callback_fn raises, or what it returns.
OF_ROWS = "what callback_fn returned raised "
RAISING = {
    raising: ("callback_fn raised KeyError: 'x'", "in raising"),
    reading(lambda: ValueError("row 3 is damaged")): (f"{OF_ROWS}ValueError: row 3 is damaged", "in unreadable"),
    reading(lambda: OSError("no row")): (f"{OF_ROWS}OSError: no row", "in unreadable"),
    strange: (f"{OF_ROWS}OwnError: row 3", "in unreadable"),
}


def check_error(found, kind, text, note):
    assert type(found) is kind
    # match= would read the notes as well.
    assert re.fullmatch(rf"{text} \(.*, line \d+\)", str(found)) if note else re.search(text, str(found))
    if note:
        (place,) = found.__notes__
        assert place.startswith("In the worker:\nTraceback")
        assert note in place
        assert __file__ in place


on_ray = pytest.mark.parametrize("workers_on", [RAY], indirect=True)
# Spawned workers answer by the code of forked ones: only how they start and end is tried with all.
ray_or_forked = pytest.mark.parametrize("workers_on", [RAY, "forked"], indirect=True)
# What no kind of pool has a part in.
on_forked = pytest.mark.parametrize("workers_on", ["forked"], indirect=True)


@pytest.fixture(scope="module")
def paraboloid(workers_on):
    with workers_on(Paraboloid, MeasurementOptions(), device_ids=(0, 1)) as pool:
        yield pool


def tasks():
    other = state_of(seeded(ConvNet, seed=5))
    return [
        *(PointTask(("grid", index), point) for index, point in enumerate(GRID)),
        StateTask(("own", 0), lambda: other),
        StateTask(("on plane", 0), lambda: (other[0], None)),
    ]


@pytest.fixture(scope="module")
def in_process():
    loss, network, dataset = case("batchnorm")
    plane = plane_of(network)
    with InProcessPool(lambda: (loss, network, dataset, {}), OPTIONS, plan=PLAN) as pool:
        pool.load(*plane)
        return values(pool.run(iter(tasks()))), pool.description


@pytest.mark.slow
@ray_or_forked
def test_numbers_are_those_of_one_process(workers_on, in_process, monkeypatch):
    expected, description = in_process
    loss, network, dataset = case("batchnorm")
    plane = plane_of(network)
    with workers_on(lambda: (loss, network, dataset, {}), OPTIONS, device_ids=(0, 1, 2), plan=PLAN) as pool:
        assert pool.workers == 3
        assert pool.description == description
        for seconds in (1e-9, 0.05, 1.0, 100.0):
            monkeypatch.setattr(chunks, "CHUNK_SECONDS", seconds)
            pool.load(*plane)
            assert len(pool.measure_origin()) == 3
            check_determinism(pool.measure_origin())
            assert values(pool.run(iter(tasks()))) == expected
        assert values(pool.run(iter([]))) == {}
        other = plane_of(network, seed=11)
        pool.load(*other)
        second = values(pool.run([PointTask(0, (0.5, 0.5))]))
    with InProcessPool(lambda: (loss, network, dataset, {}), OPTIONS, plan=PLAN) as alone:
        alone.load(*other)
        assert values(alone.run([PointTask(0, (0.5, 0.5))])) == second


def test_a_run_that_is_left_early_leaves_nothing_behind(paraboloid):
    paraboloid.load(*paraboloid_plane())
    points = [PointTask(index, (index / 10, 0.0)) for index in range(20)]
    everything = values(paraboloid.run(points))
    for count in (1, 3):
        run = paraboloid.run([PointTask("other", (9.0, 0.0))] * 10)
        for _ in range(count):
            next(run)
        run.close()
        assert values(paraboloid.run(points)) == everything


class TestCallbacks:
    @pytest.mark.slow
    def test_a_function_from_a_module_that_only_the_driver_finds(self, workers_on, tmp_path, monkeypatch):
        (tmp_path / "my_landscape_setup.py").write_text(
            "from my_landscape_data import Mine\ndef callback_fn(): return Mine()"
        )
        (tmp_path / "my_landscape_data.py").write_text("import paraboloid\nclass Mine(paraboloid.Paraboloid): ...\n")
        monkeypatch.syspath_prepend(tmp_path)
        import my_landscape_setup

        with workers_on(my_landscape_setup.callback_fn, MeasurementOptions(), device_ids=(0,)) as pool:
            pool.load(*paraboloid_plane())
            (result,) = pool.run([PointTask(0, (2.0, 1.0))])
            assert result.values == {"loss": 9.0}
        for name in ("my_landscape_setup", "my_landscape_data"):
            del sys.modules[name]

    def test_a_closure_over_a_live_object_is_refused(self, workers_on):
        text = (
            r"^callback_fn cannot be sent to the workers \(TypeError: .*lock.*\); build .* inside the function .* "
            r"script or a notebook, or define it at the top level of a module, which workers import\.$"
        )
        with pytest.raises(CallbackFunctionError, match=text):
            workers_on(locked(), MeasurementOptions(), device_ids=(0,))
        assert ray_is_running() == (workers_on is RayPool)

    def test_what_a_worker_cannot_load(self, workers_on, tmp_path, monkeypatch):
        module = tmp_path / "vanishing_setup.py"
        module.write_text("def callback_fn(): ...\n")
        monkeypatch.syspath_prepend(tmp_path)
        import vanishing_setup

        module.unlink()
        with pytest.raises(CallbackFunctionError, match=r"could not be loaded by a worker .*vanishing_setup"):
            workers_on(vanishing_setup.callback_fn, MeasurementOptions(), device_ids=(0,))
        del sys.modules["vanishing_setup"]

    @pytest.mark.parametrize(
        ("callback", "error", "text", "note"),
        [
            (lambda: None, CallbackFunctionError, "must return .* but returned a NoneType", ""),
            (
                lambda: (nn.MSELoss(), nn.Linear(2, 1).requires_grad_(False), (torch.ones(3, 2), torch.ones(3, 1)), {}),
                FrozenNetworkError,
                "Linear has no trainable parameter",
                "",
            ),
            (lambda: (nn.MSELoss(), nn.Linear(2, 1), [], {}), SamplesError, "it is empty", ""),
            (lambda: (nn.MSELoss(), nn.Linear(2, 1), 3, {}), TypeError, "dataset must be a DataLoader", ""),
            *((callback, CallbackFunctionError, text, note) for callback, (text, note) in RAISING.items()),
        ],
    )
    def test_errors_are_those_of_one_process(self, callback, error, text, note, monkeypatch):
        for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
            monkeypatch.setenv(name, "1")
        actor = MeasurementActor(None, 1, ["cpu"], [])
        actor.prepare(cloudpickle.dumps(callback), ())
        found = actor.call() or actor.start(MeasurementSetup(plan=PLAN))
        check_error(pickle.loads(pickle.dumps(found)), error, text, note)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("workers_on", "callback"),
        [pytest.param("Ray", strange, marks=pytest.mark.slow), ("forked", raising), ("forked", strange)],
        indirect=["workers_on"],
    )
    def test_the_driver_raises_them(self, workers_on, callback):
        with pytest.raises(CallbackFunctionError) as caught:
            workers_on(callback, MeasurementOptions(), device_ids=(0,), plan=PLAN)
        check_error(caught.value, CallbackFunctionError, *RAISING[callback])

    @pytest.mark.slow
    def test_a_worker_that_dies_while_it_starts(self, workers_on):
        text = "a worker died while it started. Likely causes: memory ran out"
        with pytest.raises(PoolError, match=text) as caught:
            workers_on(lambda: os._exit(3), MeasurementOptions(), device_ids=(0,), plan=PLAN)
        assert type(caught.value) is PoolError
        assert ray_is_running() == (workers_on is RayPool)

    @pytest.mark.slow
    @on_forked
    def test_the_workers_must_agree(self, workers_on):
        text = (
            r"(?s)same network and samples on every worker, but the worker of device 7 has others:\s+{}.*"
            "Set the seeds of whatever is random in it"
        )
        with pytest.raises(NondeterministicLossError, match=text.format("samples 0")):
            workers_on(different_samples, MeasurementOptions(), device_ids=(4, 7))
        with pytest.raises(NondeterministicLossError, match=text.format("x: .*'shape'")):
            workers_on(different_networks, MeasurementOptions(), device_ids=(4, 7))

    @pytest.mark.slow
    @on_ray
    def test_what_the_evaluator_notes_the_user_hears(self, workers_on):
        with pytest.warns(UserWarning, match="num_samples is 99, but the data set has 50; all of them are used"):
            pool = open_pool(lambda: (*case("plain"), {}), MeasurementOptions(num_samples=99), device_ids=[0])
        assert isinstance(pool, RayPool)  # because Ray runs
        assert pool.description.plan.threads == 1
        pool.close()
        assert pool.workers == 0


def line(*coordinates):
    return [PointTask(index, (value, 0.0)) for index, value in enumerate(coordinates)]


def kill(process_ids):
    for process in process_ids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


class TestFailures:
    def test_points_that_raise(self, paraboloid):
        def unreadable():
            raise OSError("the disk is gone")

        paraboloid.load(*paraboloid_plane())
        points = line(*(20.0 if index % 5 == 3 else index / 100 for index in range(40)))
        results = {result.key: result for result in paraboloid.run([*points, StateTask("state", unreadable)])}
        assert len(results) == 41
        for index in range(40):
            if index % 5 == 3:
                assert results[index].values is None
                assert "ValueError: the trap is sprung" in results[index].error
                assert results[index].error.startswith("Traceback")
            else:
                assert results[index].error is None
        assert "OSError: the disk is gone" in results["state"].error

    @pytest.mark.parametrize("victims", [1, 2])
    def test_workers_that_are_killed_in_the_middle(self, paraboloid, victims, monkeypatch):
        monkeypatch.setattr(chunks, "CHUNK_SECONDS", 0.01)
        paraboloid.load(*paraboloid_plane())
        points = line(*np.linspace(-1, 1, 200).tolist())
        expected = values(paraboloid.run(points))
        assert len(expected) == 200
        processes = paraboloid.process_ids
        results = []
        for result in paraboloid.run(points):
            results.append(result)
            if len(results) == 5:
                kill(processes[:victims])
        assert values(results) == expected
        assert paraboloid.workers == 2
        assert not set(processes[:victims]) & set(paraboloid.process_ids)

    @pytest.mark.slow
    def test_workers_that_are_killed_between_calls(self, paraboloid):
        plane = paraboloid_plane()
        paraboloid.load(*plane)
        before = check_determinism(paraboloid.measure_origin())
        kill(paraboloid.process_ids)
        assert check_determinism(paraboloid.measure_origin()) == before
        kill(paraboloid.process_ids[:1])
        paraboloid.load(*plane)
        assert check_determinism(paraboloid.measure_origin()) == before
        kill(paraboloid.process_ids)
        (result,) = paraboloid.run(line(0.0))
        assert result.values == before

    @pytest.mark.slow
    @pytest.mark.parametrize("workers_on", ["forked", SPAWNED], indirect=True)  # on Ray: test_ray_workers.py
    def test_a_point_that_kills_its_worker(self, paraboloid, monkeypatch):
        monkeypatch.setattr(chunks, "CHUNK_SECONDS", 0.005)
        paraboloid.load(*paraboloid_plane())
        points = line(*(-20.0 if index == 61 else index / 100 for index in range(80)))
        results = {result.key: result for result in paraboloid.run(points)}
        assert sorted(results) == list(range(80))
        assert [key for key, result in results.items() if result.values is None] == [61]
        assert re.match(r"The worker died \d times while it measured this point: ", results[61].error)
        assert paraboloid.workers == 2

    @pytest.mark.slow
    def test_a_worker_that_cannot_start_again_is_given_up(self, workers_on, tmp_path):
        marker = tmp_path / "gone"

        def callback():
            if marker.exists():
                raise FileNotFoundError("the data set is gone")
            return Paraboloid()

        with workers_on(callback, MeasurementOptions(), device_ids=(0,)) as pool:
            pool.load(*paraboloid_plane())
            marker.touch()
            run = pool.run(line(*np.linspace(0, 1, 1000).tolist()))
            next(run)
            kill(pool.process_ids)
            text = r"last worker, which died once, could not be started again\. What was .* data set is gone"
            with pytest.raises(PoolError, match=text):
                list(run)


class Hungry(nn.Sequential):
    """Runs out of memory in batches of more than 8 samples, where its last bias is in a range."""

    def __init__(self, least, largest, only=None):
        super().__init__(*mlp(inputs=64))
        self.least, self.largest, self.only = least, largest, only

    def forward(self, inputs):
        if len(inputs) > 8 and self.least < float(self[-1].bias[0]) < self.largest and self._is_meant():
            raise MemoryError
        return super().forward(inputs)

    def _is_meant(self):
        """Returns whether this is the first process that asks, by its id in a link, or all are meant."""
        if self.only is not None:
            with contextlib.suppress(FileExistsError):
                self.only.symlink_to(str(os.getpid()))
        return self.only is None or str(self.only.readlink()) == str(os.getpid())


@on_forked
@pytest.mark.parametrize("when", ["at a point", "while a plane is loaded"])
def test_a_shortage_of_memory_changes_the_plan_as_in_one_process(workers_on, when, tmp_path):
    origin, directions, buffers = plane_of(mlp(inputs=64), axes=1)
    directions[0]["2.bias"][:] = 1.0
    own = float(origin["2.bias"][0])
    found = []
    for make, more in ((workers_on, {"device_ids": (0, 1)}), (InProcessPool, {})):
        # While the plane is loaded memory runs out for one worker alone, whichever that is.
        where = (own + 0.4, own + 0.6) if when == "at a point" else (own + 0.9, own + 1.1, tmp_path / make.__name__)
        network = functools.partial(Hungry, *where)

        def callback_fn(network=network):
            return nn.CrossEntropyLoss(), network(), (features(32, 64), classes(32)), {}

        with make(callback_fn, MeasurementOptions(), plan=MeasurementPlan(16, 1, first_layer=True), **more) as pool:
            pool.load(origin, directions, buffers)
            assert pool.description.plan.first_layer == (when == "at a point")
            losses = values(pool.run([PointTask(index, (0.5,)) for index in range(4)]))
            found.append((losses, pool.description.plan))
    assert found[0] == found[1]
    assert found[0][1] == MeasurementPlan(8, 1)


@pytest.mark.slow
@on_forked
def test_workers_settle_on_the_plane(workers_on):
    """At a head of zeros all samples have the same loss; only the plane shows that this one belongs to its batches."""
    results = []
    for pool in (
        workers_on(weighted_from_zeros, MeasurementOptions(), device_ids=(0, 1), plan=PLAN),
        InProcessPool(weighted_from_zeros, MeasurementOptions(), plan=PLAN),
    ):
        with pool:
            assert not pool.description.partition_dependent
            with pytest.warns(UserWarning, match="loss depends on how samples are batched, so the data set's own"):
                pool.load(*plane_of(mlp()))
            assert pool.description.partition_dependent
            assert pool.description.plan.batch_size is None
            check_determinism(pool.measure_origin())
            results.append((values(pool.run([PointTask(0, (0.5, 0.5))])), pool.description))
            if isinstance(pool, workers_on):
                os.kill(pool.process_ids[1], signal.SIGKILL)  # the one that comes in its place settles alike
                assert values(pool.run([PointTask(n, (0.5, 0.5)) for n in range(20)]))[0] == results[0][0][0]
                check_determinism(pool.measure_origin())
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize("workers_on", [SPAWNED], indirect=True)
def test_a_language_model_with_tied_weights(workers_on):
    """On the only kind of pool that no other test gives a network."""
    callback, plane = lambda: (*case("transformer"), {}), plane_of(seeded(TinyTransformer))
    points = [PointTask(index, point) for index, point in enumerate(GRID[:6])]
    results = []
    for make, more in ((workers_on, {"device_ids": (0,)}), (InProcessPool, {"plan": MeasurementPlan(None, 1)})):
        with make(callback, MeasurementOptions(), **more) as pool:
            assert pool.description.plan.batch_size is None
            pool.load(*plane)
            results.append(values(pool.run(points)))
    assert results[0] == results[1]


def take_a_place():
    """Returns an actor that has a CPU until it is forgotten."""
    import ray

    class Nothing:  # of no module, which Ray's workers might not find
        pass

    actor = ray.remote(num_cpus=1)(Nothing).remote()
    ray.get(actor.__ray_ready__.remote())
    return actor


@pytest.fixture
def let_the_late_one_come(workers_on, request, tmp_path, monkeypatch):
    """One of the next pool's two workers is late; returns what lets it come."""
    if issubclass(workers_on, LocalPool):
        support = str(request.config.rootpath / "tests" / "support")
        monkeypatch.setattr(local_pool, "LocalActor", LateActor)
        monkeypatch.setenv(GATE_VARIABLE, str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [support, os.environ.get("PYTHONPATH")])))
        come = Gate(tmp_path).open
    else:
        request.getfixturevalue("paraboloid")  # which has two of the four places
        wait_until_free(2, "CPU")
        taken = [take_a_place()]
        wait_until_free(1, "CPU")
        come = taken.clear

    def place_the_first(workers, asked=None):
        actors = workers[0].recipe.actors
        find = actors.wait
        actors.wait = lambda calls, *, count=1, seconds=None: find(calls, seconds=seconds if len(calls) == 2 else 0.0)
        try:
            return placement.place_workers(workers, asked)
        finally:
            del actors.wait

    monkeypatch.setattr(crew, "place_workers", place_the_first)
    return come


def test_a_late_worker_joins_when_it_comes(workers_on, let_the_late_one_come, monkeypatch):
    """It was left out for the whole run."""
    monkeypatch.setattr(chunks, "CHUNK_SECONDS", 0.01)
    with pytest.warns(UserWarning, match="1 of 2 workers found no place soon after the others; the run begins, and"):
        pool = workers_on(Paraboloid, MeasurementOptions(), device_ids=(0, 1))

    def until_both_measure():
        for index in itertools.count():
            if all(worker.speed.is_known for worker in pool._crew.workers) and pool.workers == 2:
                return
            yield PointTask(index, (index % 10 / 10, 0.0))

    with pool:
        origin, directions, buffers = paraboloid_plane()
        pool.load({"x": origin["x"] + 1}, directions, buffers)
        assert len(values(pool.run(line(*range(5))))) == 5
        assert pool.workers == 1
        pool.load(origin, directions, buffers)
        let_the_late_one_come()
        found = values(pool.run(until_both_measure()))
        assert found == {index: {"loss": ((index % 10 / 10) ** 2).hex()} for index in range(len(found))}
        assert len(set(pool.process_ids)) == 2
        check_determinism(pool.measure_origin())


def test_a_process_of_this_machine_is_waited_for(monkeypatch):
    """On a busy machine its imports may take longer than a device of a cluster is waited for."""
    monkeypatch.setattr(placement, "PLACEMENT_SECONDS", 0.0)
    with LocalPool(Paraboloid, MeasurementOptions(), device_ids=(0,)) as pool:
        assert pool.workers == 1


@on_ray
@pytest.mark.slow
def test_some_find_no_place(workers_on, paraboloid, monkeypatch):
    """The cluster has four places, two of which are taken; without ids, a run asks for the others alone."""
    wait_until_free(2, "CPU")
    with workers_on(Paraboloid, MeasurementOptions()) as pool:
        assert pool.workers == 2
    wait_until_free(2, "CPU")
    with pytest.warns(UserWarning, match=r"\d of 5 workers found no place soon after the others; the run begins"):
        pool = workers_on(Paraboloid, MeasurementOptions(), device_ids=(0, 1, 2, 3, 4))
    with pool:
        assert 1 <= pool.workers <= 2
        pool.load(*paraboloid_plane())
        assert len(values(pool.run(line(*range(5))))) == 5
        wait_until_free(0, "CPU")  # one that is late takes what a busy machine gave too late
        monkeypatch.setattr(placement, "PLACEMENT_SECONDS", 1.0)
        text = r"no worker found a place within 1 s\. The cluster has .*'CPU': 4.* Each worker needs 1 CPU;"
        with pytest.raises(PoolError, match=text):
            workers_on(Paraboloid, MeasurementOptions(), device_ids=(0, 1, 2))
    assert ray_is_running() == (workers_on is RayPool)


@pytest.mark.parametrize(
    ("callback", "frameworks"),
    [(lambda: torch.ones(3), ("torch",)), (lambda: __import__("math").pi, ()), (functools.partial(case, "plain"), ())],
)
def test_the_framework_is_guessed_from_the_callback(callback, frameworks):
    """All workers import it at once; a wrong guess costs time only."""
    assert mentioned_frameworks(callback, b"") == frameworks
    assert mentioned_frameworks(callback, b"... torch.nn ...") == ("torch",)
