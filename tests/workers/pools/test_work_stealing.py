"""Who measures and reads what, on a simulated Ray: what a slow worker has, an idle one measures as well."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_ray import SimulatedActor, SimulatedCrew, SimulatedRay, use_clock
from worker_cases import values

from workers.pool import PointTask, StateTask, TasksInTime
from workers.pools.chunks import CHUNK_SECONDS, Chunk, MeasuredSpeed
from workers.pools.crew_run import CrewRun, chunks_to_steal
from workers.pools.crew_worker import CrewWorker, InFlight
from workers.pools.devices import WorkerPlace


def points(count):
    return [PointTask(index, (float(index),)) for index in range(count)]


def chunk_of(count, **more):
    return Chunk(points(count), **more)


def worker(seconds_per_point, *chunks, busy_since=0.0):
    result = CrewWorker(None, WorkerPlace((0,)), busy_since=busy_since)
    if seconds_per_point is not None:
        result.speed.add(10, 10 * seconds_per_point)
    result.in_flight.extend(InFlight(None, chunk, None) for chunk in chunks)
    return result


def chunk_to_steal(thief, workers, now):
    stolen = chunks_to_steal([thief], workers, now)
    assert [worker for worker, _ in stolen] in ([], [thief])
    return stolen[0][1] if stolen else None


# Seconds per point, the chunk that a worker has, seconds per point of the thief, and when it is taken.
CHOICES = {
    "of equally fast workers nothing is taken": (0.1, chunk_of(5), 0.1, dict.fromkeys((0.0, 0.3, 0.5, 0.9), False)),
    "what is late will take as long again": (0.1, chunk_of(5), 0.1, {1.0: False, 1.2: True}),
    "what is settled stays": (1.0, chunk_of(5, settled=True), 0.1, {100.0: False}),
    "what killed stays unless the next hangs": (1.0, chunk_of(5, kills=1), 0.1, {60.0: False, 70.0: True}),
    "a short gain is not worth it": (0.01, chunk_of(5), 0.0001, {0.0: False}),
    "nobody knows how long a first point takes": (None, chunk_of(1), None, {15.0: False, 21.0: True}),
    "it is known of the thief": (None, chunk_of(1), 0.1, {1.0: True}),
}


class TestChoice:
    def test_two_idle_workers_share_what_a_slow_one_has(self):
        first, second = chunk_of(5), chunk_of(5)
        slow, thieves = worker(1.0, first, second), [worker(0.1), worker(0.1), worker(0.1)]
        assert chunks_to_steal(thieves, [slow, *thieves], now=1.0) == [(thieves[0], second), (thieves[1], first)]

    def test_of_a_slow_worker_the_last_chunk_is_taken(self):
        first, second = chunk_of(5), chunk_of(5)
        slow, thief = worker(1.0, first, second), worker(0.1)
        assert chunk_to_steal(thief, [slow, thief], now=1.0) is second

    @pytest.mark.parametrize("case", CHOICES)
    def test_when_it_is_taken(self, case):
        seconds, chunk, of_the_thief, taken = CHOICES[case]
        other, thief = worker(seconds, chunk), worker(of_the_thief)
        for now, is_taken in taken.items():
            assert chunk_to_steal(thief, [other, thief], now) is (chunk if is_taken else None)

    def test_a_second_copy_is_made_when_the_first_is_late_too(self):
        chunk = chunk_of(5)
        stopped, other, thief = worker(0.1, chunk), worker(0.1, chunk, busy_since=100.0), worker(0.1)
        assert chunk_to_steal(thief, [stopped, other, thief], now=100.4) is None
        assert chunk_to_steal(thief, [stopped, other, thief], now=101.2) is chunk


class TestSpeed:
    @pytest.mark.parametrize(
        ("points", "times", "expected"),
        [
            (20, (1.0, 1.0, 1e-9), 20),  # one outlier changes nothing
            (20, (1.0, 1.0, 1000.0), 20),
            (20, (1.0, 1.0, 1.0, 4.0, 4.0), 5),  # a lasting change is followed
            (1, (10.0,), 1),
            (1, (10.0, 0.1, 0.1), 4),  # a first point that warms up is forgotten
        ],
    )
    def test_what_lasts_counts(self, points, times, expected):
        speed = MeasuredSpeed()
        for seconds in times:
            speed.add(points, seconds)
        assert speed.points_in(1.0) == expected

    def test_chunks_grow_fourfold_at_most(self):
        """Points that fail at once look very fast."""
        speed = MeasuredSpeed()
        lengths = []
        for _ in range(5):
            lengths.append(speed.points_in(1.0))
            speed.add(lengths[-1], 1e-9)
        assert lengths == [1, 4, 16, 64, 256]


def simulate(monkeypatch, crew, tasks):
    """Returns the results, one for each task, and how long they took."""
    use_clock(monkeypatch, crew.ray)
    start = crew.ray.now
    results = list(CrewRun(crew, tasks))
    assert Counter(result.key for result in results) == Counter(task.key for task in tasks)
    return results, crew.ray.now - start


@pytest.fixture
def sizes(monkeypatch):
    """How many points the chunks have that are given out."""
    found, submit = [], CrewRun._submit
    monkeypatch.setattr(CrewRun, "_submit", lambda *given: (found.append(len(given[2].tasks)), submit(*given)))
    return found


def crew_of(*seconds, **more):
    ray = SimulatedRay()
    return SimulatedCrew(ray, lambda number: SimulatedActor(ray, seconds[number], **more), len(seconds))


class TestShareOfTheIdealSpeed:
    """With 5 ms on the way to each worker; the ideal knows none."""

    def test_many_workers(self, monkeypatch):
        crew = crew_of(*[0.05] * 64)
        for _ in range(2):
            _, seconds = simulate(monkeypatch, crew, points(4096))
            assert 4096 * 0.05 / 64 / seconds >= 0.95
        assert sum(worker.actor.busy for worker in crew.workers) < 2 * 4096 * 0.05 * 1.02

    @pytest.mark.slow
    def test_a_turn_of_the_driver_serves_several_of_many_workers(self, monkeypatch, sizes):
        """Each wait looks at all 512 of them, so one for each chunk would cost the driver more than anything else."""
        crew = crew_of(*[0.45 + 0.1 * number / 512 for number in range(512)])
        looked, wait = [], crew.ray.wait
        crew.ray.wait = lambda references, **how: (looked.append(len(references)), wait(references, **how))[1]
        _, seconds = simulate(monkeypatch, crew, points(512 * 20))
        assert sum(looked) < 250 * len(sizes)  # 1,007 before
        assert 20 * 0.5 / seconds >= 0.95

    def test_short_points_come_in_chunks_that_the_driver_can_give_out(self, monkeypatch, sizes):
        """Chunks of one point at the end would ask more of the driver than it can do."""
        simulate(monkeypatch, crew_of(*[0.005] * 64), points(64 * 400))
        assert len(sizes) < 64 * 16  # 1,254 before
        # All but the first three of each worker, whose speed is not known yet, take 32 ms at least.
        assert sum(size < 6 for size in sizes) <= 3 * 64 + 1

    @pytest.mark.parametrize("slow", [0.5, 5.0])
    def test_one_slow_worker(self, monkeypatch, slow):
        crew = crew_of(slow, *[0.05] * 7)
        for _ in range(3):
            _, seconds = simulate(monkeypatch, crew, points(1420))
            assert 1420 / (7 / 0.05 + 1 / slow) / seconds >= 0.90

    @pytest.mark.parametrize("seconds", [0.05, 10.0])
    def test_after_the_budget_each_worker_ends_what_it_began(self, monkeypatch, seconds):
        crew = crew_of(*[seconds] * 4)
        use_clock(monkeypatch, crew.ray)
        end = crew.ray.now + 180
        tasks = TasksInTime(points(100_000), lambda: crew.ray.now > end)
        results = list(CrewRun(crew, tasks))
        assert crew.ray.now <= end + max(2.5 * CHUNK_SECONDS, 1.01 * seconds)
        assert len(results) >= 0.95 * 4 * 180 / seconds

    def test_a_worker_that_stops(self, monkeypatch):
        ray = SimulatedRay()
        crew = SimulatedCrew(ray, lambda number: SimulatedActor(ray, 0.05, math.inf if number else 3.0), 8)
        _, seconds = simulate(monkeypatch, crew, points(1400))
        assert seconds <= 1400 * 0.05 / 7 * 1.15
        simulate(monkeypatch, crew, points(140))


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


KINDS = st.lists(st.booleans() | st.just(True), max_size=40)

of_runs = given(KINDS, st.lists(st.sampled_from([0.001, 0.05, 0.05, 2.0]), min_size=2, max_size=4), st.data())


def each_task_ends_exactly_once(kinds, speeds, data):
    """Whatever stops or dies, and whatever answers that loses; where only culprits kill, these alone are given up."""
    stopped = data.draw(st.sets(st.integers(1, len(speeds) - 1)))
    guilty = data.draw(st.sets(st.integers(0, max(0, len(kinds) - 1)), max_size=5)) if kinds else set()
    blind = data.draw(st.sets(st.integers(0, len(speeds) - 1)))
    random = data.draw(st.randoms(use_true_random=False))
    rate = data.draw(st.sampled_from([0.0, 0.1, 0.4]))
    ray = SimulatedRay()

    def make(number):
        stops = ray.now + 3 * random.random() if number in stopped else math.inf
        kills = lambda key: key in guilty or random.random() < rate  # noqa: E731
        loses = lambda: random.random() < 0.7  # noqa: E731
        return SimulatedActor(ray, speeds[number], stops, kills, number not in blind, loses)

    crew = SimulatedCrew(ray, make, len(speeds))
    tasks = [
        # Every third set of weights is one that only the driver can read.
        PointTask(index, (float(index),))
        if kind
        else StateTask(index, partial(number_of, index), partial(number_of, index) if index % 3 else None)
        for index, kind in enumerate(kinds)
    ]
    with pytest.MonkeyPatch.context() as monkeypatch:
        results, _ = simulate(monkeypatch, crew, tasks)
    assert all(result.values is None or result.values == {"loss": float(result.key)} for result in results)
    if rate == 0:
        assert {result.key for result in results if result.values is None} == guilty


test_of_a_few_runs_each_task_ends_exactly_once = settings(max_examples=30)(of_runs(each_task_ends_exactly_once))
test_each_task_ends_exactly_once = pytest.mark.slow(of_runs(each_task_ends_exactly_once))
