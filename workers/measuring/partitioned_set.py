"""How the loss and the metrics of a set are added up: found out with the weights at hand, and on each plane."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from collectors.networks.weight_space import WeightSpace

from ..errors import NondeterministicLossError
from ..evaluator import OriginMeasurement, Partition
from ..samples.batches import Batch
from ..samples.samples import Passes, Samples
from . import checks
from .memory_shortage import is_memory_shortage, shortage_text
from .one_set import OneSet
from .partition import PartitionTest
from .partition_sums import agrees_on_all, best_of_own_batches
from .totals import Total

_MUST_SEE = 2  # the origin and the farthest point


class PartitionedSet(OneSet):
    """A data set that finds out itself whether its loss splits into samples, or belongs to its batches."""

    def _settle_set(self, far_points: Sequence[Sequence[float]], partition: Partition | None) -> Partition:
        partition = self._fixed_partition or partition
        chosen = self._chosen_plan.batch_size
        found = self._look_at_plane(far_points, few=True) if partition is None else partition
        if found != self._partition:
            self._take(found)
        if self._samples.passes is not None:
            return found
        with checks.callback_errors():
            self._measured_origin = self._measure_whole_origin(len(far_points[0]))
            agrees = partition is not None or self._agrees_everywhere(self._measured_origin, len(far_points[0]))
        if not agrees:
            found = self._look_at_plane(far_points, few=False)
            if found != self._partition:
                self._take(found)
                self._measured_origin = self._measure_whole_origin(len(far_points[0]))
        if self._chosen_plan.batch_size != chosen:
            self._warn(shortage_text(chosen, self._chosen_plan.batch_size))
            notes = (*self._description.notes, self._notes[-1])
            self._description = replace(self._description, notes=notes)
        return found

    def _find_partition(self, space: WeightSpace, candidates: Sequence[Total], metrics: Mapping[str, Total]) -> None:
        """Finds out with the weights that callback_fn gives how the loss is added up, as far as they tell."""
        self._space_of_test, self._candidates, self._totals_of_metrics = space, candidates, metrics
        with checks.callback_errors(), self._settings():
            if self._draws_alike:
                self._fixed_partition = self._partition = self._own_batches()
                self._adopt(self._partition)
                return
            test = self._new_test(few=True)
            test.look()
            if not test.suffices(on_plane=False):
                test = self._new_test()
                test.look()
            self._partition = self._decided(test, on_plane=False)
        self._adopt(self._partition)

    def _own_batches(self) -> Partition:
        """Keeps the data set's own batches, or those in which samples without batches were read, on every plane."""

        def run(batches: Sequence[Batch], loss: Total) -> dict[str, float]:
            return self._measure_set(batches, loss, self._totals_of_metrics)

        batches = self._samples.all_at_once(False).own_batches
        return Partition(best_of_own_batches(batches, self._candidates, run), own_batches=True, at_once=False)

    def _agrees_everywhere(self, origin: OriginMeasurement, axes: int) -> bool:
        """Returns whether the partition that a few batches showed is true of all samples."""
        # A batch further on may hold padding, which only some ways to add up count rightly. So all samples are needed,
        # but not for a loss that is known to be a sum over samples.
        totals = {"loss": self._loss, **self._totals_of_metrics}
        if self._keeps_batches or all(total.adds_up for total in totals.values()):
            return True
        samples = self._samples_for_test(self._samples)
        own, other = samples.partitions().own_and_other()
        # Our own batches are no news where they are the data set's.
        size, own_size = self._plan.batch_size, max(batch.size for batch in samples.read_batches)
        groups = other if min(size or own_size, samples.count) == own_size else own
        closeness = checks.partition_closeness(self._space_of_test, samples.total, self._plan.precision)
        with self._settings():
            self._visit([0.0] * axes)
            try:
                batches = (batch for group in groups for batch in group)
                return agrees_on_all(
                    self._forward_here(), batches, self._candidates[0], totals, origin.values[0], closeness
                )
            finally:
                self._leave()

    def _look_at_plane(self, far_points: Sequence[Sequence[float]], *, few: bool) -> Partition:
        if self._samples.passes is not None:
            return self._look_in_passes(far_points, self._samples.passes)
        with checks.callback_errors(), self._settings():
            test = self._new_test(few=few)
            try:
                for number, point in enumerate(places_to_look_at(far_points)):
                    if number >= _MUST_SEE and test.is_told:
                        break
                    try:
                        self._visit(point, roughly=few)
                        test.look()
                    except NondeterministicLossError:
                        raise
                    except Exception:
                        if number == 0:
                            raise
                        # Elsewhere a point that raises is a failed one, which ends no survey.
                if test.suffices(on_plane=True):
                    return self._decided(test, on_plane=True)
            finally:
                self._leave()
        return self._look_at_plane(far_points, few=False)

    def _look_in_passes(self, far_points: Sequence[Sequence[float]], passes: Passes) -> Partition:
        """Looks at a plane in one pass over the samples; in two where the first places show nothing."""
        visits = [functools.partial(self._visit, point) for point in places_to_look_at(far_points)]
        with checks.callback_errors(), self._settings():
            test = self._new_test()
            try:
                test.look_in_pass(visits[:_MUST_SEE], passes)
                if not test.is_told:
                    test.look_in_pass(visits[_MUST_SEE:], passes)
                return self._decided(test, on_plane=True)
            finally:
                self._leave()

    def _samples_for_test(self, samples: Samples) -> Samples:
        """Returns samples as ``_forward_here`` takes them."""
        return samples

    def _new_test(self, *, few: bool = False) -> PartitionTest:
        samples = self._samples_for_test(self._samples)
        closeness = checks.partition_closeness(self._space_of_test, samples.total, self._plan.precision)
        return PartitionTest(
            self._forward_here(), samples, self._candidates, self._totals_of_metrics, closeness, few=few
        )

    def _decided(self, test: PartitionTest, *, on_plane: bool) -> Partition:
        if self._samples.passes is not None:
            return test.decide(on_plane=on_plane, at_once=False)
        partition = test.decide(on_plane=on_plane)
        if partition.own_batches and self._samples.without_batches:
            try:
                test.try_at_once(partition.candidate)
            except Exception as error:
                if not is_memory_shortage(error):
                    raise
                partition = test.decide(on_plane=on_plane, at_once=False)
        return partition

    def _adopt(self, partition: Partition) -> None:
        self._partition = partition
        self._loss = self._candidates[partition.candidate]
        self._samples = self._samples.all_at_once(partition.own_batches and partition.at_once)

    def _take(self, partition: Partition) -> None:
        """Measures as a partition says from now on."""
        before = self._partition
        self._adopt(partition)
        size = None if self._keeps_batches else self._chosen_plan.batch_size
        self._plan = replace(self._chosen_plan, batch_size=size)
        with self._settings():
            names = self._measure_names()
        self._description = replace(
            self._description,
            metrics=self._with_groups(names),
            samples_sha256=self._samples.sha256(with_batches=partition.own_batches),
            partition_dependent=partition.own_batches,
            plan=self._plan,
            notes=(*self._notes, *partition.notes),
        )
        for text in partition.notes:
            if text not in before.notes:
                warnings.warn(text, stacklevel=4)


def places_to_look_at(far_points: Sequence[Sequence[float]]) -> Iterator[list[float]]:
    """Yields the points at which a plane is looked at: the origin, the far points, and those half way to them."""
    yield [0.0] * len(far_points[0])
    for share in (1.0, 0.5, 0.25):
        for point in far_points:
            yield [share * coordinate for coordinate in point]
