"""One fixed set of samples on a network that is moved: how the loss and the metrics are added up over it."""

from __future__ import annotations

import contextlib
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.networks.weight_space import WeightSpace

from ..evaluator import EvaluatorDescription, MeasurementSetup, OriginMeasurement, Partition
from ..measurement_plan import MeasurementPlan
from ..samples.batches import Batch
from ..samples.samples import Samples
from .groups import GroupedLoss, SampleGroups, check_splits
from .kept_samples import KeptLoss, values_at
from .memory_shortage import is_memory_shortage, within_memory
from .totals import SampleSums, Total

if TYPE_CHECKING:
    from jaxtyping import Float64


class OneSet(ABC):
    """A data set's samples, and what is known of the loss and the metrics over them.

    A constructor sets a preliminary ``_plan``, calls ``_find_partition`` of ``PartitionedSet`` before it chooses one,
    and ends with ``_describe``.
    """

    set_name = ""
    """As callback_fn gives it; "" where there is one data set without a name."""

    _plan: MeasurementPlan
    _chosen_plan: MeasurementPlan
    _partition: Partition
    _notes: list[str]
    _samples: Samples
    _loss: Total
    _totals_of_metrics: Mapping[str, Total]
    _measured_origin: OriginMeasurement | None = None
    _groups: SampleGroups | None = None
    _keeps_samples = False
    """Whether the loss of each sample is returned beside that of all."""
    _draws_alike = False
    """Whether the same random numbers are drawn at every point; they belong to the data set's own batches."""
    _fixed_partition: Partition | None = None
    """How the loss is added up on every plane, where that is no question."""
    _description: EvaluatorDescription

    @property
    def description(self) -> EvaluatorDescription:
        """What is measured, and how."""
        return self._description

    @property
    def samples(self) -> Samples:
        """What is measured."""
        return self._samples

    @property
    def totals(self) -> list[Total]:
        """The loss as it is added up, and the metrics."""
        return [self._loss, *self._totals_of_metrics.values()]

    @property
    def groups(self) -> SampleGroups | None:
        """The groups of samples whose losses are measured each, or None."""
        return self._groups

    @property
    def keeps_samples(self) -> bool:
        """Whether the loss of each sample is returned beside that of all."""
        return self._keeps_samples

    @property
    def totals_at_points(self) -> list[Total]:
        """The same totals, where the loss is that of each group and of each sample as well."""
        if not isinstance(self._loss, SampleSums):
            return self.totals
        shown: Total = self._loss if self._groups is None else GroupedLoss(self._loss, self._groups)
        shown = KeptLoss(self._loss, shown) if self._keeps_samples else shown
        return [shown, *self._totals_of_metrics.values()]

    @property
    def batches(self) -> Sequence[Batch]:
        """The samples in the plan's batches."""
        return self._samples.batches(self._plan.batch_size)

    def result_name(self, metric: str) -> str:
        """Returns under which name a metric of this set is stored."""
        return metric

    @abstractmethod
    def measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        """Measures points of the loaded plane, shape (points, axes)."""

    @abstractmethod
    def use_batch_size(self, batch_size: int) -> None:
        """Measures in smaller batches from now on."""

    def _take_batch_size(self, batch_size: int) -> None:
        self._measured_origin = None
        if not self._keeps_batches:
            self._plan = replace(self._plan, batch_size=batch_size)
        self._chosen_plan = replace(self._chosen_plan, batch_size=batch_size)
        self._description = replace(self._description, plan=self._plan)

    @abstractmethod
    def _forward_here(self) -> Callable[..., Any]:
        """Returns the network where it was moved to last, not compiled for one shape of batches."""

    @abstractmethod
    def _visit(self, coordinates: Sequence[float], *, roughly: bool = False) -> None:
        """Moves the network to a point of the loaded plane.

        Args:
            coordinates: of the point.
            roughly: whether statistics of the samples may be those of a few, because only a few are measured.
        """

    @abstractmethod
    def _leave(self) -> None:
        """Moves the network back to the plane's origin."""

    @abstractmethod
    def _measure_names(self) -> tuple[str, ...]:
        """Gets ready for the chosen loss and plan, and returns the names of what is measured."""

    @abstractmethod
    def _measure_batches(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Measures batches of the plan's shapes, where the network was moved to last."""

    @abstractmethod
    def _measure_set(self, batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]) -> dict[str, float]:
        """Measures batches with a loss and metrics, where the network was moved to last."""

    @abstractmethod
    def _settings(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which everything is computed."""

    def _measure_whole_origin(self, axes: int) -> OriginMeasurement:
        size, before = self._plan.batch_size, self._measure_few_at([0.0] * axes)
        start = time.perf_counter()
        columns = within_memory(self, lambda: self.measure(np.zeros((1, axes))))
        if self._plan.batch_size != size:  # memory ran out, and the first batch is another one
            return self._measure_whole_origin(axes)
        return OriginMeasurement((values_at(columns, 0),), (before,), seconds=time.perf_counter() - start)

    def _measure_few_at(self, point: Sequence[float]) -> dict[str, float]:
        def measure() -> dict[str, float]:
            with self._settings():
                self._visit(point, roughly=True)
                try:
                    return self._measure_few()
                finally:
                    self._leave()

        return within_memory(self, measure)

    def _measure_few(self) -> dict[str, float]:
        """Measures the first batch; all, where it has no value."""
        batches = self._samples.batches(self._plan.batch_size)
        if len(batches) > 1:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of what a metric misses in a few samples
                    return self._measure_batches([batches[0]])
            except Exception as error:
                # It may hold padding alone, or one class, of which a metric has no value.
                if is_memory_shortage(error):
                    raise
        return self._measure_batches(batches)

    @property
    def _keeps_batches(self) -> bool:
        return self._partition.own_batches or not self._samples.can_be_cut

    def _with_groups(self, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the names of what is measured, the groups' losses behind the loss of all."""
        if self._keeps_samples:
            check_splits(self._loss, "keep_samples")
        if self._groups is None:
            return metrics
        check_splits(self._loss)
        own = 2 if metrics[1:2] == ("loss_stderr",) else 1
        return (*metrics[:own], *self._groups.names, *metrics[own:])

    def _warn(self, *texts: str) -> None:
        self._notes.extend(texts)
        for text in texts:
            warnings.warn(text, stacklevel=3)

    def _describe(
        self,
        space: WeightSpace,
        metrics: tuple[str, ...],
        setup: MeasurementSetup,
        device: str,
        chosen_plan: MeasurementPlan,
    ) -> None:
        """Ends a constructor.

        Args:
            space: the network's description.
            metrics: names of what is measured.
            setup: what the evaluator was told.
            device: where it computes.
            chosen_plan: with the batch size for a loss that splits into samples.
        """
        for text in self._partition.notes:
            warnings.warn(text, stacklevel=4)
        self._chosen_plan = chosen_plan
        self._description = EvaluatorDescription(
            space=space,
            metrics=self._with_groups(metrics),
            num_samples=self._samples.total,
            samples_sha256=self._samples.sha256(with_batches=self._partition.own_batches),
            options=setup.options,
            partition_dependent=self._partition.own_batches,
            plan=self._plan,
            device=device,
            notes=(*self._notes, *self._partition.notes),
            streamed=self._samples.passes is not None,
            held=self._held_samples(),
        )

    def _held_samples(self) -> bytes:
        """Returns what other workers of this machine need to use this one's samples; empty where they cannot."""
        return b""
