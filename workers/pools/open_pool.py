"""Opens a pool on the asked devices, or reports what it would compute on without starting anything."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from collectors.validation import check_device_ids, check_instance

from ..evaluator import SampleMemory
from ..forked import settle
from ..measurement_options import AUTO, MeasurementOptions, memory_limit
from ..measurement_plan import NOT_IN_A_REHEARSAL, MeasurementPlan, Workload, check_compile
from ..pool import Pool
from .devices import (
    WorkerLayout,
    WorkerPlace,
    apple_gpu,
    available_cores,
    choose_devices,
    gpu_ids,
    local_processes_suffice,
    tell_of_devices,
)
from .in_process import InProcessPool
from .placement import alive_nodes, free_devices, free_on_nodes
from .ray_session import RaySession, is_on_a_cluster, ray_is_asked_for


def open_pool(
    callback_fn: Callable[[], Any],
    options: MeasurementOptions,
    *,
    device_ids: object = None,
    address: str | None = None,
    plan: MeasurementPlan | None = None,
    compile: bool | str = "auto",
    points: int = 0,
    seconds: float | None = None,
    rehearsal: bool = False,
    devices_per_worker: int = 1,
    workers_per_device: int = 1,
    sample_memory: int | str = AUTO,
) -> Pool:
    """Returns a pool on the asked devices: this process, processes of this machine, or Ray for GPUs and clusters."""
    budget = math.inf if seconds is None else seconds
    workload = Workload(check_compile("compile", compile), points, budget, rehearsal=rehearsal)
    check_instance("callback_fn", callback_fn, Callable, "a function without arguments")  # type: ignore[arg-type]
    if plan is not None and not isinstance(workload.compile, str):
        plan = replace(plan, compile=workload.compile, compiler=plan.compiler if workload.compile else "", reason="")
    if plan is not None and plan.compile and rehearsal:
        plan = replace(plan, compile=False, compiler="", reason=f"not compiled: {NOT_IN_A_REHEARSAL}")
    settle()
    memory = SampleMemory(limit=memory_limit(sample_memory))
    # GPUs or, without these, slots that share the CPU cores; None means all, or a Mac's GPU.
    asked = check_device_ids("device_ids", device_ids)
    layout = WorkerLayout(devices_per_worker, workers_per_device)
    where, devices, apple = where_it_runs(asked, layout, address)
    how: dict[str, Any] = {"plan": plan, "workload": workload, "memory": memory}
    if where != "cluster" and not apple:
        tell_of_devices(devices)
    if where == "in process":
        return InProcessPool(callback_fn, options, device_id=devices[0], device=apple, **how)
    if where == "processes":
        from .local_pool import LocalPool

        return LocalPool(callback_fn, options, device_ids=devices, layout=layout, **how)
    from .ray_pool import RayPool

    return RayPool(callback_fn, options, device_ids=asked, address=address, layout=layout, **how)


def where_it_runs(
    asked: tuple[int, ...] | None, layout: WorkerLayout, address: str | None
) -> tuple[str, tuple[int, ...], str]:
    """Returns ``DeviceReport.where``, the device ids of a run on this machine, and PyTorch's name of an Apple GPU."""
    if is_on_a_cluster(address):
        return "cluster", (), ""
    wants_ray = ray_is_asked_for(address)
    if asked is None and layout == WorkerLayout() and not wants_ray and not gpu_ids() and (apple := apple_gpu()):
        return "in process", (0,), apple
    devices = choose_devices(asked)
    layout.check_devices(devices)
    # One worker is this process itself, unless it has several GPUs: then it is a process that sees no other ones.
    if not wants_ray and layout.workers(len(devices)) == 1 and (len(devices) == 1 or not gpu_ids()):
        return "in process", devices, ""
    return "processes" if local_processes_suffice() and not wants_ray else "private Ray", devices, ""


@dataclass(frozen=True)
class PlannedWorker:
    name: str  # in error texts
    devices: tuple[int, ...] | None  # ids of its GPUs or slots; on a cluster with GPUs they are Ray's choice, and None
    cores: tuple[int, ...] | None  # that are its own; None where a cluster decides
    threads: int


@dataclass(frozen=True)
class NodeReport:
    """One machine of a cluster: its "GPU", "NPU" and "CPU", and how many are free; None where Ray does not say."""

    name: str
    address: str
    resources: dict[str, float]
    free: dict[str, float] | None


@dataclass(frozen=True)
class DeviceReport:
    """What a run would compute on."""

    where: str  # "in process", "processes" (of this machine), "private Ray" or "cluster"
    kind: str  # "GPU", "Apple GPU", or "CPU" where devices are slots that share the CPU cores
    workers: tuple[PlannedWorker, ...]
    nodes: tuple[NodeReport, ...] = ()  # of the cluster; a single machine is not listed

    def to_json(self) -> dict[str, Any]:
        """Returns the report in types that JSON has; the keys are the attributes' names."""
        return asdict(self)

    def __str__(self) -> str:
        where = {
            "in process": "in this process",
            "processes": "in processes of this machine",
            "private Ray": "on a private Ray",
            "cluster": "on a Ray cluster",
        }
        count = len(self.workers)
        what = {"GPU": "GPUs", "Apple GPU": "the Apple GPU", "CPU": "CPU cores"}[self.kind]
        lines = [f"{count} worker{'' if count == 1 else 's'} on {what}, {where[self.where]}"]
        for worker in self.workers:
            cores = "cores as the cluster gives them" if worker.cores is None else f"cores {_ranges(worker.cores)}"
            lines.append(f"  {worker.name}: {cores}, {worker.threads} thread{'' if worker.threads == 1 else 's'}")
        for node in self.nodes:
            counts = [
                f"{total:g} {kind}" if node.free is None else f"{node.free.get(kind, 0):g} of {total:g} {kind} free"
                for kind, total in node.resources.items()
            ]
            lines.append(f"  node {node.name} ({node.address}): {', '.join(counts)}")
        return "\n".join(lines)


def report_devices(
    device_ids: object = None,
    *,
    address: str | None = None,
    devices_per_worker: int = 1,
    workers_per_device: int = 1,
) -> DeviceReport:
    """Returns what a run with these arguments would compute on, and starts nothing; of a cluster, what is free now."""
    asked = check_device_ids("device_ids", device_ids)
    layout = WorkerLayout(devices_per_worker, workers_per_device)
    where, devices, apple = where_it_runs(asked, layout, address)
    if where == "cluster":
        layout.check_devices(asked or ())
        with RaySession(address, slots=0) as session:
            return _cluster(session.ray, asked, layout)
    if not apple:
        tell_of_devices(devices)
    kind = "Apple GPU" if apple else "GPU" if gpu_ids() else "CPU"
    places = layout.places(devices, cores=available_cores())
    return DeviceReport(where, kind, tuple(_planned(place, 1) for place in places))


def _planned(place: WorkerPlace, threads: int) -> PlannedWorker:
    return PlannedWorker(place.label, place.devices, place.cores, threads if place.cores is None else len(place.cores))


def _cluster(ray: Any, asked: tuple[int, ...] | None, layout: WorkerLayout) -> DeviceReport:
    gpus = ray.cluster_resources().get("GPU", 0) > 0
    places = layout.places(free_devices(ray, "GPU" if gpus else None, None if gpus else asked, layout), cores=None)
    alive = alive_nodes(ray)
    if gpus:
        # Which GPUs these are is known only when Ray hands them out; a run keeps no more than were asked for.
        most = len(places) if asked is None else layout.workers(len(asked)) * len(alive)
        names = [f"worker {index}, GPU of Ray's choice" for index in range(min(len(places), most))]
        workers = tuple(PlannedWorker(name, None, None, 1) for name in names)
    else:
        workers = tuple(_planned(place, layout.devices_per_worker) for place in places)
    free = free_on_nodes(ray)
    nodes = tuple(
        NodeReport(
            node["NodeManagerHostname"],
            node["NodeManagerAddress"],
            _devices(node["Resources"]),
            None if free is None else _devices(free.get(name, {})),
        )
        for name, node in alive.items()
    )
    return DeviceReport("cluster", "GPU" if gpus else "CPU", workers, nodes)


def _devices(resources: Mapping[str, float]) -> dict[str, float]:
    return {kind: resources[kind] for kind in ("GPU", "NPU", "CPU") if kind in resources}


def _ranges(cores: Sequence[int]) -> str:
    """Returns "0-3, 6" for 0, 1, 2, 3, 6."""
    consecutive = itertools.groupby(enumerate(cores), lambda item: item[1] - item[0])
    runs = [[core for _, core in run] for _, run in consecutive]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
