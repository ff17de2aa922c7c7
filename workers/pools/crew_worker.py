"""One worker of a crew: its actor, which has an evaluator on its devices, and that actor as the driver sees it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collectors.errors import LandscapeError
from collectors.networks.weight_space import State

from ..callback_fn import call_callback, make_evaluator, space_of
from ..curvature.measuring import CurvatureSettings
from ..curvature.products import ProductSettings
from ..errors import IN_THE_WORKER, CallbackFunctionError
from ..evaluator import EvaluatorDescription, MeasurementSetup, Partition, SampleMemory
from ..hardware import pin_process
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from .actors import Actors
from .chunks import Chunk, MeasuredSpeed
from .devices import WorkerLayout, WorkerPlace, gpu_numbers
from .in_process import CurvatureOutcome, Outcome, Worker

_FRAMEWORKS = ("torch", "lightning", "transformers", "composer", "keras", "jax", "flax", "mindspore")


class MeasurementActor:
    _worker: Worker  # once it has started

    def __init__(
        self,
        cores: tuple[int, ...] | None,
        threads: int,
        devices: Sequence[str],
        search_path: Sequence[str],
        workers_per_device: int = 1,
    ) -> None:
        # Without cores it stays where the cluster put it.
        if cores is not None:
            pin_process(cores)
        if workers_per_device > 1:
            # JAX sets three quarters of a GPU's memory aside for itself, whoever else is there.
            os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.75 / workers_per_device:.3f}")
        # TensorFlow reads these once, when its first operation runs.
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(threads))
        os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
        self._threads = threads
        # The framework's names; a network on one device is on the first.
        self._devices = tuple(devices)
        # Where the driver looks for modules, so that those of callback_fn are found.
        sys.path.extend(path for path in search_path if path not in sys.path)

    def place(self) -> tuple[str, tuple[int, ...], int]:
        """Returns where this worker is: node, ids of its GPUs, process id."""
        import ray

        context = ray.get_runtime_context()
        # Ray has replaced the variable by this worker's own part, and has no public way to ask for what was there.
        offered = getattr(getattr(context, "worker", None), "original_visible_accelerator_ids", None) or {}
        gpus = gpu_numbers(context.get_accelerator_ids().get("GPU", ()), offered.get("GPU") or ())
        return context.get_node_id(), gpus, os.getpid()

    def prepare(self, callback: bytes, frameworks: Sequence[str]) -> Exception | None:
        """Loads callback_fn and the frameworks it will need; what goes wrong is returned."""
        for framework in frameworks:
            # All workers do this at once; within callback_fn they would do it one after another.
            with contextlib.suppress(ImportError):
                importlib.import_module(framework)
        try:
            self._callback_fn = pickle.loads(callback)
            return None
        except Exception as error:
            return CallbackFunctionError(
                f"callback_fn could not be loaded by a worker ({type(error).__name__}: {error}); define it in a "
                "module that workers can import, or in the script itself. To a Ray that you initialize yourself, your "
                'modules go with ray.init(runtime_env={"working_dir": "."}).'
            )

    def call(self) -> Exception | None:
        """Calls callback_fn; what goes wrong is returned."""
        try:
            self._result = call_callback(self._callback_fn)
            return None
        except Exception as error:  # also that callback_fn could not be loaded
            return _portable(error)

    def space(self) -> Any:
        return _returned(lambda: space_of(call_callback(self._callback_fn)))

    def load_compiler(self) -> None:
        """Loads PyTorch's compiler, which takes seconds, while the first worker still tunes."""
        if "torch" in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module("torch._inductor.compile_fx")

    def start(self, setup: MeasurementSetup) -> EvaluatorDescription | Exception:
        """Builds the evaluator, on this worker's devices; what goes wrong is returned."""
        try:
            setup = replace(setup, threads=self._threads, device=self._devices[0], devices=self._devices)
            self._worker = Worker(make_evaluator(self._result, setup))
            return self._worker.description
        except (LandscapeError, TypeError, ValueError) as error:
            return _portable(error)
        except Exception as error:
            return _could_not_start(error)
        finally:
            self._result = None

    def ask(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the worker; errors of ours are returned."""
        return _returned(getattr(self._worker, method), *arguments)

    def measure_points(self, points: Sequence[tuple[float, ...]]) -> Any:
        """Returns points' outcomes, the seconds it took and the plan that memory allowed; or an error of ours."""
        return self._timed(lambda: self._worker.measure_points(points))

    def measure_state(self, parameters: State, buffers: State | None, settings: CurvatureSettings | None) -> Any:
        """Measures one set of weights, or with settings the curvature there; returns what ``measure_points`` does."""
        if settings is None:
            return self._timed(lambda: [self._worker.measure_state(lambda: (parameters, buffers))])
        return self._timed(lambda: [self._worker.measure_curvature(lambda: (parameters, buffers), settings)])

    def _timed(self, measure: Callable[[], Sequence[Outcome | CurvatureOutcome]]) -> Any:
        start = time.perf_counter()
        return _returned(lambda: (measure(), time.perf_counter() - start, self._worker.description.plan))

    def measure_source(self, source: bytes, settings: CurvatureSettings | None) -> Any:
        """Reads weights (a pickled ``StateTask.source``) and measures there; None where they are not in reach."""
        try:
            parameters, buffers = pickle.loads(source)()
        except Exception:
            # Whatever keeps this process from reading, the driver tries next, and says what is wrong if it fails too.
            return None
        return self.measure_state(parameters, buffers, settings)

    def add_shares(self, where: tuple[int, ProductSettings, Sequence[Any]], *arguments: Any) -> list[Any]:
        """Returns what ``Worker.add_shares`` does; weights are references, which are fetched where they are new."""
        key, settings, weights = where
        return self._worker.add_shares((key, settings, lambda: self._fetched(weights)), *arguments)

    def use_batch_size(self, batch_size: int) -> None:
        """Measures in batches no larger than another worker could hold; there is no worker before it has started."""
        if hasattr(self, "_worker"):
            self._worker.use_batch_size(batch_size)

    def _fetched(self, references: Sequence[Any]) -> Any:
        import ray

        return ray.get(list(references))


@dataclass(frozen=True)
class ActorRecipe:
    actors: Actors
    callback: Any  # the pickled callback_fn, stored for all actors
    frameworks: tuple[str, ...]  # what callback_fn will import
    options: MeasurementOptions
    kind: str | None = None  # Ray's name for the devices that actors need: "GPU", or "NPU" for Ascend's; None for CPUs
    layout: WorkerLayout = field(default_factory=WorkerLayout)
    actor: type[MeasurementActor] = MeasurementActor


@dataclass
class LoadedPlane:
    vectors: Sequence[Any]  # origin, directions and buffers, stored for all actors
    far_points: Sequence[Sequence[float]] | None
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
        return self.recipe.actors.call(self.actor, method, *arguments)

    def prepare(self) -> Any:
        return self.call("prepare", self.recipe.callback, self.recipe.frameworks)

    def start(self, plan: MeasurementPlan | None, workload: Workload | None, memory: SampleMemory) -> Any:
        options = self.recipe.options
        setup = MeasurementSetup(options, plan=plan, restore_network=False, workload=workload, memory=memory)
        return self.call("start", setup)

    def seek_place(self) -> None:
        """Makes another actor in the place of a dead one; all that it is asked for yet is where it is."""
        self.end()
        self.starting = [self.create()]
        self.started_at = time.monotonic()

    def start_up(self, plan: MeasurementPlan, memory: SampleMemory, plane: LoadedPlane | None) -> None:
        """Has an actor that has or seeks its place start, up to the loaded plane."""
        self.starting += [self.prepare(), self.call("call"), self.start(plan, None, memory)]
        if plane is not None:
            self.starting.append(self.call("ask", "load", *plane.vectors, plane.far_points, plane.partition))

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


def pickled_function(dumps: Callable[[Any], bytes], function: Callable[..., Any], name: str = "callback_fn") -> bytes:
    """Returns a function of the user's as it is sent to workers, pickled by cloudpickle's ``dumps``."""
    try:
        return bytes(dumps(function))
    except Exception as error:
        raise CallbackFunctionError(
            f"{name} cannot be sent to the workers ({type(error).__name__}: {error}); build the network "
            "and the data set inside the function instead of using open files, locks or other live objects of a script "
            "or a notebook, or define it at the top level of a module, which workers import."
        ) from error


def sent_options(dumps: Callable[[Any], bytes], options: MeasurementOptions) -> MeasurementOptions:
    """Returns options as they are sent to workers."""
    if not callable(options.groups):
        return options
    # Plain pickle may not know it, such as one of a script.
    return replace(options, groups=functools.partial(_call_sent, pickled_function(dumps, options.groups, "groups")))


def _call_sent(content: bytes, *arguments: Any) -> Any:
    return _loaded(content)(*arguments)


@functools.lru_cache(maxsize=1)
def _loaded(content: bytes) -> Any:
    return pickle.loads(content)


def mentioned_frameworks(callback_fn: Callable[[], Any], pickled: bytes) -> tuple[str, ...]:
    """Returns the frameworks whose names occur in callback_fn, in its code or in what it holds."""
    names = getattr(getattr(callback_fn, "__code__", None), "co_names", ())
    return tuple(name for name in _FRAMEWORKS if name in names or name.encode() in pickled)


def raise_failures(answers: Sequence[Any]) -> Sequence[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def _returned(work: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what some work gives; errors of ours are returned, too, as Ray would wrap them beyond recognition."""
    try:
        return work(*arguments)
    except LandscapeError as error:
        return _portable(error)


def _portable(error: Exception) -> Exception:
    """Returns an error that reaches the driver whole, with a note of where it was raised."""
    # Of our own errors, the cause alone says what the user has to mend.
    origin = error.__cause__ if isinstance(error, LandscapeError) else error
    if origin is not None:
        error.add_note(IN_THE_WORKER + "".join(traceback.format_exception(origin)).rstrip())
    # What these refer to may hold anything.
    error.__cause__ = error.__traceback__ = None
    return error if _travels(error) else _could_not_start(error)


def _could_not_start(error: Exception) -> CallbackFunctionError:
    wrapped = CallbackFunctionError(f"a worker could not start: {type(error).__name__}: {error}")
    notes = getattr(error, "__notes__", None) or [IN_THE_WORKER + "".join(traceback.format_exception(error)).rstrip()]
    for note in notes:
        wrapped.add_note(note)
    return wrapped


def _travels(error: Exception) -> bool:
    """Returns whether an error is the same, with its notes, once it was sent; the user's own classes need not be."""
    try:
        arrived = pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    notes = getattr(error, "__notes__", [])
    return (type(arrived), str(arrived), getattr(arrived, "__notes__", [])) == (type(error), str(error), notes)
