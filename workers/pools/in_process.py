"""A pool in this process: nothing to start, nothing open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from collectors.networks.weight_space import State

from ..callback_fn import call_callback, make_evaluator
from ..curves.curve import CurveTask, Fitting
from ..evaluator import EvaluatorDescription, MeasurementSetup, PassCost, SampleMemory
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from ..pool import CurvatureResult, CurvatureTask, OriginValues, PointTask, Pool, Result, Task
from ..sample_losses import SampleLosses
from .devices import available_cores, gpu_ids
from .worker import Worker, fit_in_parts

# What an interruption may cost in this process, and how many points an evaluator may need at once to be fast.
_CHUNK_SECONDS = 0.1
_LONGEST_CHUNK = 64


class InProcessPool(Pool):
    """Measures in this process."""

    def __init__(
        self,
        callback_fn: Callable[[], Any],
        options: MeasurementOptions,
        *,
        device_id: int = 0,
        device: str = "",
        plan: MeasurementPlan | None = None,
        workload: Workload | None = None,
        memory: SampleMemory = SampleMemory(),  # noqa: B008
    ) -> None:
        # PyTorch's name of a device that is not NVIDIA's goes before a number.
        device = device or (f"cuda:{device_id}" if gpu_ids() else "cpu")
        threads = len(available_cores())
        setup = MeasurementSetup(options, threads, device, plan, workload=workload, memory=memory, devices=(device,))
        self._worker = Worker(make_evaluator(call_callback(callback_fn), setup))
        self._chunk_length = 1
        self._pass_cost: PassCost | None = None

    @property
    def description(self) -> EvaluatorDescription:
        return self._worker.description

    @property
    def workers(self) -> int:
        return 1

    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        far_points: Sequence[Sequence[float]] | None = None,
    ) -> None:
        self._worker.load(origin, directions, buffers, end_buffers, far_points)

    def measure_origin(self) -> list[OriginValues]:
        measured = self._worker.measure_origin()
        self._pass_cost = measured.pass_cost
        return [OriginValues("this process", self.description.device, measured)]

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks in order, points a few at a time where they are fast."""
        chunk: list[PointTask] = []
        for task in tasks:
            if isinstance(task, PointTask):
                chunk.append(task)
                if len(chunk) < (self._chunk_length if self._pass_cost is None else self._pass_cost.points):
                    continue
            yield from self._measure_chunk(chunk)
            chunk = []
            if not isinstance(task, PointTask):
                yield Result(task.key, *self._worker.measure_state(task.read))
        yield from self._measure_chunk(chunk)

    def sample_losses(self, points: Sequence[Sequence[float]]) -> SampleLosses | None:
        return self._worker.sample_losses(points)

    def run_curvature(self, tasks: Iterable[CurvatureTask]) -> Iterator[CurvatureResult]:
        for task in tasks:
            yield CurvatureResult(task.key, *self._worker.measure_curvature(task.read, task.settings))

    def fit_curve(self, task: CurveTask, begun: Fitting | None = None, seconds: float = 5.0) -> Iterator[Fitting]:
        return fit_in_parts(task, begun, lambda fitted: self._worker.fit_curve(task, fitted, seconds))

    def close(self) -> None:
        self._worker.evaluator.close()

    def _measure_chunk(self, chunk: Sequence[PointTask]) -> list[Result]:
        if not chunk:
            return []
        start = time.perf_counter()
        outcomes = self._worker.measure_points([task.coordinates for task in chunk])
        seconds = (time.perf_counter() - start) / len(chunk)
        self._chunk_length = max(1, min(int(_CHUNK_SECONDS / max(seconds, 1e-9)), _LONGEST_CHUNK))
        return [Result(task.key, *outcome) for task, outcome in zip(chunk, outcomes, strict=True)]
