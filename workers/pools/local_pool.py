"""A pool of processes of this machine, one on each slot of CPU cores."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import cloudpickle

from collectors.networks.weight_space import WeightSpace

from ..errors import PoolError
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from .actors import ActorError
from .crew import Crew
from .crew_pool import CrewPool, pickled_function
from .crew_worker import ActorRecipe, mentioned_frameworks, raise_failures, search_path
from .devices import WorkerLayout, available_cores
from .local_actors import LocalActors
from .local_line import StoredValue
from .measurement_actor import MeasurementActor
from .placement import local_workers, place_workers

# Importing the others starts threads, which do not survive in a forked process.
_OF_TORCH = ("torch", "workers.torch.evaluator")
_WITH_TORCH = ("torch", "lightning", "transformers", "composer")
_WITHOUT_GPUS = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


class LocalActor(MeasurementActor):
    """One worker of a local pool."""

    def place(self) -> tuple[str, tuple[int, ...], int]:
        """Returns where this worker is: node, ids of its GPUs, process id."""
        return "this machine", (), os.getpid()

    def _fetched(self, references: Sequence[StoredValue]) -> list[Any]:
        return [reference.load() for reference in references]


class LocalPool(CrewPool):
    """Measures in several processes of this machine, which need no Ray."""

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


def describe_without_gpus(callback_fn: Callable[[], Any]) -> WeightSpace:
    """Returns the description of callback_fn's network, of one call in a process that sees no GPU and has ended."""
    pickled = pickled_function(cloudpickle.dumps, callback_fn)
    with contextlib.closing(LocalActors((), forked=False, environment=_WITHOUT_GPUS)) as actors:
        actor = actors.start(LocalActor, (None, len(available_cores()), ["cpu"], search_path()), {})
        calls: list[tuple[str, tuple[Any, ...]]] = [("prepare", (pickled, ())), ("call", ()), ("space", ())]
        try:
            for method, arguments in calls:
                (space,) = raise_failures(actors.get([actors.call(actor, method, *arguments)]))
        except ActorError as error:
            raise PoolError(f"the process in which callback_fn was called on a CPU died: {error}") from error
        return cast("WeightSpace", space)
