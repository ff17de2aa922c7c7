"""What runs inside a Ray actor: one evaluator on one device."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import sys
import time
import traceback
from collections.abc import Sequence

from collectors.errors import LandscapeError
from collectors.network_state import State

from .devices import pin_process
from .errors import CallbackFunctionError
from .evaluator import Evaluator, EvaluatorDescription, MeasurementOptions, call_callback, make_evaluator
from .measurement_plan import MeasurementPlan, Workload
from .pool import Outcome, measure_origin_twice, measure_points, measure_task_state


class MeasurementActor:
    """One worker of a Ray pool.

    Args:
        cores: the CPU cores that are its own, or None to stay where the cluster put it.
        device: the framework's name of its device.
        search_path: where the driver looks for modules, so that callback_fn's are found here too.
    """

    def __init__(self, cores: tuple[int, ...] | None, device: str, search_path: Sequence[str]) -> None:
        if cores is not None:
            pin_process(cores)
        self._threads = len(cores) if cores is not None else 1
        self._device = device
        sys.path.extend(path for path in search_path if path not in sys.path)
        self._evaluator: Evaluator | None = None

    def place(self) -> tuple[str, tuple[int, ...], int]:
        """Returns where this worker is: node, ids of its GPUs, process id."""
        import ray

        context = ray.get_runtime_context()
        gpus = tuple(int(item) for item in context.get_accelerator_ids().get("GPU", ()) if item.isdigit())
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
                "module that workers can import, or in the script itself."
            )

    def call(self) -> Exception | None:
        """Calls callback_fn; what goes wrong is returned."""
        try:
            self._result = call_callback(self._callback_fn)
            return None
        except Exception as error:
            return _portable(error)

    def start(
        self, options: MeasurementOptions, plan: MeasurementPlan | None, workload: Workload | None = None
    ) -> EvaluatorDescription | Exception:
        """Builds the evaluator; what goes wrong is returned, because Ray would wrap it beyond recognition."""
        try:
            self._evaluator = make_evaluator(
                self._result,
                options,
                threads=self._threads,
                device=self._device,
                plan=plan,
                restore_network=False,
                workload=workload,
            )
            return self._evaluator.description
        except (LandscapeError, TypeError, ValueError) as error:
            return _portable(error)
        except Exception as error:
            return CallbackFunctionError(f"a worker could not start: {error}\n{traceback.format_exc()}")
        finally:
            self._result = None

    def load(self, origin: State, directions: Sequence[State], buffers: State) -> None:
        """Puts a plane on the device."""
        assert self._evaluator is not None
        self._axes = len(directions)
        self._evaluator.load(origin, directions, buffers)

    def measure_origin(self) -> tuple[str, tuple[dict[str, float], dict[str, float]]]:
        """Measures the origin twice; returns the device type and the values."""
        assert self._evaluator is not None
        return self._evaluator.description.device, measure_origin_twice(self._evaluator, self._axes)

    def measure_points(self, points: Sequence[tuple[float, ...]]) -> tuple[list[Outcome], float]:
        """Measures points; returns their outcomes and the seconds it took."""
        assert self._evaluator is not None
        start = time.perf_counter()
        return measure_points(self._evaluator, points), time.perf_counter() - start

    def measure_state(self, parameters: State, buffers: State | None) -> tuple[list[Outcome], float]:
        """Measures one set of weights; returns its outcome and the seconds it took."""
        assert self._evaluator is not None
        start = time.perf_counter()
        return [measure_task_state(self._evaluator, parameters, buffers)], time.perf_counter() - start


def _portable(error: Exception) -> Exception:
    # The original's own cause may hold anything; its text travels as a note instead.
    if error.__cause__ is not None:
        cause = "".join(traceback.format_exception(error.__cause__))
        error.add_note(f"In the worker:\n{cause}")
        error.__cause__ = None
    error.__traceback__ = None
    return error
