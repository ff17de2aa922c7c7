"""A pool of Ray actors, one on each device, which nodes that join a cluster later extend."""

from __future__ import annotations

import functools
import math
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collectors.files import system

from ..errors import RUN_AGAIN, PoolError, closing_on_failure
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from ..users_code import OUR_PACKAGES, is_installed
from .actor_pool import ActorPool
from .actors import ActorDeathError, Actors, ActorTaskError
from .crew import Crew
from .crew_worker import ActorRecipe, mentioned_frameworks, pickled_function, sent_options
from .devices import WorkerLayout, available_cores, choose_devices, gpu_ids, tell_why_the_cpu
from .placement import alive_nodes, cluster_workers, cpu_slots, environment_probe, workers_on
from .ray_session import RaySession, is_on_a_cluster

_LOOK_SECONDS = 1.0
_FRESH_SECONDS = 0.1  # for which Ray's process is taken for alive
_NODES_SECONDS = 2.0


class RayActors(Actors):
    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._next_look = 0.0

    def start(self, kind: type, arguments: Sequence[Any], needs: Mapping[str, Any]) -> Any:
        return self.ray.remote(kind).options(**needs).remote(*arguments)

    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        return getattr(actor, method).remote(*arguments)

    def wait(
        self, calls: Sequence[Any], *, count: int = 1, seconds: float | None = None
    ) -> tuple[list[Any], list[Any]]:
        end = math.inf if seconds is None else time.monotonic() + seconds
        self._look()
        while True:
            timeout = min(max(end - time.monotonic(), 0.0), _LOOK_SECONDS)
            done, late = self.ray.wait(list(calls), num_returns=count, timeout=timeout)
            self._look()
            if len(done) >= count or time.monotonic() >= end:
                return done, late

    def kill(self, actor: Any) -> None:
        self.ray.kill(actor)

    def put(self, value: Any) -> Any:
        return self.ray.put(value)

    def answers(self, calls: Sequence[Any]) -> list[Any]:
        self._look()
        try:
            return list(self.ray.get(list(calls)))
        except self.ray.exceptions.RayTaskError as error:
            raise ActorTaskError(str(error)) from error
        except self.ray.exceptions.RayError as error:
            self._check_alive()  # workers die with the raylet, which is the cause to report
            raise ActorDeathError(str(error)) from error

    def _look(self) -> None:
        """Checks Ray's process before it is asked anything: where it is dead, Ray ends this process at once."""
        if time.monotonic() > self._next_look:
            self._check_alive()
            self._next_look = time.monotonic() + _FRESH_SECONDS

    def _check_alive(self) -> None:
        """Raises PoolError if Ray's process on this machine is dead: seconds later it would end this one silently."""
        path = getattr(getattr(self.ray._private.worker, "_global_node", None), "raylet_socket_name", None)
        if path is None or system.WINDOWS:  # a client of a cluster elsewhere
            return
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
        except OSError as error:
            raise PoolError(
                f"Ray's raylet on this machine does not answer any more ({error.strerror}). Likely causes: the system "
                f"killed it because memory ran out, or somebody stopped Ray. {RUN_AGAIN}"
            ) from error


class RayPool(ActorPool):
    """Measures on several devices of a Ray: one that runs already, a cluster's at an address, or a private one."""

    def __init__(
        self,
        callback_fn: Callable[[], Any],
        options: MeasurementOptions,
        *,
        device_ids: tuple[int, ...] | None = None,
        address: str | None = None,
        plan: MeasurementPlan | None = None,
        workload: Workload | None = None,
        layout: WorkerLayout = WorkerLayout(),  # noqa: B008
        memory: SampleMemory = SampleMemory(),  # noqa: B008
    ) -> None:
        is_elsewhere = is_on_a_cluster(address)
        ids, gpus = ((), False) if is_elsewhere else (choose_devices(device_ids), bool(gpu_ids()))
        layout.check_devices(device_ids or ids)
        session = RaySession(
            address,
            slots=layout.workers(len(ids)),
            gpus=ids if gpus else (),
            runtime_env=functools.partial(code_of, callback_fn),
        )
        ray, actors = session.ray, RayActors(session.ray)
        super().__init__(session, Crew(actors, memory))
        with closing_on_failure(self):
            if not session.private:
                gpus = ray.cluster_resources().get("GPU", 0) > 0
            pickled = pickled_function(ray.cloudpickle.dumps, callback_fn)
            frameworks = mentioned_frameworks(callback_fn, pickled)
            # Ray finds Ascend devices by itself; only MindSpore computes on them.
            npus = int(ray.cluster_resources().get("NPU", 0)) if "mindspore" in frameworks and not gpus else 0
            if not (session.private or gpus or npus):
                tell_why_the_cpu(of_ray=True)
            kind = "GPU" if gpus else "NPU" if npus else None
            sent = sent_options(ray.cloudpickle.dumps, options)
            recipe = ActorRecipe(actors, actors.put(pickled), frameworks, sent, kind, layout)
            if session.private:
                ids = tuple(range(npus)) if npus and device_ids is None else ids
                workers = workers_on(recipe, ids, available_cores())
            else:
                workers = cluster_workers(recipe, device_ids)
            self._crew.start(workers, plan, workload, device_ids)
            if not session.private and not (gpus and device_ids is not None):
                wanted = None if device_ids is None else layout.workers(len(device_ids))
                self._crew.look_for_nodes = LateNodes(self._crew, recipe, wanted).look


class LateNodes:
    """Watches a cluster for nodes that come after the pool's start; one that replaces a lost node counts as new."""

    def __init__(self, crew: Crew, recipe: ActorRecipe, wanted: int | None) -> None:
        # ``wanted`` is the largest number of workers; None takes all that new nodes have.
        self._crew, self._recipe, self._wanted = crew, recipe, wanted
        self._known = set(alive_nodes(crew.actors.ray))
        self._next_look = time.monotonic() + _NODES_SECONDS
        self._preparing: dict[str, Any] = {}
        self._next_device = 1 + max(device for worker in (*crew.workers, *crew.late) for device in worker.place.devices)

    def look(self) -> None:
        """Starts workers on nodes that are new; looks at most every two seconds, because it asks the cluster's head."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _NODES_SECONDS
        ray = self._crew.actors.ray
        nodes = alive_nodes(ray)
        for node in nodes.keys() - self._known:
            self._known.add(node)
            self._preparing[node] = environment_probe(ray, node)
        # A worker has some seconds to find its place, which are not meant for installing the run's environment.
        for node, probe in list(self._preparing.items()):
            if self._crew.actors.wait([probe], seconds=0)[0]:
                del self._preparing[node]
                if node in nodes:
                    self._employ(node, nodes[node]["Resources"])

    def _employ(self, node: str, resources: dict[str, float]) -> None:
        kind, layout = self._recipe.kind, self._recipe.layout
        devices = int(resources.get(kind or "CPU", 0))
        if kind is None:
            devices = cpu_slots(devices, layout)
        if self._wanted is not None:
            missing = self._wanted - len(self._crew.workers) - len(self._crew.late)
            devices = min(devices, max(0, missing) * layout.devices_per_worker)
        if layout.workers(devices) < 1:
            return
        ids = tuple(range(self._next_device, self._next_device + devices))
        self._next_device += devices
        for worker in workers_on(self._recipe, ids, None):
            worker.node = node
            self._crew.start_again(worker)
            self._crew.workers.append(worker)


def code_of(callback_fn: Callable[[], Any]) -> dict[str, Any]:
    """Returns the ``runtime_env`` with which Ray sends the code to nodes that do not have it."""
    # Our packages in this process's version, and the modules and packages beside callback_fn's. Data files elsewhere
    # and what is installed in the Python environment are not sent: every node needs its own.
    modules = [str(Path(__file__).parents[2] / name) for name in OUR_PACKAGES]
    for folder in _folders(callback_fn):
        packages = [file.parent for file in folder.glob("*/__init__.py") if file.parent.name.isidentifier()]
        importable = sorted([*filter(Path.is_file, folder.glob("*.py")), *packages])
        modules += [str(path) for path in importable if path.stem not in OUR_PACKAGES]
    return {"py_modules": list(dict.fromkeys(modules)), "excludes": ["**/__pycache__"]}


def _folders(callback_fn: Callable[[], Any]) -> list[Path]:
    while hasattr(callback_fn, "func"):  # functools.partial
        callback_fn = callback_fn.func
    name = str(getattr(callback_fn, "__module__", None) or type(callback_fn).__module__)
    folders = [_folder_of(name.partition(".")[0]), _folder_of_script()]
    return list(dict.fromkeys(folder for folder in folders if folder is not None and not is_installed(folder)))


def _folder_of(name: str) -> Path | None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    return Path(file).absolute().parents[1 if hasattr(module, "__path__") else 0]


def _folder_of_script() -> Path | None:
    # A notebook and `python -c` have no file.
    return _folder_of("__main__") or Path.cwd()
