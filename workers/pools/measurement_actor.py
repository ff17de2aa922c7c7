"""What runs inside an actor: one evaluator on its devices."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from collectors.errors import LandscapeError
from collectors.networks.weight_space import State, WeightSpace

from ..callback_fn import call_callback, make_evaluator, space_of
from ..curvature.measuring import CurvatureSettings
from ..curvature.products import Layout, ProductSettings
from ..curves.curve import CurveTask, Fitting
from ..errors import IN_THE_WORKER, CallbackFunctionError, CurvatureError
from ..evaluator import (
    Evaluator,
    EvaluatorDescription,
    MeasurementSetup,
    OriginMeasurement,
    Partition,
    SampleMemory,
    fit_curve,
)
from ..hardware import pin_process
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from ..measuring.memory_shortage import use_batch_size
from ..sample_losses import SampleLosses
from .devices import gpu_numbers
from .in_process import (
    CurvatureOutcome,
    Outcome,
    WorkerCurvature,
    load_plane,
    measure_origin,
    measure_points,
    measure_sample_losses,
    measure_task_state,
)

P = ParamSpec("P")
T = TypeVar("T")


def _returns_errors(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T | Exception]:
    """Has a method return errors of ours: Ray would wrap them beyond recognition."""

    @functools.wraps(method)
    def measure(self: Any, /, *arguments: P.args, **more: P.kwargs) -> T | Exception:
        try:
            return method(self, *arguments, **more)
        except LandscapeError as error:
            return _portable(error)

    return measure


class MeasurementActor:
    """One worker of a pool."""

    _evaluator: Evaluator

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
        self._threads = threads
        # The framework's names; a network on one device is on the first.
        self._devices = tuple(devices)
        # Where the driver looks for modules, so that those of callback_fn are found.
        sys.path.extend(path for path in search_path if path not in sys.path)
        self._origin: OriginMeasurement | None = None

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

    @_returns_errors
    def space(self) -> WeightSpace:
        """Calls callback_fn and returns the description of its network."""
        return space_of(call_callback(self._callback_fn))

    def load_compiler(self) -> None:
        """Loads PyTorch's compiler, which takes seconds, while the first worker still tunes."""
        if "torch" in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module("torch._inductor.compile_fx")

    def start(
        self,
        options: MeasurementOptions,
        plan: MeasurementPlan | None,
        workload: Workload | None = None,
        memory: SampleMemory = SampleMemory(),  # noqa: B008
    ) -> EvaluatorDescription | Exception:
        """Builds the evaluator; what goes wrong is returned."""
        try:
            devices = self._devices
            setup = MeasurementSetup(options, self._threads, devices[0], plan, False, workload, memory, devices)
            self._evaluator = make_evaluator(self._result, setup)
            self._curvature = WorkerCurvature(self._evaluator)
            return self._evaluator.description
        except (LandscapeError, TypeError, ValueError) as error:
            return _portable(error)
        except Exception as error:
            return _could_not_start(error)
        finally:
            self._result = None

    @_returns_errors
    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State],
        far_points: Sequence[Sequence[float]],
        partition: Partition | None = None,
    ) -> EvaluatorDescription:
        """Puts a plane on the devices; finds out how the loss is added up there, or takes what another worker did."""
        self._far = far_points[0]
        self._origin = load_plane(self._evaluator, origin, directions, buffers, end_buffers, far_points, partition)
        return replace(self._evaluator.description, held=b"")

    @_returns_errors
    def measure_origin(self) -> tuple[str, OriginMeasurement]:
        """Returns the type of device, and the origin, a part of it again, and a far point."""
        measured = self._origin or measure_origin(self._evaluator, self._far)
        return self._evaluator.description.device, measured

    def measure_points(self, points: Sequence[tuple[float, ...]]) -> tuple[list[Outcome], float, int | None]:
        """Measures points; returns their outcomes, the seconds it took and the batch size that memory allowed."""
        start = time.perf_counter()
        outcomes = measure_points(self._evaluator, points)
        return outcomes, time.perf_counter() - start, self._evaluator.description.plan.batch_size

    def measure_state(
        self, parameters: State, buffers: State | None, settings: CurvatureSettings | None
    ) -> tuple[list[Outcome | CurvatureOutcome], float, int | None] | Exception:
        """Measures one set of weights, or with settings the curvature there; returns what ``measure_points`` does."""
        start = time.perf_counter()
        if settings is None:
            outcome: Outcome | CurvatureOutcome = measure_task_state(self._evaluator, parameters, buffers)
            return [outcome], time.perf_counter() - start, self._evaluator.description.plan.batch_size
        try:
            outcome = self._curvature.measure(lambda: (parameters, buffers), settings)
        except CurvatureError as error:
            return _portable(error)
        return [outcome], time.perf_counter() - start, None

    def measure_source(self, source: bytes, settings: CurvatureSettings | None) -> Any:
        """Reads weights (a pickled ``StateTask.source``) and measures there; None where they are not in reach."""
        try:
            parameters, buffers = pickle.loads(source)()
        except Exception:
            # Whatever keeps this process from reading, the driver tries next, and says what is wrong if it fails too.
            return None
        return self.measure_state(parameters, buffers, settings)

    @_returns_errors
    def sample_losses(self, points: Sequence[Sequence[float]]) -> SampleLosses | None:
        """Measures the loss of each sample at a few points."""
        return measure_sample_losses(self._evaluator, points)

    @_returns_errors
    def fit_curve(self, task: CurveTask, begun: Fitting | None, seconds: float) -> Fitting:
        """Goes on with fitting a curve."""
        return fit_curve(self._evaluator, task, begun, seconds)

    @_returns_errors
    def open_shares(self, settings: ProductSettings) -> tuple[Layout, list[int]]:
        """Gets ready for products of shares of the samples; returns what ``WorkerCurvature.open`` does."""
        return self._curvature.open(settings)

    def add_shares(self, where: tuple[int, ProductSettings, Sequence[Any]], *arguments: Any) -> list[Any]:
        """Returns what ``WorkerCurvature.add`` does; weights are references, which are fetched where they are new."""
        key, settings, weights = where

        def read() -> tuple[State, State | None]:
            parameters, buffers = self._fetched(weights)
            return parameters, buffers

        return self._curvature.add((key, settings, read), *arguments)

    def _fetched(self, references: Sequence[Any]) -> list[Any]:
        import ray

        found: list[Any] = ray.get(list(references))
        return found

    def close_shares(self) -> tuple[str, ...]:
        """Leaves the network as it was found; returns what the user should know."""
        return self._curvature.close()

    def use_batch_size(self, batch_size: int) -> None:
        """Measures in batches no larger than another worker could hold."""
        evaluator = getattr(self, "_evaluator", None)  # there is none before it has started
        if evaluator is not None and (evaluator.description.plan.batch_size or 0) > batch_size:
            use_batch_size(evaluator, batch_size)
            self._origin = None  # it was measured in larger ones


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
