"""What becomes of a worker that dies too often, or finds no place; and what is said of it."""

from types import SimpleNamespace

import pytest
from simulated_ray import Reference, SimulatedRay

from workers.errors import PoolError
from workers.pools import crew as crew_module
from workers.pools.crew import PLACEMENT_SECONDS, Crew
from workers.pools.ray_pool import RayActors

NEVER = float("inf")


class Worker:
    """Finds its place after some seconds, and says what it was asked for."""

    def __init__(self, ray, number, deaths=0, seconds=NEVER):
        self.label = f"the worker of device {number}"
        self.ray, self.deaths, self.seconds = ray, deaths, seconds
        self.starting, self.started_at, self.asked = [], ray.now, []

    def seek_place(self):
        self.starting, self.asked = [Reference(self.ray.now + self.seconds, "a place")], []

    def start_up(self, plan, memory, plane):
        self.asked.append(plane)

    def leave(self):
        self.starting = []
        self.asked.append("to leave")


def crew_of(*deaths):
    ray = SimulatedRay()
    crew = Crew(RayActors(ray))
    crew._started = SimpleNamespace(plan=None)
    crew.workers = [Worker(ray, number, count) for number, count in enumerate(deaths)]
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
    clock(crew, PLACEMENT_SECONDS)
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


def test_the_last_one_is_not_waited_for_without_end(clock):
    crew = crew_of(1)
    crew.workers[0].seek_place()
    clock(crew, PLACEMENT_SECONDS + 1)
    with pytest.raises(PoolError, match=r"which died once, could not be started again.*it found no place within 30 s"):
        crew.finish_start(crew.workers[0])


def test_late_ones_end_with_the_others():
    crew = crew_of(0, 0)
    everyone = list(crew.workers)
    crew.late.append(crew.workers.pop())
    crew.end()
    assert [worker.asked for worker in everyone] == [["to leave"], ["to leave"]]
    assert (crew.workers, crew.late) == ([], [])
