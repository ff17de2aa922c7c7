"""What a large model costs: memory of the driver and of a worker, and the rate at which checkpoints are read.

Run it by hand: ``python tests/benchmarks/big_models.py``. It writes 20 checkpoints of 100 M float32 parameters (8 GB),
lays a plane through them as a survey does, measures points of it with one real Ray worker and both losses of each
checkpoint with several, which read the files themselves or get them from the driver; what it wrote is deleted whatever
happens. Goals: anonymous resident memory of the driver below 1.5 GB; 0.8 GB/s for each pass over files that the
operating system holds in memory, on two cores; a worker holds the network, the origin and the directions, so that one
plane costs four times the model; the driver sends no weights to workers that reach the files.
"""

from __future__ import annotations

import argparse
import functools
import os
import pickle
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from collectors.networks.weight_space import WeightSpace, describe_arrays
from collectors.weights.aligned import NetworkState
from collectors.weights.safetensors_file import CheckpointFile, portable, write_checkpoint
from landscape.planes import Plane
from landscape.planes.from_checkpoints import plane_of_runs
from landscape.planes.networks import checkpoints_of_run
from landscape.planes.pca import principal_directions
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pool import PointTask, StateTask

LAYERS = 10
PASSES_OF_A_PLANE = 3
"""The Gram matrix, the directions, and where the checkpoints lie; their hashes are computed before."""


@dataclass
class MemoryWatch:
    """Samples the anonymous resident memory of processes, in bytes."""

    processes: list[int]
    peak: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[MemoryWatch]:
        ended = threading.Event()
        thread = threading.Thread(target=self._sample, args=(ended,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()

    def _sample(self, ended: threading.Event) -> None:
        while True:
            for process in self.processes:
                self.last[process] = memory_of(process)
                self.peak[process] = max(self.peak.get(process, 0), self.last[process])
            if ended.wait(0.01):
                return


def memory_of(process: int, kind: str = "RssAnon") -> int:
    """Returns the resident bytes of a kind; those of "RssAnon" belong to no file and to nobody else."""
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return next(1024 * int(words[1]) for words in lines if words[0] == f"{kind}:")


class CountedFile(CheckpointFile):
    """A checkpoint that knows how often it was read, each time opened anew, and how many bytes."""

    calls = size = 0

    def read_block(self, name: str, start: int, stop: int) -> Any:
        block = super().read_block(name, start, stop)
        self.calls, self.size = self.calls + 1, self.size + block.nbytes
        return block


def write_trajectory(checkpoints: int, width: int, folder: Path) -> tuple[list[CountedFile], WeightSpace]:
    """Writes a random walk through the weights of LAYERS square layers; returns checkpoints and description."""
    generator = np.random.default_rng(0)
    state: dict[str, Any] = {f"{index}.weight": np.zeros((width, width), np.float32) for index in range(LAYERS)}
    paths = [folder / f"{number}.safetensors" for number in range(checkpoints)]
    for path in paths:
        for values in state.values():
            values += np.float32(0.01) * generator.standard_normal((width, width), np.float32)
        write_checkpoint(path, state)
    return [CountedFile(path) for path in paths], describe_arrays(state)


def network(width: int) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Returns what callback_fn returns: a network of LAYERS square layers, and two samples."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    layers = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(LAYERS)))
    inputs = torch.linspace(-1, 1, 2 * width).reshape(2, width)
    return nn.MSELoss(), layers, TensorDataset(inputs, inputs), {}


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def measure_driver(files: list[CountedFile], space: WeightSpace) -> Plane:
    """Lays the plane and prints what that took; returns it."""
    gigabytes = 4e-9 * space.dimension * len(files)
    watch = MemoryWatch([os.getpid()])
    with watch.running():
        seconds = timed(lambda: principal_directions(files, space))[1]  # whose result would count below
    print(f"principal directions         {seconds:7.1f} s  {2 * gigabytes / seconds:5.2f} GB/s in each of 2 passes")
    print_memory("  peak of the driver", watch.peak[os.getpid()], space)
    watch = MemoryWatch([os.getpid()])
    for file in files:
        file.calls = file.size = 0
    with watch.running():
        plane, seconds = timed(lambda: plane_of_runs(checkpoints_of_run(files, range(len(files))), space))
    rate = PASSES_OF_A_PLANE * gigabytes / seconds
    print(f"a plane with its trajectory  {seconds:7.1f} s  {rate:5.2f} GB/s in each of {PASSES_OF_A_PLANE} passes")
    print_memory("  peak of the driver", watch.peak[os.getpid()], space)
    calls, size = (sum(getattr(file, name) for file in files) / len(files) for name in ("calls", "size"))
    print(f"  reads of each checkpoint {calls:9,.0f}  {size / (4 * space.dimension):5.2f} x its bytes, hashes aside")
    return plane


def measure_worker(width: int, plane: Plane | None, points: int) -> int:
    """Measures a plane with one Ray worker, or only starts it; returns its peak of anonymous memory."""
    from workers.pools.ray_pool import RayPool

    with RayPool(
        functools.partial(network, width), MeasurementOptions(), device_ids=(0,), plan=MeasurementPlan(2, 1)
    ) as pool:
        (process,) = pool.process_ids
        if plane is None:
            return memory_of(process)
        watch = MemoryWatch([process, os.getpid()])
        before = memory_of(process)
        with watch.running():
            _, seconds = timed(lambda: pool.load(plane.origin, plane.directions, plane.buffers))
            loaded, shared = memory_of(process), memory_of(process, "RssShmem")
            print(f"load of a worker             {seconds:7.1f} s")
            list(pool.run(PointTask(index, (0.01 * index, 0.0)) for index in range(points)))
            # A second plane must take the place of the first, not come on top of it.
            pool.load(plane.origin, plane.directions, plane.buffers)
        print_memory("  the worker with its network", before, plane.space)
        print_memory("  and a plane", loaded, plane.space)
        print_memory("  peak of two planes loaded one after the other", watch.peak[process], plane.space)
        print_memory("  mapped from the node's object store", shared, plane.space)
        print_memory("  peak of the driver meanwhile", watch.peak[os.getpid()], plane.space)
        return watch.peak[process]


def measure_sending(width: int, plane: Plane, workers: int) -> None:
    """Measures both losses of each checkpoint, and prints what the driver sent for that, in both ways."""
    from workers.pools.ray_pool import RayPool

    devices = tuple(range(workers))
    sent = 0

    def tasks(by_driver: bool) -> Iterator[StateTask]:
        for number, reader in enumerate(plane.checkpoints):
            for own in (True, False):
                here = NetworkState(functools.partial(_itself, reader), plane.space, own)
                source = NetworkState(portable(reader) or _nobody, plane.space, own)
                yield StateTask((number, own), functools.partial(count, here), None if by_driver else source)
                if not by_driver:
                    note(len(pickle.dumps(source)))

    def note(size: int) -> None:
        nonlocal sent
        sent += size

    def count(read: NetworkState) -> Any:
        parameters, buffers = read()
        note(sum(array.nbytes for state in (parameters, buffers or {}) for array in state.values()))
        return parameters, buffers

    with RayPool(
        functools.partial(network, width), MeasurementOptions(), device_ids=devices, plan=MeasurementPlan(2, 1)
    ) as pool:
        pool.load(plane.origin, plane.directions, plane.buffers)
        losses = []
        for label, by_driver in (("read by the workers", False), ("sent by the driver", True)):
            sent = 0
            watch, before = MemoryWatch([os.getpid(), *pool.process_ids]), time.process_time()
            with watch.running():
                results, seconds = timed(lambda by_driver=by_driver: list(pool.run(tasks(by_driver))))
            losses.append({result.key: result.values for result in results})
            print(f"2 losses of {len(plane.checkpoints)} checkpoints on {workers} workers, {label}: "
                  f"{1e-9 * sent:.6f} GB from the driver, {time.process_time() - before:.2f} CPU s of it, "
                  f"{seconds:.1f} s in all")  # fmt: skip
            driver, *others = watch.peak.values()
            print_memory("  peak of the driver", driver, plane.space)
            print_memory("  peak of a worker", max(others), plane.space)
        assert losses[0] == losses[1] and None not in losses[0].values()  # noqa: PT018


def _itself(reader: Any) -> Any:
    return reader


def _nobody() -> Any:
    raise OSError("these weights lie in memory")


def print_memory(label: str, count: int, space: WeightSpace) -> None:
    print(f"{label:<50} {1e-9 * count:6.2f} GB  ({count / (4 * space.dimension):5.2f} x the model)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=20)
    parser.add_argument("--parameters", type=float, default=1e8)
    parser.add_argument("--points", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2, help="that measure the checkpoints")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--no-worker", action="store_true", help="lay the plane only")
    options = parser.parse_args()
    width = round((options.parameters / LAYERS) ** 0.5)
    need = int(4.1 * LAYERS * width**2 * options.checkpoints)
    free = shutil.disk_usage(options.folder).free
    if free < need:
        raise SystemExit(f"{options.folder} has {free / 1e9:.1f} GB free, {need / 1e9:.1f} are needed; pass --folder.")
    with tempfile.TemporaryDirectory(prefix="big_models_", dir=options.folder) as folder:
        (files, space), seconds = timed(lambda: write_trajectory(options.checkpoints, width, Path(folder)))
        gigabytes = 4e-9 * space.dimension * len(files)
        print(f"{len(files)} checkpoints of {1e-6 * space.dimension:.0f} M float32 parameters, "
              f"{gigabytes:.1f} GB, written in {seconds:.0f} s; "
              f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")  # fmt: skip
        print_memory("the driver before", memory_of(os.getpid()), space)
        _, seconds = timed(lambda: [file.sha256() for file in files])
        print(f"hashes                       {seconds:7.1f} s  {gigabytes / seconds:5.2f} GB/s")
        plane = measure_driver(files, space)
        print(f"load average {os.getloadavg()[0]:.1f}", flush=True)
        if not options.no_worker:
            empty = measure_worker(32, None, 0)
            print_memory("a worker without a large network", empty, space)
            peak = measure_worker(width, plane, options.points)
            print(f"a plane costs a worker {(peak - empty) / (4 * space.dimension):.2f} times the model "
                  "(network, origin and two directions: 4)")  # fmt: skip
            measure_sending(width, plane, options.workers)


if __name__ == "__main__":
    main()
