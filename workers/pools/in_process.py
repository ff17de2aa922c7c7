"""How a worker of any pool measures: points, sets of weights, the origin, curvature; and the pool of this process."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from collectors.networks.weight_space import State
from collectors.shapes import Float32

from ..callback_fn import call_callback, make_evaluator, users_errors
from ..curvature.measuring import CurvatureSettings, CurvatureValues, measure_state_curvature
from ..curvature.products import SHARES, Layout, ProductSettings, ShareProducts, add_in_order
from ..curves.curve import CurveTask, Fitting
from ..errors import ChangedSamplesError, PointsFailedError, PoolError
from ..evaluator import (
    DENOMINATORS,
    NUMERATORS,
    Evaluator,
    EvaluatorDescription,
    MeasurementSetup,
    OriginMeasurement,
    Partition,
    PassCost,
    SampleMemory,
    fit_curve,
    products_of,
)
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from ..measuring.memory_shortage import getting_ready, use_batch_size, within_memory
from ..measuring.sample_loss import samples_at, values_at
from ..pool import (
    CurvatureResult,
    CurvatureTask,
    OriginValues,
    PointTask,
    Pool,
    ReadWeights,
    Result,
    SampleLosses,
    Task,
)
from ..samples.random_state import random_state_kept
from .devices import available_cores, gpu_ids

# What an interruption may cost in this process, and how many points an evaluator may need at once to be fast.
_CHUNK_SECONDS = 0.1
_LONGEST_CHUNK = 64
# So many chunks in a row that take so many times what the origin took: several threads wait for other programs.
_LATE_CHUNKS, _LATE = 5, 3.0

_Value = TypeVar("_Value")
CurvatureOutcome: TypeAlias = tuple[CurvatureValues | None, str | None]
"""The curvature, or the traceback of what went wrong."""


class Outcome(NamedTuple):
    """What became of a task; ``Result`` explains it."""

    values: dict[str, float] | None
    error: str | None = None
    samples: dict[str, Float32[np.ndarray, " samples"]] | None = None


class Worker:
    """An evaluator and its plane; its network is as it was found after each call but ``open_shares``."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self._origin: OriginMeasurement | None = None
        self._checked: ProductSettings | None = None
        self._shares: ShareProducts | None = None
        self._is_at: object = None

    @property
    def description(self) -> EvaluatorDescription:
        return self.evaluator.description

    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        far_points: Sequence[Sequence[float]] | None = None,
        partition: Partition | None = None,
    ) -> EvaluatorDescription:
        """Puts a plane on the devices; returns what is measured there, added up as here or as another worker found."""
        far_points = far_points or [(1.0,) * len(directions)]
        self._far = far_points[0]
        vectors = sum(array.nbytes for state in (origin, *directions) for array in state.values())
        size = f"{len(directions)} direction{'' if len(directions) == 1 else 's'}, {vectors / 1e9:.2g} GB"
        with (
            users_errors(),
            getting_ready(f"a plane was loaded: beside the network, each worker holds the origin and {size}"),
        ):
            # A user's evaluator need not know buffers that are interpolated, nor that a loss may belong to its batches.
            further: dict[str, Any] = {"end_buffers": end_buffers} if end_buffers else {}
            if self.description.partition is not None:
                further |= {"far_points": far_points, "partition": partition}
            self._origin = self.evaluator.load(origin, directions, buffers, **further)
        return replace(self.description, held=b"")

    def measure_origin(self) -> tuple[str, OriginMeasurement]:
        """Returns the type of device, and the plane's origin: measured while it was loaded, else twice and afar."""
        if self._origin is not None:
            return self.description.device, self._origin

        def measure(point: Sequence[float]) -> dict[str, float]:
            with users_errors():
                return values_at(self._measure([point]), 0)

        origin, start = [0.0] * len(self._far), time.perf_counter()
        first = measure(origin)
        try:
            elsewhere = measure(self._far)
        except Exception:
            elsewhere = {}  # a point that raises is a failed one, which ends no survey
        values = (first, measure(origin))
        return self.description.device, OriginMeasurement(values, (), elsewhere, (time.perf_counter() - start) / 3)

    def _measure(self, points: Sequence[Sequence[float]], **options: Any) -> dict[str, Any]:
        return within_memory(self.evaluator, lambda: self.evaluator.measure(np.array(points, np.float64), **options))

    def measure_points(self, points: Sequence[tuple[float, ...]]) -> list[Outcome]:
        """Measures points; one that raises costs nothing but itself, unless samples changed, which concerns all."""
        try:
            columns = self._measure(points)
            return [Outcome(values_at(columns, row), None, samples_at(columns, row)) for row in range(len(points))]
        except ChangedSamplesError:
            raise
        except PointsFailedError as error:
            return [Outcome(*found) for found in zip(error.values, error.errors, strict=True)]
        except Exception:
            if len(points) == 1:
                return [Outcome(None, traceback.format_exc())]
        return [self.measure_points([point])[0] for point in points]

    def measure_state(self, read: ReadWeights) -> Outcome:
        """Measures one set of weights; any exception but a ChangedSamplesError becomes its traceback."""

        def measure() -> dict[str, float]:
            parameters, buffers = read()
            return within_memory(self.evaluator, lambda: self.evaluator.measure_state(parameters, buffers))

        return Outcome(*_attempted(measure, ChangedSamplesError))

    def sample_losses(self, points: Sequence[Sequence[float]]) -> SampleLosses | None:
        """Measures the loss of each sample at a few points; None where there is none, or a point raises."""
        if not self.description.splits:
            return None
        # The user knows of the point's own failure.
        found, _ = _attempted(lambda: self._measure(points, sums=True), ChangedSamplesError)
        return None if found is None else SampleLosses(found[NUMERATORS], found.get(DENOMINATORS))

    def fit_curve(self, task: CurveTask, begun: Fitting | None, seconds: float) -> Fitting:
        return fit_curve(self.evaluator, task, begun, seconds)

    def measure_curvature(self, read: ReadWeights, settings: CurvatureSettings) -> CurvatureOutcome:
        """Measures the curvature at one set of weights; the first time the products are tried for symmetry."""
        self.close_shares()
        with products_of(self.evaluator, settings.products) as shares:
            values, error = measure_curvature_at(shares, read, settings, check=self._checked != settings.products)
        if values is not None:
            self._checked = settings.products
        return values, error

    def open_shares(self, settings: ProductSettings) -> tuple[Layout, list[int], bool]:
        """Gets ready for shares; returns how vectors are made, the samples in each share, and ``are_differences``."""
        self.close_shares()
        self._shares = products_of(self.evaluator, settings)
        shares = self._shares
        return shares.layout, [shares.samples_in(share) for share in range(SHARES)], shares.are_differences

    def add_shares(
        self,
        where: tuple[object, ProductSettings, ReadWeights],
        method: str,
        parts: Sequence[range],
        options: Mapping[str, Any],
        *arguments: Any,
    ) -> list[Any]:
        """Returns what a method of ``ShareProducts`` gives for some shares, added up for each part of them."""
        # Which weights these are; settings, for a worker that is not open; and what reads the weights.
        key, settings, read = where
        if self._shares is None:
            self.open_shares(settings)
        opened = self._shares
        assert opened is not None
        if self._is_at != key:
            opened.move(*read())
            self._is_at = key
        numbers = [share for part in parts for share in part]  # in the order in which they are added
        with opened.together():
            found = opened.parts(method, numbers, *arguments, **options)
            return [add_in_order(part, found) for part in parts]

    def close_shares(self) -> tuple[str, ...]:
        """Leaves the network as it was found; returns what the user should know of what was done since it was open."""
        if self._shares is None:
            return ()
        notes = self._shares.notes
        self._shares.close()
        self._shares = self._is_at = None
        return notes

    def use_batch_size(self, batch_size: int) -> None:
        if (self.description.plan.batch_size or 0) > batch_size:
            use_batch_size(self.evaluator, batch_size)
            self._origin = None  # it was measured in larger ones


class InProcessPool(Pool):
    workers = 1

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
        with random_state_kept():
            self._worker = Worker(make_evaluator(call_callback(callback_fn), setup))
        self._chunk_length = 1
        self._pass_cost: PassCost | None = None
        self._is_given, self._expected, self._late = plan is not None, math.inf, 0

    @property
    def description(self) -> EvaluatorDescription:
        return self._worker.description

    @property
    def copies_of_planes(self) -> int:
        return int(self.description.device == "cpu")

    def load(self, *plane: Any, **further: Any) -> None:
        self._worker.load(*plane, **further)

    def measure_origin(self) -> list[OriginValues]:
        device, measured = self._worker.measure_origin()
        self._pass_cost, self._expected = measured.pass_cost, measured.seconds
        return [OriginValues("this process", device, measured)]

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
        self._late = self._late + 1 if seconds > _LATE * self._expected and self._pass_cost is None else 0
        if self._late == _LATE_CHUNKS and not self._is_given and hasattr(self._worker.evaluator, "use_one_thread"):
            self._worker.evaluator.use_one_thread()
        return [Result(task.key, *outcome) for task, outcome in zip(chunk, outcomes, strict=True)]


def measure_curvature_at(
    shares: ShareProducts, read: ReadWeights, settings: CurvatureSettings, *, check: bool
) -> CurvatureOutcome:
    """Measures the curvature at one set of weights; any exception but a PoolError becomes its traceback."""
    return _attempted(lambda: measure_state_curvature(shares, *read(), settings, check=check), PoolError)


def _attempted(work: Callable[[], _Value], of_all: type[Exception]) -> tuple[_Value | None, str | None]:
    """Returns what some work gives, or its traceback; what concerns all tasks is raised."""
    try:
        return work(), None
    except of_all:
        raise
    except Exception:
        return None, traceback.format_exc()


def fit_in_parts(task: CurveTask, begun: Fitting | None, fit: Callable[[Fitting | None], Fitting]) -> Iterator[Fitting]:
    """Yields how far a curve is fitted until all steps are done; ``fit`` goes on for a while from there."""
    while begun is None or begun.step < task.settings.steps:
        begun = fit(begun)
        yield begun
