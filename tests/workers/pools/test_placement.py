"""Who gets a place on a cluster, and how long that is waited for; the clock is simulated."""

import math
import types

import pytest
from simulated_ray import Reference, SimulatedError, SimulatedRay

from workers.errors import PoolError
from workers.pools import placement, ray_pool
from workers.pools.devices import WorkerLayout, WorkerPlace
from workers.pools.placement import cpu_slots, free_devices, place_workers
from workers.pools.ray_pool import RayActors


class Cluster(SimulatedRay):
    """Nodes that install the run's environment first: for some seconds each, or until an error."""

    def __init__(self, *environments):
        super().__init__()
        self.environments = environments
        self.installed = {}
        strategies = types.SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, *, soft: node)
        self.util = types.SimpleNamespace(scheduling_strategies=strategies)

    def nodes(self):
        return [{"NodeID": node, "Alive": True, "Resources": {"CPU": 4.0}} for node in range(len(self.environments))]

    def cluster_resources(self):
        return {"CPU": 4.0 * len(self.environments)}

    available_resources = cluster_resources

    def remote(self, _function):
        def options(*, num_cpus, max_retries, scheduling_strategy):
            assert (num_cpus, max_retries) == (0, 0)  # it finds a place on a node that is busy
            seconds = self.environments[scheduling_strategy]
            failed = isinstance(seconds, Exception)
            reference = Reference(self.now + (1.0 if failed else seconds), seconds if failed else None)
            return types.SimpleNamespace(remote=lambda: reference)

        return types.SimpleNamespace(options=options)


class Worker:
    """Finds its place after some seconds; never where that is infinite."""

    def __init__(self, ray, number, seconds):
        self.recipe = types.SimpleNamespace(actors=RayActors(ray), kind=None, layout=WorkerLayout())
        self.place, self.seconds, self.left, self.starting = WorkerPlace((number,)), seconds, False, []

    def create(self):
        return Reference(self.recipe.actors.ray.now + self.seconds, ("node", (), 1))

    def leave(self):
        self.left = True


@pytest.fixture
def placed(monkeypatch):
    """Places workers; returns those that found a place and those that still seek one, and how long it took."""

    def place(ray, *seconds):
        for module in (ray_pool, placement):
            monkeypatch.setattr(module, "time", ray)
        workers = [Worker(ray, number, each) for number, each in enumerate(seconds)]
        everyone = list(workers)
        late = place_workers(workers)
        assert not any(worker.left for worker in everyone)
        assert [bool(worker.starting) for worker in everyone] == [worker in late for worker in everyone]
        numbers = [[worker.place.devices[0] for worker in group] for group in (workers, late)]
        return *numbers, ray.now

    return place


def test_installing_the_environment_is_no_waiting_for_a_place(placed):
    assert placed(Cluster(300.0, 400.0), 2.0, 3.0) == ([0, 1], [], 403.0)


def test_a_node_whose_environment_is_never_there_holds_up_nobody_for_ever(placed):
    found, late, seconds = placed(Cluster(40.0, math.inf), 1.0)
    assert (found, late) == ([0], [])
    assert seconds <= 40 + 80 + 1


def test_an_environment_that_cannot_be_installed_is_an_error(placed):
    with pytest.raises(PoolError, match=r"environment could not be installed\. Ray says: no such package"):
        placed(Cluster(SimulatedError("no such package")), 1.0)


@pytest.mark.parametrize(("first", "longest"), [(1.0, 6.0), (4.0, 4 + 12.0), (20.0, 20 + 30.0)])
def test_one_device_that_is_taken_costs_a_moment(placed, first, longest):
    """It was half a minute at every start."""
    with pytest.warns(UserWarning, match="1 of 3 workers found no place soon .*; the run begins, and each joins when"):
        found, late, seconds = placed(Cluster(0.0), first, first, math.inf)
    assert (found, late) == ([0, 1], [2])
    assert seconds <= longest


def test_workers_that_come_one_after_another_are_all_waited_for(placed):
    starts = [4.0 * number for number in range(1, 40)]
    assert placed(Cluster(0.0), *starts) == (list(range(39)), [], starts[-1])


def test_nobody_finds_a_place(placed):
    ray = Cluster(100.0)
    with pytest.raises(PoolError, match=r"no worker found a place within 30 s\. The cluster has {'CPU': 4.0}"):
        placed(ray, math.inf, math.inf)
    assert ray.now == 130


@pytest.mark.parametrize(
    ("cpus", "layout", "slots"),
    [
        (16, WorkerLayout(), 16),
        (16, WorkerLayout(devices_per_worker=4), 16),
        (18, WorkerLayout(devices_per_worker=4), 16),
        (3, WorkerLayout(devices_per_worker=4), 0),
        (16, WorkerLayout(workers_per_device=4), 4),
        (0, WorkerLayout(), 0),
    ],
)
def test_all_cpus_of_a_node_are_taken(cpus, layout, slots):
    """A cluster of 16 CPUs had four workers of one CPU."""
    assert cpu_slots(cpus, layout) == slots
    assert layout.workers(slots) * layout.devices_per_worker <= cpus


def test_a_worker_of_several_cpus_does_not_span_nodes():
    ray = Cluster(0.0, 0.0)
    free = {"a": {"CPU": 3.0}, "b": {"CPU": 5.0}, "c": {}}
    ray._private = types.SimpleNamespace(
        state=types.SimpleNamespace(available_resources_per_node=lambda: free),
        worker=types.SimpleNamespace(_global_node=object()),
    )
    assert free_devices(ray, None, None, WorkerLayout()) == tuple(range(8))
    assert free_devices(ray, None, None, WorkerLayout(devices_per_worker=2)) == tuple(range(6))
    assert free_devices(ray, None, (4, 5), WorkerLayout()) == (4, 5)
    ray._private.worker._global_node = None  # a client, which is told the sum alone
    assert free_devices(ray, None, None, WorkerLayout(devices_per_worker=3)) == tuple(range(6))
