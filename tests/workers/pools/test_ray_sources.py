"""Weights that workers read by themselves where they reach them, and that the driver sends where they do not."""

from __future__ import annotations

import gc
import os
import weakref
from collections import Counter
from functools import partial

import numpy as np
import pytest
from paraboloid import Paraboloid, paraboloid_plane
from simulated_ray import SimulatedActor, SimulatedCrew, SimulatedRay, use_clock
from worker_cases import ConvNet, case, plane_of, seeded, state_of, values

from collectors.networks.readers import describe_network
from collectors.networks.weight_space import describe_arrays
from collectors.weights.aligned import CompletedState, NetworkState, align
from collectors.weights.safetensors_file import CheckpointFile, portable, write_checkpoint
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pool import StateTask
from workers.pools.crew_run import CrewRun
from workers.pools.in_process import InProcessPool
from workers.pools.ray_pool import RayPool
from workers.pools.ray_session import RaySession

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray")


def number_of(number):
    return {"x": number}, None


class Driver:
    """Reads what workers cannot, and counts."""

    def __init__(self, error=None):
        self.reads, self.error = Counter(), error

    def task(self, number, source=None):
        return StateTask(number, partial(self.read, number), source or partial(number_of, number))

    def read(self, number):
        self.reads[number] += 1
        if self.error is not None:
            raise self.error
        return number_of(number)


class TestWhoReads:
    """On a simulated Ray, where it is known which worker gets what."""

    @staticmethod
    def run(monkeypatch, tasks, *, blind=(), seconds=(0.5,) * 4):
        ray = SimulatedRay()
        actors = [SimulatedActor(ray, each, reaches=number not in blind) for number, each in enumerate(seconds)]
        crew = SimulatedCrew(ray, actors.__getitem__, len(actors))
        use_clock(monkeypatch, ray)
        return list(CrewRun(crew, tasks)), crew

    def test_workers_that_reach_them(self, monkeypatch):
        driver = Driver()
        results, crew = self.run(monkeypatch, [driver.task(number) for number in range(40)])
        assert values(results) == {number: {"loss": float(number).hex()} for number in range(40)}
        assert not driver.reads
        assert all(worker.cannot_read is None for worker in crew.workers)

    def test_those_that_do_not_are_asked_once(self, monkeypatch):
        driver, asked = Driver(), []
        measure = SimulatedActor._measure
        monkeypatch.setattr(SimulatedActor, "_measure", lambda self, keys: (asked.append(keys), measure(self, keys))[1])
        results, crew = self.run(monkeypatch, [driver.task(number) for number in range(40)], blind={1, 3})
        assert values(results) == {number: {"loss": float(number).hex()} for number in range(40)}
        assert 15 <= len(driver.reads) <= 25
        assert set(driver.reads.values()) == {1}
        # Before the first answer a worker may have a second one.
        assert 2 <= asked.count([]) <= 4
        assert [worker.cannot_read is worker.actor for worker in crew.workers] == [False, True, False, True]

    @pytest.mark.parametrize(("blind", "seconds"), [({0, 1, 2, 3}, (0.5,) * 4), ({1}, (500.0, 0.5))])
    def test_what_the_driver_cannot_read_either_fails_once(self, monkeypatch, blind, seconds):
        """A slow worker may have read it, but nobody waits for a worker that hangs."""
        driver = Driver(OSError("the disk is gone"))
        tasks = [driver.task(number) for number in range(20)]
        results, _ = self.run(monkeypatch, tasks, blind=blind, seconds=seconds)
        assert Counter(result.key for result in results) == Counter(range(20))
        assert all("OSError: the disk is gone" in result.error for result in results)

    def test_one_that_nobody_reads_keeps_no_worker_from_the_others(self, monkeypatch):
        good, bad = Driver(), Driver(OSError("gone"))
        tasks = [good.task(number) for number in range(20)]
        tasks[5] = bad.task(5, partial(int, "no number"))
        actor = SimulatedActor._measure_source

        def measure(self, source, settings):
            try:
                return actor(self, source, settings)
            except ValueError:
                return self._measure([])

        monkeypatch.setattr(SimulatedActor, "_measure_source", measure)
        results, crew = self.run(monkeypatch, tasks)
        assert {result.key for result in results if result.error} == {5}
        assert not good.reads
        assert all(worker.cannot_read is None for worker in crew.workers)

    def test_a_slow_worker_s_are_read_by_another(self, monkeypatch):
        driver = Driver()
        results, crew = self.run(monkeypatch, [driver.task(number) for number in range(10)], seconds=(500.0, 0.5))
        assert len(values(results)) == 10
        assert not driver.reads
        assert crew.ray.now < 100

    def test_what_cannot_be_pickled_is_sent(self, monkeypatch):
        driver = Driver()
        results, _ = self.run(monkeypatch, [driver.task(number, lambda: number_of(0)) for number in range(6)])
        assert values(results) == {number: {"loss": float(number).hex()} for number in range(6)}
        assert driver.reads == Counter(range(6))


@pytest.fixture(scope="module")
def session():
    with RaySession(None, slots=2) as session:
        yield session


@pytest.fixture(scope="module")
def paraboloid(session):
    with RayPool(Paraboloid, MeasurementOptions(), device_ids=(0, 1)) as pool:
        pool.load(*paraboloid_plane())
        yield pool


@pytest.fixture(params=["reached", "of the driver alone"])
def folder(request, tmp_path):
    """A folder that workers reach, or one that a process sees only through a file descriptor of its own."""
    if request.param == "reached":
        yield tmp_path, True
        return
    descriptor = os.open(tmp_path, os.O_RDONLY)
    # A number that no worker has for a folder.
    high = os.dup2(descriptor, 777)
    os.close(descriptor)
    yield type(tmp_path)(f"/proc/self/fd/{high}"), False
    os.close(high)


def counting(read, reads):
    reads.append(1)
    return read()


@pytest.mark.slow
def test_the_same_bits_as_in_one_process(session, folder):
    """Names with prefixes, frozen parameters in a file of their own, and buffers of three kinds."""
    place, is_reached = folder
    loss, network, dataset = case("batchnorm")
    space = describe_network(network)
    readers = []
    for number in range(3):
        parameters, buffers = state_of(seeded(ConvNet, seed=1 + number))
        frozen = {name: parameters.pop(name) for name in ("head.bias", "features.0.weight")}
        wrapped = {f"module.{name}": array for name, array in (parameters | buffers).items()}
        write_checkpoint(place / f"{number}.safetensors", wrapped)
        write_checkpoint(place / f"{number}_frozen.safetensors", {f"module.{name}": frozen[name] for name in frozen})
        files = [CheckpointFile(place / f"{number}{end}.safetensors") for end in ("", "_frozen")]
        readers.append(align(CompletedState(*files), space))
    given = state_of(seeded(ConvNet, seed=9))[1]
    reads = []
    tasks = [
        StateTask(
            (number, kind),
            partial(counting, NetworkState(lambda reader=reader: reader, space, own, buffers), reads),
            NetworkState(portable(reader), space, own, buffers),
        )
        for number, reader in enumerate(readers)
        for kind, own, buffers in (("own", True, None), ("plane's", False, None), ("given", False, given))
    ]
    options, plan = MeasurementOptions(), MeasurementPlan(16, 1)
    with InProcessPool(lambda: (loss, network, dataset, {}), options, plan=plan) as pool:
        pool.load(*plane_of(network))
        expected = values(pool.run(tasks))
    assert len({str(item) for item in expected.values()}) == 9
    assert len(reads) == 9
    reads.clear()
    with RayPool(lambda: (loss, network, dataset, {}), options, device_ids=(0, 1), plan=plan) as pool:
        pool.load(*plane_of(network))
        assert values(pool.run(tasks)) == expected
    assert bool(reads) != is_reached


def file_task(place, number, reads, held=None):
    """A set of weights that the driver reads at any rate, and workers from its file."""
    write_checkpoint(place / f"{number}.safetensors", {"x": np.array([number, 0.0, 0.0])})
    space = describe_arrays({"x": np.zeros(3)})
    reader = align(CheckpointFile(place / f"{number}.safetensors"), space)

    def read():
        reads.append(number)
        if held is not None:
            gc.collect()
            assert not [array for array in held if array() is not None]
        array = np.array([number, 0.0, 0.0])
        if held is not None:
            held.append(weakref.ref(array))
        return {"x": array}, {}

    return StateTask(number, read, NetworkState(portable(reader), space, True))


@pytest.mark.slow
def test_other_bytes_in_its_place_are_not_measured(paraboloid, tmp_path):
    reads = []
    tasks = [file_task(tmp_path, number, reads) for number in range(4)]
    write_checkpoint(tmp_path / "2.safetensors", {"x": np.array([9.0, 0.0, 0.0])})
    results = {result.key: result.values["loss"] for result in paraboloid.run(tasks)}
    assert results == {0: 0.0, 1: 1.0, 2: 4.0, 3: 9.0}
    assert 2 in reads


@pytest.mark.slow
def test_the_driver_holds_one_at_a_time(paraboloid, folder):
    place, is_reached = folder
    reads = []
    held = []
    tasks = [file_task(place, number, reads, held) for number in range(8)]
    assert len(values(paraboloid.run(tasks))) == 8
    assert sorted(reads) == ([] if is_reached else list(range(8)))


@pytest.mark.slow
def test_a_checkpoint_that_is_gone_is_the_error_that_it_was(paraboloid, tmp_path):
    write_checkpoint(tmp_path / "1.safetensors", {"x": np.ones(3)})
    space = describe_arrays({"x": np.zeros(3)})
    reader = align(CheckpointFile(tmp_path / "1.safetensors"), space)
    task = StateTask(1, NetworkState(lambda: reader, space, True), NetworkState(portable(reader), space, True))
    (tmp_path / "1.safetensors").unlink()
    (result,) = paraboloid.run([task])
    assert result.values is None
    assert f"CheckpointError: checkpoint {tmp_path / '1.safetensors'} cannot be read: No such file" in result.error


@pytest.mark.slow
def test_a_worker_that_dies_of_it_costs_no_other(paraboloid, tmp_path):
    reads = []
    tasks = [file_task(tmp_path, number, reads) for number in (1, 2, -11, 3)]
    results = {result.key: result for result in paraboloid.run(tasks)}
    assert {key: result.values["loss"] for key, result in results.items() if result.values} == {1: 1.0, 2: 4.0, 3: 9.0}
    assert "died" in results[-11].error
    assert not reads
