"""A pool of Ray actors, one on each device."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from .crew import Crew, LateNodes
from .crew_pool import CrewPool, pickled_function
from .crew_worker import ActorRecipe, mentioned_frameworks
from .devices import WorkerLayout
from .placement import cluster_workers, local_workers, place_workers, private_devices
from .ray_code import code_of
from .ray_session import RaySession


class RayPool(CrewPool):
    """Measures on several devices at once.

    Args:
        callback_fn: takes no argument; returns (model, network, dataset, metrics), or an Evaluator. It may be a lambda,
            a closure or a notebook's function.
        options: what is measured.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        address: of a Ray cluster to join; None uses a Ray that runs already, or starts a private one.
        plan: how to compute; None lets the first worker tune one for all.
        workload: for how much work it is tuned.
        layout: how many devices a worker has, or how many workers share one.
        memory: where samples are kept.

    Raises:
        ValueError: the number of devices is not a multiple of ``layout.devices_per_worker``.
        PoolError: no worker could be started.
        CallbackFunctionError: callback_fn cannot be sent to the workers, or failed there.
        NondeterministicLossError: the workers were given different networks or samples by callback_fn.
    """

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
        super().__init__(session, Crew(session.ray, memory))
        try:
            if not session.private:
                gpus = self._ray.cluster_resources().get("GPU", 0) > 0
            pickled = pickled_function(self._ray.cloudpickle.dumps, callback_fn)
            frameworks = mentioned_frameworks(callback_fn, pickled)
            # Ray finds Ascend devices by itself; only MindSpore computes on them.
            npus = int(self._ray.cluster_resources().get("NPU", 0)) if "mindspore" in frameworks and not gpus else 0
            recipe = ActorRecipe(self._ray, self._ray.put(pickled), frameworks, options, gpus, npus > 0, layout)
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
