"""What the evaluators of networks do alike: several data sets in one plan, and what they say of themselves."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import pickle
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from collectors.networks.weight_space import State
from collectors.shapes import Float, Float64

from ..curvature.products import ProductSettings
from ..curves.curve import CurveTask, Fitting
from ..errors import CallbackFunctionError, PointsFailedError, SamplesError
from ..evaluator import (
    DENOMINATORS,
    NUMERATORS,
    DataSetDescription,
    Evaluator,
    EvaluatorDescription,
    KeptSamples,
    MakesProducts,
    MeasurementSetup,
    OriginMeasurement,
    Partition,
)
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan
from ..samples.batches import Batch, on_host
from ..samples.data_sets import ReadSet, naming_set, note_of_set
from ..samples.samples import Samples
from ..samples.store import hold
from .curve_fitting import ArrayCurveFitter
from .measured_set import MeasuredNetwork, MeasuredSet
from .memory_shortage import within_memory
from .products import ArrayGradients
from .sample_loss import SummedLoss, check_splits, describe_kept, find_groups, values_at
from .streamed import StreamedMeasurement
from .totals import Total, low_precision_note
from .tuning import choose_batch_size

_Value = TypeVar("_Value")
_ROUGHLY = 2  # batches


class NetworkEvaluator(Evaluator, MeasuredNetwork):
    """The base of each framework's evaluator: a network that it moves, its main data set, and others beside it."""

    _groups_sha256 = ""
    _kept: tuple[KeptSamples, ...] = ()
    _shared_samples = b""
    _passes: StreamedMeasurement | None = None  # how samples are measured that are read anew in each pass

    def __init__(self) -> None:
        self._sets: list[MeasuredSet] = []  # all data sets, the main one first
        self._described: tuple[EvaluatorDescription, list[object]] | None = None
        """The description that was made last, and what it was made of."""

    @property
    def _main(self) -> MeasuredSet:
        return self._sets[0]

    @property
    def description(self) -> EvaluatorDescription:
        made_of: list[object] = [self._groups_sha256, self._kept, self._shared_samples]
        for item in self._sets:
            made_of += [item.description, item.partition, item.loss, item.samples]  # other objects where it changes
        # It is asked for at each point, and checking it took a tenth of the time of a small network's.
        if self._described is None or not all(map(operator.is_, made_of, self._described[1])):
            self._described = self._describe_sets(), made_of
        return self._described[0]

    def _describe_sets(self) -> EvaluatorDescription:
        main, *further = self._sets
        whole = replace(
            main.description,
            groups_sha256=self._groups_sha256,
            kept=self._kept,
            partition=replace(main.partition, further=tuple(item.partition for item in further)),
            splits=main.samples.passes is None and main.loss.splits,
            held=self._shared_samples,
        )
        if not main.name:
            return whole
        parts = [item.description for item in self._sets]
        return replace(
            whole,
            metrics=tuple(item.result_name(name) for item in self._sets for name in item.description.metrics),
            partition_dependent=any(part.partition_dependent for part in parts),
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            datasets=tuple(
                DataSetDescription(item.name, part.num_samples, part.samples_sha256, part.partition_dependent)
                for item, part in zip(self._sets, parts, strict=True)
            ),
        )

    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        *,
        far_points: Sequence[Sequence[float]] = (),
        partition: Partition | None = None,
    ) -> OriginMeasurement | None:
        """Puts a plane on the device; with far points, finds out how the loss is added up, and measures the origin."""
        self._put(origin, directions, buffers, end_buffers)
        if not far_points:
            return None
        main, *further = self._sets
        for index, item in enumerate(further):
            with naming_set(item.name):
                item.settle(far_points, None if partition is None else partition.further[index])
        main.settle(far_points, None if partition is None else replace(partition, further=()), self.measure)
        if main.keeps_samples:
            place, kept = np.zeros((1, len(far_points[0]))), []
            for item in self._sets:
                sums = within_memory(self, functools.partial(self._sums_of_samples, item, place))
                weights = sums.get(DENOMINATORS)
                kept.append(describe_kept(item.name, item.samples, weights, is_sum=weights is None))
            self._kept = tuple(kept)
        return self._measure_origin(far_points[0])

    def measure(
        self, points: Float64[np.ndarray, "points axes"], *, sums: bool = False
    ) -> dict[str, Float[np.ndarray, " ..."]]:
        return self._sums_of_samples(self._main, points) if sums else self._measure(points)

    def use_batch_size(self, batch_size: int) -> None:
        for item in self._sets:
            item.change_plan(batch_size=batch_size)

    @abstractmethod
    def _put(self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State]) -> None:
        """Puts a plane on the device."""

    @abstractmethod
    def _measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        """Measures points of the loaded plane, shape (points, axes)."""

    def _measure_origin(self, far: Sequence[float]) -> OriginMeasurement:
        """Measures the loaded plane's origin over all samples, and over its first batch again."""
        main, axes = self._main, len(far)
        if main.samples.passes is not None:
            return self._measure_origin_in_pass(far)
        # Each batch draws random numbers anew; a state that the network changes shows in a batch before and after all.
        origin, size = main.origin or main.measure_origin(axes, self.measure), main.plan.batch_size
        try:
            elsewhere = main.measure_few_at(far)
        except Exception:
            elsewhere = {}  # a point that raises is a failed one, which ends no survey
        start = time.perf_counter()
        again = main.measure_few_at([0.0] * axes)
        # How many times as many samples there are in all data sets as in the first batch of the main one.
        first = main.samples.own_batches[0].size
        if main.batch_size is not None:
            first = min(main.batch_size, main.samples.count)
        seconds = (time.perf_counter() - start) * (sum(item.samples.count for item in self._sets) / first)
        if main.plan.batch_size != size:  # memory ran out, and the first batch is another one
            return self._measure_origin(far)
        # The first whole pass is the slowest: libraries get their memory in it.
        seconds = min(seconds, origin.seconds) if main.description.options.buffers == "fixed" else origin.seconds
        return replace(origin, repeated=(*origin.repeated, again), elsewhere=elsewhere, seconds=seconds)

    def _measure_origin_in_pass(self, far: Sequence[float]) -> OriginMeasurement:
        """Measures the origin twice, and a far point, in one pass: that each pass has the same samples is checked."""
        origin, start = [0.0] * len(far), time.perf_counter()
        try:
            columns = within_memory(self, lambda: self.measure(np.array([origin, far, origin], np.float64)))
            first, elsewhere, again = (values_at(columns, row) for row in range(3))
        except PointsFailedError as error:
            first, elsewhere, again = (row or {} for row in error.values)
            if not first or not again:
                raise CallbackFunctionError(f"the plane's origin cannot be measured: {error}") from error
        seconds = (time.perf_counter() - start) / 3
        cost = None if self._passes is None else self._passes.cost
        return OriginMeasurement((first, again), (), elsewhere, seconds, pass_cost=cost)

    def _add_set(self, read: ReadSet, candidates: Sequence[Total], metrics: Mapping[str, Total]) -> None:
        """Adds a data set beside the main one, which is measured in the same plan where the network is."""
        own = [total.fresh() for total in candidates], {key: total.fresh() for key, total in metrics.items()}
        texts = [note_of_set(read.name, note) for note in read.notes]
        with naming_set(read.name):
            self._sets.append(MeasuredSet(self, read.name, read.samples, *own, self._main.plan, texts, is_main=False))

    def _get_sets_ready(
        self,
        sets: Sequence[ReadSet],
        candidates: Sequence[Total],
        metrics: Mapping[str, Total],
        setup: MeasurementSetup,
        device: str,
    ) -> None:
        """Ends a constructor, where the framework decides on layout and compilation; the main data set comes first."""
        read, plan = sets[0], MeasurementPlan(threads=setup.threads, precision=setup.options.precision)
        main = MeasuredSet(self, read.name, read.samples, candidates, metrics, plan, read.notes)
        self._sets.append(main)
        main.warn(*low_precision_note(main.loss))
        for item in sets[1:]:
            self._add_set(item, main.candidates, metrics)
        self._find_groups(setup.options)

        def run(batch_size: int) -> int:
            batch = main.samples.batches(batch_size)[0]
            # A few samples may hold nothing but padding, which has no mean.
            with contextlib.suppress(SamplesError):
                self.measure_batches([batch], main.loss, {})
            return batch.size

        keeps = main.keeps_batches
        with self.settings():
            size = None if keeps or setup.plan is not None else choose_batch_size(run, main.samples.count)
        # The framework itself decides on memory layout and compilation.
        plan = setup.plan or MeasurementPlan(size, setup.threads)
        size = None if keeps else plan.batch_size
        main.plan = replace(main.plan, batch_size=size, threads=plan.threads, reason=plan.reason, details=plan.details)
        self._threads = main.plan.threads
        with self.settings():
            names = tuple(main.measure_few())
        self._plan_sets(setup)
        self._describe(names, setup, device)

    def _batches_for_statistics(self, options: MeasurementOptions, roughly: bool) -> Iterator[Batch]:
        """Yields the batches of which statistics are recalibrated: several samples each, as one would count as much."""
        batches = self._main.samples.batches(options.recalibration_batch_size)
        return itertools.islice((batch for batch in batches if batch.size > 1), _ROUGHLY if roughly else None)

    def fit_curve(self, task: CurveTask, begun: Fitting | None, seconds: float) -> Fitting:
        """Goes on with fitting a curve on the main data set (``FitsCurves``)."""
        return ArrayCurveFitter(self._gradients_of_curves(), self.space, self._main, task).fit(begun, seconds)

    def _gradients_of_curves(self) -> ArrayGradients:
        assert isinstance(self, MakesProducts)
        return cast(ArrayGradients, self.products(ProductSettings()))

    def _measure_each(self, measure: Callable[[MeasuredSet], Mapping[str, _Value]]) -> dict[str, _Value]:
        """Measures each data set; returns the values under the names with which they are stored."""
        values: dict[str, _Value] = {}
        for item in self._sets:
            with naming_set(item.name):
                of_set = measure(item)
            values |= {item.result_name(name): value for name, value in of_set.items()}
        return values

    def _find_groups(self, options: MeasurementOptions) -> None:
        """Finds the groups of all data sets' samples, and gets ready to keep their losses, where options ask for it."""
        for option, is_asked in (("keep_samples", options.keep_samples), ("groups", options.groups is not None)):
            for item in self._sets if is_asked else ():
                with naming_set(item.name):
                    check_splits(item.candidates[-1], option)
        if options.keep_samples:
            for item in self._sets:
                item.keeps_samples = True
            self._kept = tuple(describe_kept(item.name, item.samples) for item in self._sets)
        if options.groups is None:
            return
        groups_of_sets, notes, self._groups_sha256 = find_groups(
            options.groups, {item.name: item.samples for item in self._sets}
        )
        for item, groups in zip(self._sets, groups_of_sets, strict=True):
            item.groups = groups
        self._main.warn(*notes)

    def _sums_of_samples(self, item: MeasuredSet, points: Float64[np.ndarray, "points axes"]) -> dict[str, Any]:
        """Measures what ``measure`` returns of single samples, of a data set whose loss splits into them."""
        loss, numerators = item.loss, []
        assert isinstance(loss, SummedLoss)
        denominators: Any = None
        with self.settings():
            for point in points.tolist():
                with self.visiting(point):
                    self.measure_batches(item.batches, loss, {})
                    of_samples, denominators = loss.sums
                    numerators.append(on_host(of_samples, np.float64))
        sums = {NUMERATORS: np.stack(numerators)}
        return sums if denominators is None else {**sums, DENOMINATORS: on_host(denominators, np.float64)}

    def _plan_sets(
        self, setup: MeasurementSetup, place: Callable[[Samples], Samples] = lambda samples: samples
    ) -> None:
        """Measures the other data sets in the main one's plan from now on, where ``place`` puts their samples."""
        for item in self._sets[1:]:
            with naming_set(item.name):
                item.take_plan(self._main.plan, setup, place(item.samples))

    def _describe(self, names: tuple[str, ...], setup: MeasurementSetup, device: str) -> None:
        """Ends a constructor; the names are those of what is measured on the main data set."""
        self._main.describe(names, setup, self._main.plan, device)
        held = [hold(item.samples) for item in self._sets]
        self._shared_samples = (pickle.dumps(held) if self._main.name else held[0]) or b""
