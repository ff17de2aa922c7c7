"""How well a pool keeps its workers busy: on evaluators that only sleep, and on a real network.

Run it by hand on a quiet machine: ``python tests/benchmarks/scheduling.py [CASE ...]``. Each case prints one line; only
measuring is timed, not the pool's start. The goals are, as shares of what workers without any pause would need: 0.95
for 64 workers at 50 ms a point, 0.90 where one of eight workers is ten times slower than the others; driver memory that
does not grow over a million points; and, for LeNet on two cores, 1.9 times the speed of one worker on one.
"""

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from collectors.networks.weight_space import TensorInfo, WeightSpace
from workers.evaluator import Evaluator, EvaluatorDescription
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pool import PointTask, Pool
from workers.pools.crew import Crew
from workers.pools.crew_run import CrewRun
from workers.pools.crew_worker import CrewWorker
from workers.pools.devices import WorkerPlace
from workers.pools.in_process import InProcessPool
from workers.pools.local_pool import LocalPool
from workers.pools.ray_pool import RayActors, RayPool
from workers.pools.ray_session import RaySession

SECONDS = 0.05
SLOW = 10
OPTIONS = MeasurementOptions()
PLAN = MeasurementPlan(250, 1)
PLANE: Any = ({"x": np.zeros(1)}, [{"x": np.zeros(1)}] * 2, {})


class Sleeper(Evaluator):
    """Sleeps instead of computing; the loss is the first coordinate."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        space = WeightSpace("none", "Sleeper", (TensorInfo("x", (1,), "float64", "parameter", True),))
        plan = MeasurementPlan()
        self._description = EvaluatorDescription(space, ("loss",), 1, "0" * 64, OPTIONS, False, plan, "cpu")

    @property
    def description(self) -> EvaluatorDescription:
        return self._description

    def load(self, origin: Any, directions: Any, buffers: Any, end_buffers: Any = ()) -> None:
        pass

    def measure(self, points: Any) -> dict[str, Any]:
        if self._seconds:
            time.sleep(self._seconds * len(points))
        return {"loss": np.ascontiguousarray(points[:, 0])}

    def measure_state(self, parameters: Any, buffers: Any) -> dict[str, float]:
        return {"loss": 0.0}


def sleeper(seconds: float, slow_mark: str | None = None) -> Callable[[], Evaluator]:
    """Returns a callback_fn; the worker that makes the directory ``slow_mark`` first is slower than the others."""

    def callback_fn() -> Evaluator:
        if slow_mark is not None:
            try:
                os.mkdir(slow_mark)  # noqa: PTH102
                return Sleeper(seconds * SLOW)
            except FileExistsError:
                pass
        return Sleeper(seconds)

    return callback_fn


def points(count: int) -> Iterator[PointTask]:
    return (PointTask(index, (index / count, 0.0)) for index in range(count))


def seconds_of(pool: RayPool, count: int) -> float:
    """Measures that many points; returns how long it took."""
    pool.load(*PLANE)
    start = time.perf_counter()
    take_all(pool.run(points(count)), count)
    return time.perf_counter() - start


def take_all(results: Iterable[Any], count: int) -> None:
    """Checks that every point comes back once."""
    seen = np.zeros(count, np.uint8)
    for result in results:
        seen[result.key] += 1
    assert (seen == 1).all()


def report(what: str, value: float, goal: str) -> None:
    print(f"{what:96} {value:6.3f}   goal: {goal}", flush=True)


def sleepers(what: str, workers: int, count: int, equal_workers: float, goal: str, *, slow: bool = False) -> None:
    """Prints which share of an ideal time that sleeping workers reach; a slow one is ten times slower."""
    with tempfile.TemporaryDirectory() as folder:
        callback_fn = sleeper(SECONDS, f"{folder}/mark" if slow else None)
        with RayPool(callback_fn, OPTIONS, device_ids=tuple(range(workers))) as pool:
            for attempt in ("first run", "second run"):
                seconds = seconds_of(pool, count)
                text = f"{what}, {count} points of 50 ms, {attempt}: {seconds:.2f} s, of ideal"
                report(text, count * SECONDS / equal_workers / seconds, goal)


def driver_memory(count: int = 1_000_000) -> None:
    """Prints by how much the driver's resident memory grows while it measures a million points."""
    with RayPool(sleeper(0.0), OPTIONS, device_ids=(0, 1)) as pool:
        pool.load(*PLANE)
        start = time.perf_counter()
        seen = []
        for number, _ in enumerate(pool.run(points(count)), 1):
            if number % (count // 10) == 0:
                seen.append(resident_megabytes())
        seconds = time.perf_counter() - start
    before, after = max(seen[:2]), max(seen[2:])
    what = (
        f"{count} points, {count / seconds:.0f} a second, driver {before:.0f} MB at a fifth, {after:.0f} at most later:"
    )
    report(f"{what} ratio", after / before, "at most 1.05")


class Host:
    """Many simulated workers in one actor; each measures one call after another, in the order in which they came."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._seconds = seconds
        self._turn = threading.Condition()
        self._served = [0] * workers

    def measure(self, call: tuple[int, int, Any]) -> Any:
        """Sleeps as long as the points take, when the worker has answered all earlier calls."""
        worker, number, points = call
        with self._turn:
            self._turn.wait_for(lambda: self._served[worker] == number)
        start = time.perf_counter()
        # No two are equally fast, so that they do not all answer together.
        time.sleep(self._seconds * len(points) * (0.9 + 0.2 * random.random()))
        seconds = time.perf_counter() - start
        with self._turn:
            self._served[worker] += 1
            self._turn.notify_all()
        return [({"loss": point[0]}, None) for point in points], seconds, None

    def answer(self, points: Any) -> Any:
        """Answers at once, as ``measure`` does."""
        return [({"loss": point[0]}, None) for point in points], 0.0, None


class SimulatedWorker:
    """What ``CrewWorker`` calls its actor: one of the workers of a host."""

    def __init__(self, host: Any, index: int) -> None:
        self._host, self._index, self._calls = host, index, 0
        self.measure_points = self

    def remote(self, points: Any) -> Any:
        self._calls += 1
        return self._host.measure.remote((self._index, self._calls - 1, points))


def simulated(workers: int, seconds: float, count: int, goal: str, hosts: int = 8) -> None:
    """Prints which share of the ideal speed simulated workers reach, and what a chunk costs the driver."""
    with RaySession(None, slots=hosts) as session:
        ray, each = session.ray, workers // hosts
        actors = [
            ray.remote(Host).options(num_cpus=1, max_concurrency=2 * each).remote(each, seconds) for _ in range(hosts)
        ]
        ray.get([actor.measure.remote((0, 0, [(0.0,)])) for actor in actors])
        crew = Crew(RayActors(ray))
        crew.description = Sleeper(seconds).description
        for index in range(workers):
            actor = SimulatedWorker(actors[index % hosts], index // hosts)
            actor._calls = int(index < hosts)  # that of the line above
            crew.workers.append(CrewWorker(None, WorkerPlace((index,)), actor=actor))  # type: ignore[arg-type]
        before = sum(worker.actor._calls for worker in crew.workers)
        start, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
        take_all(CrewRun(crew, points(count)), count)
        wall = time.perf_counter() - start
        cpu, own = time.process_time() - cpu, time.thread_time() - own
        chunks = sum(worker.actor._calls for worker in crew.workers) - before
        bare = cost_of_bare_calls(ray, actors, min(chunks, 4000))
    what = f"{workers} simulated workers, {count} points of {1000 * seconds:.0f} ms"
    report(f"{what}: {wall:.2f} s, of ideal", count * seconds / workers / wall, goal)
    text = f"{what}: {chunks} chunks, CPU us of the driver for each (its main thread {1e6 * own / chunks:.0f}; "
    text += f"Ray's bare calls {1e6 * bare:.0f})"
    report(text, 1e6 * cpu / chunks, "350")


def cost_of_bare_calls(ray: Any, actors: list[Any], count: int) -> float:
    """Returns the driver's CPU seconds for a call of an actor and its answer, with 512 calls in flight and no pool."""
    start, waiting = time.process_time(), []
    for number in range(count):
        waiting.append(actors[number % len(actors)].answer.remote([(0.0,)]))
        if len(waiting) == 512 or number == count - 1:
            while len(waiting) > (480 if number < count - 1 else 0):
                ready, waiting = ray.wait(waiting, num_returns=min(32, len(waiting)))
                ray.get(ready)
    return (time.process_time() - start) / count


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def lenet() -> tuple[Any, ...]:
    """LeNet on a thousand images of noise."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
    return nn.CrossEntropyLoss(), network, (torch.randn(1000, 1, 28, 28), torch.randint(0, 10, (1000,))), {}


def real_network(count: int = 800) -> None:
    """Prints how fast two workers on two cores are beside two processes that know nothing of each other.

    The workers are processes of this machine, and those of a private Ray; the second goal is against one worker.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    rates: dict[str, list[float]] = {}
    for _ in range(3):
        alone = rates_alone(cores[:1], count // 2)[0]
        rates.setdefault("alone", []).append(alone)
        rates.setdefault("two alone", []).append(sum(rates_alone(cores, count // 2)))
        with LocalPool(lenet, OPTIONS, device_ids=(0, 1), plan=PLAN) as pool:
            rates.setdefault("processes of this machine", []).append(rate_of(pool, count))
        with RayPool(lenet, OPTIONS, device_ids=(0, 1), plan=PLAN) as pool:
            rates.setdefault("a private Ray", []).append(rate_of(pool, count))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    one, both = medians.pop("alone"), medians.pop("two alone")
    print(f"LeNet, medians of 3: {one:.1f} points a second in one process, {both:.1f} in two without a pool")
    for where, rate in medians.items():
        report(f"two workers on {where}: {rate:.1f}; of the two processes' rate", rate / both, "0.97")
        report("    times the rate of one process", rate / one, "1.90")


def rate_of(pool: Pool, count: int) -> float:
    vectors = {tensor.name: np.full(tensor.shape, 0.01, np.float32) for tensor in pool.description.space.tensors}
    pool.load(vectors, [vectors, vectors], {})
    list(pool.run(points(40)))
    start = time.perf_counter()
    done = len(list(pool.run(points(count))))
    return done / (time.perf_counter() - start)


def rates_alone(cores: list[int], count: int) -> list[float]:
    """Returns the rates of processes that measure at the same time, each on a core of its own."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(len(cores)), context.SimpleQueue()
    processes = [context.Process(target=measure_alone, args=(core, count, barrier, answers)) for core in cores]
    for process in processes:
        process.start()
    rates = [answers.get() for _ in cores]
    for process in processes:
        process.join()
    return rates


def measure_alone(core: int, count: int, barrier: Any, answers: Any) -> None:
    """Puts the rate at which this process measures into a queue."""
    os.sched_setaffinity(0, {core})
    with InProcessPool(lenet, OPTIONS, device_id=0, plan=PLAN) as pool:
        rate_of(pool, 40)
        barrier.wait()
        answers.put(rate_of(pool, count))


CASES: dict[str, list[Callable[[], None]]] = {
    "wide": [lambda: simulated(512, 0.5, 512 * 40, "0.90")],
    "short": [lambda: simulated(64, 0.05, 64 * 400, "0.97"), lambda: simulated(64, 0.005, 64 * 2000, "0.90")],
    "many": [lambda: sleepers("64 workers", 64, 4096, 64, "0.95")],
    "slow": [lambda: sleepers("7 workers and a slow one", 8, 1420, 7 + 1 / SLOW, "0.90", slow=True)],
    "memory": [driver_memory],
    "lenet": [real_network],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"some of {', '.join(CASES)}; all when absent")
    chosen = parser.parse_args().cases or list(CASES)
    # Workers cannot import a script, so what is defined here travels with callback_fn.
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules["__main__"])
    for case in (case for name in chosen for case in CASES[name]):
        case()


if __name__ == "__main__":
    main()
