"""Ray with a clock of its own: what a run does is seen in no time, and is the same every time."""

import math
import pickle
from types import SimpleNamespace

from workers.pools import crew_run, ray_pool
from workers.pools.crew_worker import CrewWorker
from workers.pools.devices import WorkerPlace
from workers.pools.ray_pool import RayActors

LATENCY = 0.005


class SimulatedError(Exception):
    """Any of Ray's own errors."""


class SimulatedTaskError(SimulatedError):
    """An exception that an actor raised."""


class Reference:
    def __init__(self, finish, value):
        self.finish, self.value = finish, value


class Method:
    def __init__(self, call):
        self.remote = call


class SimulatedActor:
    """Measures one call after another by the clock of a Ray; stands still for good when it ``stops``.

    It ends where measuring a point ``kills``, which may lose the answer before, and ``reaches`` sets of weights by
    itself or not.
    """

    def __init__(self, ray, seconds, stops=math.inf, kills=lambda key: False, reaches=True, loses=lambda: False):
        self.ray, self.seconds, self.stops, self.kills, self.loses = ray, seconds, stops, kills, loses
        self.free_at, self.dead, self.busy, self.last = 0.0, False, 0.0, Reference(0.0, None)
        self.measure_points = Method(lambda points: self._measure([point[0] for point in points]))
        self.measure_state = Method(lambda parameters, buffers, settings: self._measure([parameters["x"]]))
        self.measure_source = Method(self._measure_source if reaches else lambda *_: self._measure([]))

    def _measure_source(self, source, settings):
        parameters, _ = pickle.loads(source)()
        return self._measure([parameters["x"]])

    def _measure(self, keys):
        start = max(self.ray.now + LATENCY, self.free_at)
        if self.dead:
            return Reference(start, SimulatedError("it died before"))
        finish = start + self.seconds * len(keys)
        if finish > self.stops:
            self.free_at = math.inf
            return Reference(math.inf, None)
        self.free_at, self.busy = finish, self.busy + finish - start
        if any(self.kills(key) for key in keys):
            self.dead, died = True, SimulatedError("killed")
            if self.last.finish > self.ray.now and self.loses():
                self.last.finish, self.last.value = finish, died
            return Reference(finish, died)
        answer = [({"loss": float(key)}, None) for key in keys], finish - start, None
        self.last = Reference(finish, answer if keys else None)
        return self.last


class SimulatedRay:
    exceptions = SimpleNamespace(RayError=SimulatedError, RayTaskError=SimulatedTaskError)
    _private = SimpleNamespace(worker=None)  # there is no raylet to look for

    def __init__(self):
        self.now = 0.0
        self.monotonic = lambda: self.now  # time: a false clock

    def put(self, value):
        return value

    def wait(self, references, *, num_returns, timeout):
        assert references
        enough = sorted(reference.finish for reference in references)[num_returns - 1]
        self.now = max(self.now, min(enough, self.now + timeout))
        ready = [reference for reference in references if reference.finish <= self.now][:num_returns]
        others = set(references).difference(ready)
        return ready, [reference for reference in references if reference in others]

    def get(self, reference):
        if isinstance(reference, list):
            return [self.get(item) for item in reference]
        assert reference.finish <= self.now
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value


def use_clock(patch, ray):
    """Lets a run's time be that of a simulated Ray."""
    for module in (crew_run, ray_pool):
        patch.setattr(module, "time", ray)


class SimulatedCrew:
    """Workers that are replaced at once when they die; ``make`` returns an actor for a worker's number."""

    pass_cost = None

    def __init__(self, ray, make, count):
        self.ray, self.make, self.actors = ray, make, RayActors(ray)
        self.workers = [CrewWorker(None, WorkerPlace((number,)), actor=make(number)) for number in range(count)]

    def replace(self, worker, error, limit):
        worker.actor = self.make(worker.place.devices[0])

    def follow(self, plan):
        assert plan is None

    def look_for_nodes(self):
        """None joins."""

    def admit_late(self):
        """Nobody is late."""
