"""A pool of processes of this machine, one on each slot of CPU cores."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle

from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from .crew import Crew
from .crew_pool import CrewPool, pickled_function
from .crew_worker import ActorRecipe, mentioned_frameworks
from .devices import WorkerLayout
from .local_actors import LocalActors
from .local_line import StoredValue
from .measurement_actor import MeasurementActor
from .placement import local_workers, place_workers

# Importing the others starts threads, which do not survive in a forked process.
_OF_TORCH = ("torch", "workers.torch.evaluator")
_WITH_TORCH = ("torch", "lightning", "transformers", "composer")


class LocalActor(MeasurementActor):
    """One worker of a local pool."""

    def place(self) -> tuple[str, tuple[int, ...], int]:
        """Returns where this worker is: node, ids of its GPUs, process id."""
        return "this machine", (), os.getpid()

    def _fetched(self, references: Sequence[StoredValue]) -> list[Any]:
        return [reference.load() for reference in references]


class LocalPool(CrewPool):
    """Measures in several processes of this machine, which need no Ray.

    Args:
        callback_fn: as of ``RayPool``.
        options: what is measured.
        device_ids: slots that share the CPU cores.
        plan: how to compute; None lets the first worker tune one for all.
        workload: for how much work it is tuned.
        layout: how many slots a worker has, or how many workers share one.
        memory: where samples are kept.
        forked: as of ``LocalActors``.

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
        device_ids: tuple[int, ...],
        plan: MeasurementPlan | None = None,
        workload: Workload | None = None,
        layout: WorkerLayout = WorkerLayout(),  # noqa: B008
        memory: SampleMemory = SampleMemory(),  # noqa: B008
        forked: bool | None = None,
    ) -> None:
        layout.check_devices(device_ids)
        pickled = pickled_function(cloudpickle.dumps, callback_fn)
        frameworks = mentioned_frameworks(callback_fn, pickled)
        modules = [__name__]
        if any(name in _WITH_TORCH for name in frameworks):
            modules += _OF_TORCH
        actors = LocalActors(modules, forked=forked)
        super().__init__(contextlib.closing(actors), Crew(actors, replace(memory, folder=actors.folder)))
        try:
            callback = actors.put(pickled)
            recipe = ActorRecipe(actors, callback, frameworks, options, gpus=False, layout=layout, actor=LocalActor)
            self._crew.workers += local_workers(recipe, device_ids)
            self._crew.late = place_workers(self._crew.workers)
            self._crew.start(plan, workload)
        except BaseException:
            self.close()
            raise
        for note in self.description.notes:
            warnings.warn(note, stacklevel=3)
