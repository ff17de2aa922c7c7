"""A pool of Ray actors, one on each device."""

from __future__ import annotations

import functools
import math
import socket
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collectors.files import system

from ..errors import PoolError
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from .actors import ActorError, Actors, ActorTaskError
from .crew import Crew, LateNodes
from .crew_pool import CrewPool, pickled_function
from .crew_worker import ActorRecipe, mentioned_frameworks
from .devices import WorkerLayout, tell_why_the_cpu
from .placement import cluster_workers, local_workers, place_workers, private_devices
from .ray_code import code_of
from .ray_session import RaySession

_LOOK_SECONDS = 1.0


class RayActors(Actors):
    """Ray's actors."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._next_look = time.monotonic() + _LOOK_SECONDS

    def start(self, kind: type, arguments: Sequence[Any], needs: Mapping[str, Any]) -> Any:
        """Starts an actor."""
        return self.ray.remote(kind).options(**needs).remote(*arguments)

    def call(self, actor: Any, method: str, *arguments: Any) -> Any:
        """Calls a method."""
        return getattr(actor, method).remote(*arguments)

    def wait(
        self, calls: Sequence[Any], *, count: int = 1, seconds: float | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Waits until some calls are done."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            timeout = min(max(end - time.monotonic(), 0.0), _LOOK_SECONDS)
            done, late = self.ray.wait(list(calls), num_returns=count, timeout=timeout)
            if time.monotonic() > self._next_look:
                self._check_alive()
                self._next_look = time.monotonic() + _LOOK_SECONDS
            if len(done) >= count or time.monotonic() >= end:
                return done, late

    def kill(self, actor: Any) -> None:
        """Ends an actor at once."""
        self.ray.kill(actor)

    def put(self, value: Any) -> Any:
        """Stores a value in Ray's object store."""
        return self.ray.put(value)

    def answers(self, calls: Sequence[Any]) -> list[Any]:
        """Returns the answers of calls that are done."""
        try:
            return list(self.ray.get(list(calls)))
        except self.ray.exceptions.RayTaskError as error:
            raise ActorTaskError(error.cause, str(error)) from error
        except self.ray.exceptions.RayError as error:
            self._check_alive()  # workers die with the raylet, which is the cause to report
            raise ActorError(str(error)) from error

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
                "killed it because memory ran out, or somebody stopped Ray. What was measured is in the file; run the "
                "same call again to go on."
            ) from error


class RayPool(CrewPool):
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
        ids, gpus = private_devices(device_ids, address)
        layout.check_devices(device_ids or ids)
        session = RaySession(
            address,
            slots=layout.workers(len(ids)),
            gpus=ids if gpus else (),
            runtime_env=functools.partial(code_of, callback_fn),
        )
        ray, actors = session.ray, RayActors(session.ray)
        super().__init__(session, Crew(actors, memory))
        try:
            if not session.private:
                gpus = ray.cluster_resources().get("GPU", 0) > 0
            pickled = pickled_function(ray.cloudpickle.dumps, callback_fn)
            frameworks = mentioned_frameworks(callback_fn, pickled)
            # Ray finds Ascend devices by itself; only MindSpore computes on them.
            npus = int(ray.cluster_resources().get("NPU", 0)) if "mindspore" in frameworks and not gpus else 0
            if not (session.private or gpus or npus):
                tell_why_the_cpu(of_ray=True)
            recipe = ActorRecipe(actors, actors.put(pickled), frameworks, options, gpus, npus > 0, layout)
            if session.private:
                ids = tuple(range(npus)) if npus and device_ids is None else ids
                self._crew.workers += local_workers(recipe, ids)
            else:
                self._crew.workers += cluster_workers(recipe, device_ids)
            self._crew.late = place_workers(self._crew.workers, device_ids)
            self._crew.start(plan, workload)
            if not session.private and not (gpus and device_ids is not None):
                wanted = None if device_ids is None else layout.workers(len(device_ids))
                self._late_nodes = LateNodes(self._crew, recipe, wanted)
        except BaseException:
            self.close()
            raise
        for note in self.description.notes:
            warnings.warn(note, stacklevel=3)
