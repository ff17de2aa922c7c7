"""One device's actor as the driver sees it: started, started again after a death, given work."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import CallbackFunctionError, NondeterministicLossError
from ..evaluator import EvaluatorDescription, Partition, SampleMemory
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from .actors import Actors
from .chunks import Chunk, MeasuredSpeed
from .devices import WorkerLayout, WorkerPlace
from .measurement_actor import MeasurementActor

_FRAMEWORKS = ("torch", "lightning", "transformers", "composer", "keras", "jax", "flax", "mindspore")


@dataclass(frozen=True)
class ActorRecipe:
    """How an actor is made."""

    actors: Actors
    callback: Any  # the pickled callback_fn, stored for all actors
    frameworks: tuple[str, ...]  # what callback_fn will import
    options: MeasurementOptions
    kind: str | None = None  # Ray's name for the devices that actors need: "GPU", or "NPU" for Ascend's; None for CPUs
    layout: WorkerLayout = field(default_factory=WorkerLayout)
    actor: type[MeasurementActor] = MeasurementActor


@dataclass
class LoadedPlane:
    """The plane that all actors have."""

    vectors: Sequence[Any]  # origin, directions and buffers, stored for all actors
    far_points: Sequence[Sequence[float]]
    partition: Partition | None = None  # how the loss is added up there, once the first worker has found it out


@dataclass(frozen=True)
class InFlight:
    """A chunk that an actor was given: the call to wait for, what it is, and which actor has it."""

    call: Any
    chunk: Chunk
    actor: Any


@dataclass(eq=False)
class CrewWorker:
    """One device's actor, now or after it has been started again."""

    recipe: ActorRecipe
    place: WorkerPlace
    shared: SharedDevice | None = None  # the device that it shares with others of the pool
    node: str | None = None  # the id of the cluster's node where it should be placed if possible
    actor: Any = None
    in_flight: deque[InFlight] = field(default_factory=deque)  # what it measures and what waits for it, in that order
    busy_since: float = 0.0  # when it began the first of them
    starting: list[Any] = field(default_factory=list)  # the calls that start it again, in the order in which they run
    started_at: float = 0.0  # when those were made
    speed: MeasuredSpeed = field(default_factory=MeasuredSpeed)
    deaths: int = 0  # since it last measured something
    failed_starts: int = 0  # since then
    cannot_read: Any = None  # the actor that could not read weights which this process could: it gets all of them sent

    @property
    def label(self) -> str:
        return self.place.label

    def create(self) -> Any:
        """Makes the actor and returns a call that is done when it has a place."""
        recipe, layout = self.recipe, self.recipe.layout
        cpus = layout.devices_per_worker if recipe.kind is None and self.place.cores is None else 1
        options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": 0, "max_restarts": 0, "max_task_retries": 0}
        if recipe.kind == "GPU":
            options["num_gpus"] = layout.share
        elif recipe.kind is not None:
            options["resources"] = {recipe.kind: layout.share}
        if self.shared is not None:
            options["scheduling_strategy"] = self.shared.strategy
        elif self.node is not None:
            strategies = recipe.actors.ray.util.scheduling_strategies
            options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(self.node, soft=True)
        # Ray shows each actor only its own GPUs, which it counts from 0.
        devices = [f"cuda:{index}" for index in range(layout.devices_per_worker)] if recipe.kind == "GPU" else ["cpu"]
        search_path = [path or os.getcwd() for path in sys.path]  # noqa: PTH109
        threads = cpus if self.place.cores is None else len(self.place.cores)
        arguments = self.place.cores, threads, devices, search_path, layout.workers_per_device
        self.actor = recipe.actors.start(recipe.actor, arguments, options)
        return self.call("place")

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the actor; returns the call."""
        return self.recipe.actors.call(self.actor, method, *arguments)

    def prepare(self) -> Any:
        """Has the actor load callback_fn and the framework; returns the call."""
        return self.call("prepare", self.recipe.callback, self.recipe.frameworks)

    def start(self, plan: MeasurementPlan | None, workload: Workload | None, memory: SampleMemory) -> Any:
        """Has the actor build its evaluator; returns the call."""
        return self.call("start", self.recipe.options, plan, workload, memory)

    def seek_place(self) -> None:
        """Makes another actor in the place of a dead one; all that it is asked for yet is where it is."""
        self.end()
        self.starting = [self.create()]
        self.started_at = time.monotonic()

    def start_up(self, plan: MeasurementPlan, memory: SampleMemory, plane: LoadedPlane | None) -> None:
        """Has an actor that has or seeks its place start, up to the loaded plane."""
        self.starting += [self.prepare(), self.call("call"), self.start(plan, None, memory)]
        if plane is not None:
            self.starting.append(self.call("load", *plane.vectors, plane.far_points, plane.partition))

    def end(self) -> None:
        if self.actor is not None:
            with contextlib.suppress(Exception):
                self.recipe.actors.kill(self.actor)
        self.actor = None
        self.starting = []

    def leave(self) -> None:
        """Ends the actor for good and gives its place back."""
        self.end()
        if self.shared is not None:
            self.shared.release()
            self.shared = None


class SharedDevice:
    """One GPU or NPU and its workers' CPUs in a Ray placement group: a free half would go to anybody's actor."""

    def __init__(self, kind: str, workers: int) -> None:
        from ray.util.placement_group import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._group = placement_group([{kind: 1, "CPU": workers}])
        self._remove = remove_placement_group
        self._users = workers
        self.strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)

    def release(self) -> None:
        """Gives up one worker's part; the last one frees the device."""
        self._users -= 1
        if not self._users:
            with contextlib.suppress(Exception):
                self._remove(self._group)


def pickled_function(dumps: Callable[[Any], bytes], callback_fn: Callable[[], Any]) -> bytes:
    """Returns callback_fn as it is sent to workers, pickled by cloudpickle's ``dumps``."""
    try:
        return bytes(dumps(callback_fn))
    except Exception as error:
        raise CallbackFunctionError(
            f"callback_fn cannot be sent to the workers ({type(error).__name__}: {error}); build the network "
            "and the data set inside the function instead of using open files, locks or other live objects of a script "
            "or a notebook, or define it at the top level of a module, which workers import."
        ) from error


def mentioned_frameworks(callback_fn: Callable[[], Any], pickled: bytes) -> tuple[str, ...]:
    """Returns the frameworks whose names occur in callback_fn, in its code or in what it holds."""
    names = getattr(getattr(callback_fn, "__code__", None), "co_names", ())
    return tuple(name for name in _FRAMEWORKS if name in names or name.encode() in pickled)


def raise_failures(answers: Sequence[Any]) -> Sequence[Any]:
    """Raises the first exception that an actor returned."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def check_same_description(label: str, expected: EvaluatorDescription, found: EvaluatorDescription) -> None:
    """Raises NondeterministicLossError when callback_fn gave two workers different things."""
    differences = expected.space.differences(found.space)
    if found.samples_sha256 != expected.samples_sha256:
        differences.append(f"samples {expected.samples_sha256[:12]} against {found.samples_sha256[:12]}")
    theirs_by_name = {item.name: item for item in found.datasets}
    for data_set in expected.datasets[1:]:
        other = theirs_by_name.get(data_set.name)
        if other is not None and other.samples_sha256 != data_set.samples_sha256:
            digests = f"{data_set.samples_sha256[:12]} against {other.samples_sha256[:12]}"
            differences.append(f"samples of data set {data_set.name!r} {digests}")
    names = [[item.name for item in description.datasets] for description in (expected, found)]
    if names[0] != names[1]:
        differences.append(f"data sets {names[0]} against {names[1]}")
    for name in ("metrics", "num_samples", "partition_dependent"):
        ours, theirs = getattr(expected, name), getattr(found, name)
        if ours != theirs:
            differences.append(f"{name} {ours} against {theirs}")
    if differences:
        raise NondeterministicLossError(
            f"callback_fn must build the same network and samples on every worker, but {label} has others:\n  "
            + "\n  ".join(differences[:20])
            + "\nSet the seeds of whatever is random in it, and switch random augmentation off."
        )
