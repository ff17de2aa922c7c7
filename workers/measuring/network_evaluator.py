"""What the evaluators of networks do alike: several data sets in one plan, and what they say of themselves."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.networks.weight_space import State

from ..errors import CallbackFunctionError, PointsFailedError
from ..evaluator import (
    DataSetDescription,
    Evaluator,
    EvaluatorDescription,
    MeasurementSetup,
    OriginMeasurement,
    Partition,
    PassCost,
)
from ..measurement_options import MeasurementOptions
from ..sample_losses import DENOMINATORS, NUMERATORS, KeptSamples, SampleLosses
from ..samples.batches import Batch, is_tensor
from ..samples.data_sets import naming_set
from ..samples.samples import Samples
from ..samples.sources import hold, hold_sets
from .further_set import FurtherSet, MovedNetwork
from .groups import check_splits, find_groups
from .kept_samples import describe_kept, values_at
from .memory_shortage import within_memory
from .one_set import OneSet
from .partitioned_set import PartitionedSet
from .totals import SampleSums, Total

if TYPE_CHECKING:
    from jaxtyping import Float64


class NetworkEvaluator(PartitionedSet, Evaluator):
    """The base of each framework's evaluator: the main data set on a network that it moves, and others beside it."""

    # A constructor does what ``OneSet`` says, and adds the other data sets when its plan is chosen.
    _further: Sequence[FurtherSet] = ()
    _groups_sha256 = ""
    _kept: tuple[KeptSamples, ...] = ()

    @property
    def description(self) -> EvaluatorDescription:
        """What this evaluator measures, and how."""
        whole = replace(
            self._description,
            groups_sha256=self._groups_sha256,
            kept=self._kept,
            partition=replace(self._partition, further=tuple(item._partition for item in self._further)),
            splits=self._samples.passes is None and self.totals[0].splits,
        )
        if not self.set_name:
            return whole
        parts = [item._description for item in self._sets]
        return replace(
            whole,
            metrics=tuple(item.result_name(name) for item in self._sets for name in item._description.metrics),
            partition_dependent=any(part.partition_dependent for part in parts),
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            datasets=tuple(
                DataSetDescription(item.set_name, part.num_samples, part.samples_sha256, part.partition_dependent)
                for item, part in zip(self._sets, parts, strict=True)
            ),
        )

    def use_batch_size(self, batch_size: int) -> None:
        """Measures in smaller batches from now on."""
        for item in self._sets:
            item._take_batch_size(batch_size)

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
        self._settle(far_points, partition)
        return self._measure_origin(far_points[0])

    def measure(
        self, points: Float64[np.ndarray, "points axes"], *, sums: bool = False
    ) -> dict[str, Float64[np.ndarray, " points"]]:
        """Measures points of the loaded plane, shape (points, axes)."""
        return self._sums_of_samples(points) if sums else self._measure(points)

    @abstractmethod
    def _measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        """Measures points of the loaded plane, shape (points, axes)."""

    @abstractmethod
    def _put(self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State]) -> None:
        """Puts a plane on the device."""

    def _settle(self, far_points: Sequence[Sequence[float]], partition: Partition | None) -> None:
        """Finds out on the loaded plane how the loss and the metrics are added up, in each data set."""
        before = [item._partition for item in self._further]
        further = []
        for index, item in enumerate(self._further):
            with naming_set(item.set_name):
                further.append(item._settle_set(far_points, None if partition is None else partition.further[index]))
        if before != further:
            self._sets_changed()
        self._settle_set(far_points, None if partition is None else replace(partition, further=()))
        if self._keeps_samples:
            self._kept = tuple(
                describe_kept(item.set_name, item.samples, self._weights_of(item, len(far_points[0])))
                for item in self._sets
            )

    def _measure_origin(self, far: Sequence[float]) -> OriginMeasurement:
        """Measures the loaded plane's origin over all samples, and over its first batch again."""
        if self._samples.passes is not None:
            return self._measure_origin_in_pass(far)
        # Each batch draws random numbers anew; a state that the network changes shows in a batch before and after all.
        origin, size = self._measured_origin or self._measure_whole_origin(len(far)), self._plan.batch_size
        try:
            elsewhere = self._measure_few_at(far)
        except Exception:
            elsewhere = {}  # a point that raises is a failed one, which ends no survey
        start = time.perf_counter()
        again = self._measure_few_at([0.0] * len(far))
        seconds = (time.perf_counter() - start) * self._shares_of_first_batch
        self._measured_origin = None
        if self._plan.batch_size != size:  # memory ran out, and the first batch is another one
            return self._measure_origin(far)
        # The first whole pass is the slowest: libraries get their memory in it.
        seconds = min(seconds, origin.seconds) if self._description.options.buffers == "fixed" else origin.seconds
        return replace(origin, repeated=(*origin.repeated, again), elsewhere=elsewhere, seconds=seconds)

    def _held_samples(self) -> bytes:
        held = hold_sets([item.samples for item in self._sets]) if self.set_name else hold(self._samples)
        return held or b""

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
        return OriginMeasurement((first, again), (), elsewhere, seconds, pass_cost=self._pass_cost)

    @property
    def _pass_cost(self) -> PassCost | None:
        """What a pass costs where samples are read anew in each."""
        return None

    def _sums_of_samples(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Any]:
        """Measures what ``measure`` returns of single samples."""
        found = self._sample_losses_of(self, points)
        assert found is not None
        sums = {NUMERATORS: found.numerators}
        return sums if found.denominators is None else {**sums, DENOMINATORS: found.denominators}

    @property
    def _shares_of_first_batch(self) -> float:
        """How many times as many samples there are in all data sets as in the first batch of the main one."""
        size = None if self._keeps_batches else self._plan.batch_size
        first = self._samples.own_batches[0].size if size is None else min(size, self._samples.count)
        return sum(item.samples.count for item in self._sets) / first

    @property
    def _sets(self) -> Sequence[PartitionedSet]:
        """All data sets, the main one first."""
        return [self, *self._further]

    def _add_set(
        self,
        name: str,
        samples: Samples,
        candidates: Sequence[Total],
        metrics: Mapping[str, Total],
        notes: Sequence[str],
    ) -> None:
        """Adds a data set beside the main one, which is measured in the same plan where the network is."""
        network = MovedNetwork(
            self._space_of_test,
            self._forward_here,
            self._visit,
            self._leave,
            self._settings,
            self._measure_set,
            self._samples_for_test,
            self.use_batch_size,
            self._draws_alike,
        )
        with naming_set(name):
            further = FurtherSet(name, network, samples, candidates, metrics, self._plan, notes)
        self._further = [*self._further, further]

    def _find_groups(self, options: MeasurementOptions) -> None:
        """Finds the groups of all data sets' samples, and gets ready to keep their losses, where options ask for it."""
        if options.keep_samples:
            for item in self._sets:
                with naming_set(item.set_name):
                    check_splits(item._candidates[-1], "keep_samples")
                item._keeps_samples = True
            self._kept = tuple(describe_kept(item.set_name, item.samples) for item in self._sets)
        choice = options.groups
        if choice is None:
            return
        for item in self._sets:
            with naming_set(item.set_name):
                check_splits(item._candidates[-1])
        found, notes, self._groups_sha256 = find_groups(choice, {item.set_name: item.samples for item in self._sets})
        for item, groups in zip(self._sets, found, strict=True):
            item._groups = groups
        self._warn(*notes)

    def _sample_losses_of(self, item: OneSet, points: Float64[np.ndarray, "points axes"]) -> SampleLosses | None:
        loss = item.totals[0]
        if not isinstance(loss, SampleSums):
            return None
        rows = []
        denominators: Any = None
        with self._settings():
            for point in points.tolist():
                self._visit(point)
                try:
                    self._measure_set(item.batches, loss, {})
                    numerators, denominators = loss.sums
                    rows.append(_on_host(numerators))
                finally:
                    self._leave()
        return SampleLosses(np.stack(rows), None if denominators is None else _on_host(denominators))

    def _weights_of(self, item: OneSet, axes: int) -> Float64[np.ndarray, " samples"] | None:
        """Returns how much each sample of a set counts in the mean; None for a loss that is a sum."""
        found = within_memory(self, lambda: self._sample_losses_of(item, np.zeros((1, axes))))
        return None if found is None else found.denominators

    def _plan_sets(
        self, setup: MeasurementSetup, place: Callable[[Samples], Samples] = lambda samples: samples
    ) -> None:
        """Measures the other data sets in the chosen plan from now on; ``place`` puts samples in its layout."""
        for item in self._further:
            with naming_set(item.set_name):
                item.take_plan(self._plan, setup, place(item.samples))

    def _measure_batches(self, batches: Sequence[Batch]) -> dict[str, float]:
        return self._measure_set(batches, self._loss, self._totals_of_metrics)

    def _measure_set(self, batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]) -> dict[str, float]:
        """Measures batches of any data set, where the network was moved to last."""
        raise NotImplementedError

    def _sets_changed(self) -> None:
        """Gets ready anew, because another data set is measured in other batches, or added up in another way."""


def _on_host(array: Any) -> Float64[np.ndarray, " samples"]:
    return np.asarray(array.detach().cpu() if is_tensor(array) else array, np.float64)
