"""A data set on a network that is moved: its samples, how the loss and the metrics are added up, in which batches."""

from __future__ import annotations

import contextlib
import copy
import functools
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from collectors.networks.weight_space import WeightSpace
from collectors.shapes import Float64

from ..errors import SamplesError
from ..evaluator import EvaluatorDescription, MeasurementSetup, OriginMeasurement, Partition
from ..measurement_plan import MeasurementPlan
from ..metric_names import name_in_set
from ..samples.batches import Batch, is_array
from ..samples.data_sets import note_of_set
from ..samples.samples import Samples
from ..users_code import warn_and_note, warn_user
from . import checks
from .memory_shortage import is_memory_shortage, shortage_text, within_memory
from .partition import PartitionTest
from .sample_loss import SampleGroups, SummedLoss, as_columns, check_splits, values_at
from .totals import Total
from .tuning import chosen_plan

Measure: TypeAlias = "Callable[[Float64[np.ndarray, 'points axes']], dict[str, Float64[np.ndarray, ' points']]]"
_Compiled = TypeVar("_Compiled")


class MeasuredNetwork(ABC):
    """A network that is moved, as the data sets that are measured on it see it."""

    space: WeightSpace
    draws_alike = False
    """Whether the same random numbers are drawn at every point; they belong to a data set's own batches."""

    @abstractmethod
    def forward_here(self) -> Callable[..., Any]:
        """Returns the network where it was moved to last, not compiled for one shape of batches."""

    @abstractmethod
    def visit(self, coordinates: Sequence[float], *, roughly: bool = False) -> None:
        """Moves the network to a point of the loaded plane; roughly: statistics of samples may be those of a few."""

    @abstractmethod
    def leave(self) -> None:
        """Moves the network back to the plane's origin."""

    @contextlib.contextmanager
    def visiting(self, coordinates: Sequence[float], *, roughly: bool = False) -> Iterator[None]:
        """Moves the network to a point of the loaded plane, as ``visit`` does, and back at the end."""
        self.visit(coordinates, roughly=roughly)
        try:
            yield
        finally:
            self.leave()

    @abstractmethod
    def settings(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which everything is computed."""

    @abstractmethod
    def measure_batches(self, batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]) -> dict[str, float]:
        """Measures batches with a loss and metrics, where the network was moved to last."""

    @abstractmethod
    def use_batch_size(self, batch_size: int) -> None:
        """Measures all data sets in smaller batches from now on."""

    def samples_for_test(self, samples: Samples) -> Samples:
        """Returns samples as ``forward_here`` takes them."""
        return samples

    def sets_changed(self) -> None:  # noqa: B027
        """Gets ready anew, because a data set is measured in other batches, or added up in another way."""


@dataclass(eq=False)
class MeasuredSet:
    """A data set's samples, and how the loss and the metrics are added up over them."""

    network: MeasuredNetwork  # on which it is measured
    name: str  # as callback_fn gives it; "" where there is one data set without a name
    samples: Samples
    candidates: Sequence[Total]  # ways to add the loss up; the first one is for a loss that belongs to its batches
    metrics: Mapping[str, Total]
    plan: MeasurementPlan  # at first that in which it is found out, with the weights at hand, how the loss is added up
    notes: list[str]  # what the user should know
    is_main: bool = field(default=True, kw_only=True)  # the main one's metrics are stored under their own names
    groups: SampleGroups | None = field(default=None, init=False)  # of samples whose losses are measured each
    keeps_samples: bool = field(default=False, init=False)  # whether each sample's loss is returned beside that of all
    # Of the loaded plane, measured to find the partition; None where batches changed since.
    origin: OriginMeasurement | None = field(default=None, init=False)
    # Which samples were cut last into batches of which size, and the batches.
    _cut: tuple[Samples, int | None, Sequence[Batch]] | None = field(default=None, init=False)
    _compiled: dict[tuple[Total, Hashable], Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        here = [lambda _: None]  # with the weights that callback_fn gives, as far as they tell
        with checks.callback_errors(), self.network.settings():
            self._adopt(self._own_batches() if self.network.draws_alike else self._find(here, on_plane=False))

    @property
    def totals(self) -> list[Total]:
        return [self.loss, *self.metrics.values()]

    @property
    def totals_at_points(self) -> list[Total]:
        """The same totals, where the loss is that of each group and of each sample as well."""
        if not isinstance(self.loss, SummedLoss) or not (self.groups or self.keeps_samples):
            return self.totals
        loss = copy.copy(self.loss)
        loss.groups, loss.keeps_samples = self.groups, self.keeps_samples
        return [loss, *self.metrics.values()]

    def compiled(self, key: Hashable, make: Callable[[], _Compiled]) -> _Compiled:
        """Returns what derivatives of the loss compile, made once: each point of a plane makes products of its own."""
        # After another load the loss may be added up in another way.
        if (self.loss, key) not in self._compiled:
            self._compiled[self.loss, key] = make()
        found: _Compiled = self._compiled[self.loss, key]
        return found

    @property
    def keeps_batches(self) -> bool:
        return self.partition.own_batches or not self.samples.can_be_cut

    @property
    def batch_size(self) -> int | None:
        """Samples per forward pass; None for the data set's own batches."""
        return None if self.keeps_batches else self.plan.batch_size

    @property
    def batches(self) -> Sequence[Batch]:
        samples, size = self.samples, self.plan.batch_size
        if self._cut is None or self._cut[0] is not samples or self._cut[1] != size:
            batches = samples.batches(size)
            # A network may take something out of a dictionary, and finds it there at the next point.
            if samples.is_changed_on_use or not all(map(_holds_arrays_alone, batches)):
                return batches
            self._cut = samples, size, batches
        return self._cut[2]

    def result_name(self, metric: str) -> str:
        return metric if self.is_main else name_in_set(metric, self.name)

    def describe(self, names: tuple[str, ...], setup: MeasurementSetup, plan: MeasurementPlan, device: str) -> None:
        """Is measured so from now on; the plan's batch size is for a loss that splits into samples."""
        for text in self.partition.notes:
            warn_user(text)
        self._chosen_plan = chosen_plan(plan, setup)
        self.description = EvaluatorDescription(
            space=self.network.space,
            num_samples=self.samples.total,
            options=setup.options,
            device=device,
            streamed=self.samples.passes is not None,
            **self._settled(names),
        )

    def take_plan(self, plan: MeasurementPlan, setup: MeasurementSetup, samples: Samples) -> None:
        """Is measured from now on in the plan that was chosen for the main data set; samples are in its layout."""
        self.samples = samples
        chosen = chosen_plan(plan, setup)
        self.plan = self._as_kept(chosen)
        with self.network.settings():
            names = tuple(self.measure_few())
        self.describe(names, setup, chosen, "")

    def use_batch_size(self, batch_size: int) -> None:
        self.network.use_batch_size(batch_size)

    def change_plan(self, **changes: Any) -> None:
        """Is measured in another plan from now on; the data set's own batches stay where they are kept."""
        self.origin = None
        self._chosen_plan = replace(self._chosen_plan, **changes)
        self.plan = self._as_kept(replace(self.plan, **changes))
        self.description = replace(self.description, plan=self.plan)

    def measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        """Measures points of the loaded plane, shape (points, axes), on this set alone and without groups."""
        rows = []
        with self.network.settings():
            for coordinates in points.tolist():
                self.network.visit(coordinates)
                rows.append(self.network.measure_batches(self.batches, self.loss, self.metrics))
        return as_columns(rows, tuple(rows[0]))

    def measure_few(self) -> dict[str, float]:
        """Measures the first batch where the network is; all, where it has no value."""
        batches = self.batches
        if len(batches) > 1:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of what a metric misses in a few samples
                    return self.network.measure_batches([batches[0]], self.loss, self.metrics)
            except Exception as error:
                # It may hold padding alone, or one class, of which a metric has no value.
                if is_memory_shortage(error):
                    raise
        return self.network.measure_batches(batches, self.loss, self.metrics)

    def measure_few_at(self, point: Sequence[float]) -> dict[str, float]:
        def measure() -> dict[str, float]:
            with self.network.settings(), self.network.visiting(point, roughly=True):
                return self.measure_few()

        return within_memory(self, measure)

    def measure_origin(self, axes: int, measure: Measure) -> OriginMeasurement:
        """Measures the loaded plane's origin over the first batch, and then as ``measure`` does."""
        size, before = self.plan.batch_size, self.measure_few_at([0.0] * axes)
        start = time.perf_counter()
        columns = within_memory(self, lambda: measure(np.zeros((1, axes))))
        if self.plan.batch_size != size:  # memory ran out, and the first batch is another one
            return self.measure_origin(axes, measure)
        return OriginMeasurement((values_at(columns, 0),), (before,), seconds=time.perf_counter() - start)

    def settle(
        self, far_points: Sequence[Sequence[float]], partition: Partition | None, measure: Measure | None = None
    ) -> None:
        """Finds out on the loaded plane how all is added up, unless another worker did, and measures the origin."""
        axes, measure = len(far_points[0]), measure or self.measure  # on this set alone
        if self.network.draws_alike:
            partition = self.partition
        size = self._chosen_plan.batch_size
        self._take(self._look_at_plane(far_points) if partition is None else partition, axes)
        if self.samples.passes is not None:
            return
        with checks.callback_errors():
            self.origin = self.measure_origin(axes, measure)
            agrees = partition is not None or self._agrees_everywhere(self.origin, axes)
        if not agrees and self._take(self._look_at_plane(far_points, may_be_few=False), axes):
            self.origin = self.measure_origin(axes, measure)
        if self._chosen_plan.batch_size != size:
            self.warn(shortage_text(size, self._chosen_plan.batch_size))
            self.description = replace(self.description, notes=(*self.description.notes, self.notes[-1]))

    def warn(self, *texts: str) -> None:
        warn_and_note(self.notes, *texts)

    def _own_batches(self) -> Partition:
        """Keeps the data set's own batches, or those in which samples without batches were read, on every plane."""

        def loss_of(batches: Sequence[Batch], candidate: Total) -> float:
            return self.network.measure_batches(batches, candidate, self.metrics)["loss"]

        batches = self.samples.all_at_once(False).own_batches
        few = batches[:1]
        try:
            whole = loss_of(few, self.candidates[0])
        except SamplesError:  # padding alone
            few = batches
            whole = loss_of(few, self.candidates[0])
        # Sums over samples where they are the loss, else what belongs to its batches.
        for index, candidate in enumerate(self.candidates):
            if candidate.splits and candidate.adds_up:
                with contextlib.suppress(SamplesError):
                    if np.isclose(loss_of(few, candidate), whole, rtol=1e-5, atol=1e-7, equal_nan=True):
                        return Partition(index, own_batches=True, at_once=False)
        return Partition(own_batches=True, at_once=False)

    def _agrees_everywhere(self, origin: OriginMeasurement, axes: int) -> bool:
        """Returns whether the partition that a few batches showed is true of all samples."""
        # A batch further on may hold padding, which only some ways to add up count rightly. So all samples are needed,
        # but not for a loss that is known to be a sum over samples.
        if self.keeps_batches or all(total.adds_up for total in self.totals):
            return True
        with self.network.settings(), self.network.visiting([0.0] * axes):
            return self._new_test().agrees(self.partition.candidate, self.plan.batch_size, origin.values[0])

    def _look_at_plane(self, far_points: Sequence[Sequence[float]], *, may_be_few: bool = True) -> Partition:
        """Looks at a plane, at more than two places where these tell nothing."""

        def visit(point: Sequence[float], is_few: bool) -> None:
            self.network.visit(point, roughly=is_few)

        # The origin, the far points, and those half way to them.
        places = [[0.0] * len(far_points[0])]
        places += [[share * coordinate for coordinate in point] for share in (1.0, 0.5, 0.25) for point in far_points]
        visits = [functools.partial(visit, point) for point in places]
        with checks.callback_errors(), self.network.settings():
            try:
                return self._find(visits, on_plane=True, may_be_few=may_be_few)
            finally:
                self.network.leave()

    def _new_test(self) -> PartitionTest:
        samples = self.network.samples_for_test(self.samples)
        closeness = checks.partition_closeness(self.network.space, samples.total, self.plan.precision)
        return PartitionTest(self.network.forward_here(), samples, self.candidates, self.metrics, closeness)

    def _find(self, visits: Sequence[Callable[[bool], None]], **options: bool) -> Partition:
        partition = self._new_test().find(visits, **options)
        if self.is_main:
            return partition
        return replace(partition, notes=tuple(note_of_set(self.name, note) for note in partition.notes))

    def _adopt(self, partition: Partition) -> None:
        self.partition = partition
        self.loss = self.candidates[partition.candidate]
        self.samples = self.samples.all_at_once(partition.own_batches and partition.at_once)

    def _take(self, partition: Partition, axes: int) -> bool:
        """Measures as a partition says from now on; returns whether it is another one than before."""
        before = self.partition
        if partition == before:
            return False
        self._adopt(partition)
        self.plan = self._as_kept(self._chosen_plan)
        with self.network.settings():
            self.network.sets_changed()
            with self.network.visiting([0.0] * axes, roughly=True):
                names = tuple(self.measure_few())
        self.description = replace(self.description, **self._settled(names))
        for text in partition.notes:
            if text not in before.notes:
                warn_user(text)
        return True

    def _as_kept(self, plan: MeasurementPlan) -> MeasurementPlan:
        return replace(plan, batch_size=None) if self.keeps_batches else plan

    def _settled(self, metrics: tuple[str, ...]) -> dict[str, Any]:
        """Returns what the partition decides of the description; groups' losses go behind the loss of all."""
        if self.keeps_samples:
            check_splits(self.loss, "keep_samples")
        if self.groups is not None:
            check_splits(self.loss)
            own = 2 if metrics[1:2] == ("loss_stderr",) else 1
            metrics = (*metrics[:own], *self.groups.names, *metrics[own:])
        return {
            "metrics": metrics,
            "samples_sha256": self.samples.sha256(with_batches=self.partition.own_batches),
            "partition_dependent": self.partition.own_batches,
            "is_sum": self.loss.is_sum,
            "plan": self.plan,
            "notes": (*self.notes, *self.partition.notes),
        }


def _holds_arrays_alone(batch: Batch) -> bool:
    parts = (part if isinstance(part, tuple) else (part,) for part in (batch.inputs, batch.targets))
    return all(item is None or is_array(item) for part in parts for item in part)
