"""Who gets a place, and how long that is waited for, by a simulated clock; what becomes of those that find none."""

import math
import types

import pytest
from simulated_ray import Reference, SimulatedError, SimulatedRay

from workers.errors import PoolError
from workers.pools import crew as crew_module
from workers.pools import placement, ray_pool
from workers.pools.crew import Crew
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
    """Finds its place after some seconds, never where that is infinite; notes what it was asked for."""

    def __init__(self, ray, number, seconds=math.inf, deaths=0):
        self.recipe = types.SimpleNamespace(actors=RayActors(ray), kind=None, layout=WorkerLayout())
        self.place = WorkerPlace((number,))
        self.label, self.seconds, self.deaths = self.place.label, seconds, deaths
        self.starting, self.in_flight, self.started_at, self.asked = [], [], ray.now, []

    def create(self):
        return Reference(self.recipe.actors.ray.now + self.seconds, ("node", (), 1))

    def call(self, method, *_arguments):
        return Reference(self.recipe.actors.ray.now, f"{method} of {self.label}")

    def seek_place(self):
        self.starting, self.asked = [self.create()], []

    def start_up(self, plan, memory, plane):
        self.asked.append(plane)

    def leave(self):
        self.starting = []
        self.asked.append("to leave")


@pytest.fixture
def placed(monkeypatch):
    """Places workers; returns those that found a place and those that still seek one, and how long it took."""

    def place(ray, *seconds):
        for module in (ray_pool, placement):
            monkeypatch.setattr(module, "time", ray)
        workers = [Worker(ray, number, each) for number, each in enumerate(seconds)]
        everyone = list(workers)
        late = place_workers(workers)
        assert not any(worker.asked for worker in everyone)
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


def crew_of(*deaths):
    ray = SimulatedRay()
    crew = Crew(RayActors(ray))
    crew._started = types.SimpleNamespace(plan=None)
    crew.workers = [Worker(ray, number, deaths=count) for number, count in enumerate(deaths)]
    return crew


@pytest.mark.parametrize(
    ("deaths", "text"),
    [
        ((1, 0), r"^the worker of device 0, which died once, is given up; the other one goes on\. no place$"),
        ((12, 0, 0), r"^the worker of device 0, which died 12 times, is given up; the other 2 go on\. no place$"),
        ((0, 0), r"^the worker of device 0 is given up; the other one goes on\. no place$"),
    ],
)
def test_a_warning_counts_deaths_and_those_that_go_on(deaths, text):
    crew = crew_of(*deaths)
    with pytest.warns(UserWarning, match=text):
        crew._drop(crew.workers[0], PoolError("no place"))
    assert len(crew.workers) == len(deaths) - 1


@pytest.mark.parametrize(
    ("deaths", "starting", "text"),
    [
        (12, False, r"^the last worker died 12 times\. What was .* run the same call again to go on\. .*no place"),
        (1, False, r"^the last worker died once\. What"),
        (1, True, r"^the last worker, which died once, could not be started again\. What"),
        (3, True, r"^the last worker, which died 3 times, could not be started again\. What"),
        (0, True, r"^the last worker could not be started\. What"),
    ],
)
def test_the_last_one_ends_the_run(deaths, starting, text):
    crew = crew_of(deaths)
    if starting:
        crew.workers[0].seek_place()
    with pytest.raises(PoolError, match=text):
        crew._drop(crew.workers[0], PoolError("no place"))


@pytest.fixture
def clock(monkeypatch):
    """Returns a function that lets a crew's time pass."""

    def forward(crew, seconds):
        monkeypatch.setattr(crew_module, "time", crew.actors.ray)
        crew.actors.ray.now += seconds

    return forward


@pytest.mark.parametrize(
    ("deaths", "died", "others"),
    [((1, 0), ", which died once,", "the other one goes on"), ((0, 0, 0), "", "the other 2 go on")],
)
def test_one_that_finds_no_place_again_joins_later(clock, deaths, died, others):
    """It was given up for the whole run."""
    crew = crew_of(*deaths)
    crew.plane = "the first plane"
    late = crew.workers[0]
    late.seconds = 1000.0
    late.seek_place()
    clock(crew, placement.PLACEMENT_SECONDS)
    crew.finish_start(late)
    assert late in crew.workers
    clock(crew, 1.0)
    with pytest.warns(UserWarning, match=f"^{late.label}{died} has no place yet; {others}, and it joins when it finds"):
        crew.finish_start(late)
    crew.admit_late()
    assert (crew.late, late.asked) == ([late], [])
    assert late not in crew.workers
    crew.plane = "the next plane"
    clock(crew, 1000.0)
    crew.admit_late()
    assert (crew.late, late.asked) == ([], ["the next plane"])
    assert crew.workers[-1] is late


def test_the_others_are_asked_without_one_that_finds_no_place_again(clock, monkeypatch):
    """It died while the landscape before was measured; the next plane is loaded on the others."""
    crew = crew_of(1, 0, 0)
    late, *others = crew.workers
    late.seek_place()
    clock(crew, 0.0)
    monkeypatch.setattr(ray_pool, "time", crew.actors.ray)
    with pytest.warns(UserWarning, match="which died once, has no place yet; the other 2 go on, and it joins when it"):
        answers = crew.ask_all("load")
    assert answers == ["load of the worker of device 1", "load of the worker of device 2"]
    assert (crew.workers, crew.late) == (others, [late])


def test_the_last_one_is_not_waited_for_without_end(clock):
    crew = crew_of(1)
    crew.workers[0].seek_place()
    clock(crew, placement.PLACEMENT_SECONDS + 1)
    with pytest.raises(PoolError, match=r"which died once, could not be started again.*it found no place within 30 s"):
        crew.finish_start(crew.workers[0])


def test_late_ones_end_with_the_others():
    crew = crew_of(0, 0)
    everyone = list(crew.workers)
    crew.late.append(crew.workers.pop())
    crew.end()
    assert [worker.asked for worker in everyone] == [["to leave"], ["to leave"]]
    assert (crew.workers, crew.late) == ([], [])
