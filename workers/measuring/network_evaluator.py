"""What the evaluators of networks do alike: they keep to a plan, say what they measure and how a loss is added up."""

from __future__ import annotations

import contextlib
import functools
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from collectors.networks.weight_space import WeightSpace

from ..errors import NondeterministicLossError
from ..evaluator import Evaluator, EvaluatorDescription, MeasurementSetup, Partition
from ..measurement_plan import MeasurementPlan
from ..samples.samples import Passes, Samples
from ..samples.sources import hold
from . import checks
from .memory_shortage import is_memory_shortage
from .partition import PartitionTest, places_to_look_at
from .totals import Total

_MUST_SEE = 2  # the origin and the farthest point


class NetworkEvaluator(Evaluator):
    """The base of each framework's evaluator.

    Its constructor calls ``_find_partition`` before it chooses a plan, and ends with ``_describe``.
    """

    _plan: MeasurementPlan
    _chosen_plan: MeasurementPlan
    _partition: Partition
    _notes: list[str]
    _samples: Samples
    _loss: Total
    _description: EvaluatorDescription

    @property
    def description(self) -> EvaluatorDescription:
        """What this evaluator measures, and how."""
        return self._description

    def use_batch_size(self, batch_size: int) -> None:
        """Measures in smaller batches from now on."""
        self._plan = replace(self._plan, batch_size=batch_size)
        self._chosen_plan = replace(self._chosen_plan, batch_size=batch_size)
        self._description = replace(self._description, plan=self._plan)

    def settle(self, far_points: Sequence[Sequence[float]], partition: Partition | None = None) -> Partition:
        """Finds out on the loaded plane how the loss and the metrics are added up."""
        if partition is None:
            partition = self._look_at_plane(far_points)
        if partition != self._partition:
            self._take(partition)
        return partition

    def held_samples(self) -> bytes | None:
        """Returns what other workers of this machine need to use this one's samples; None where they cannot."""
        return hold(self._samples)

    @abstractmethod
    def _forward_here(self) -> Callable[..., Any]:
        """Returns the network where it was moved to last, not compiled for one shape of batches."""

    @abstractmethod
    def _visit(self, coordinates: Sequence[float]) -> None:
        """Moves the network to a point of the loaded plane."""

    @abstractmethod
    def _leave(self) -> None:
        """Moves the network back to the plane's origin."""

    @abstractmethod
    def _measure_names(self) -> tuple[str, ...]:
        """Gets ready for the chosen loss and plan, and returns the names of what is measured."""

    @abstractmethod
    def _settings(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which everything is computed."""

    def _find_partition(self, space: WeightSpace, candidates: Sequence[Total], metrics: Mapping[str, Total]) -> None:
        """Finds out with the weights that callback_fn gives how the loss is added up, as far as they tell.

        Args:
            space: the network's description.
            candidates: the ways to add the loss up; the first is for a loss that belongs to its batches.
            metrics: by name.
        """
        self._space_of_test, self._candidates, self._totals_of_metrics = space, candidates, metrics
        with checks.callback_errors(), self._settings():
            test = self._new_test()
            test.look()
            self._partition = self._decided(test, on_plane=False)
        self._adopt(self._partition)

    def _look_at_plane(self, far_points: Sequence[Sequence[float]]) -> Partition:
        if self._samples.passes is not None:
            return self._look_in_passes(far_points, self._samples.passes)
        with checks.callback_errors(), self._settings():
            test = self._new_test()
            try:
                for number, point in enumerate(places_to_look_at(far_points)):
                    if number >= _MUST_SEE and test.is_told:
                        break
                    try:
                        self._visit(point)
                        test.look()
                    except NondeterministicLossError:
                        raise
                    except Exception:
                        if number == 0:
                            raise
                        # Elsewhere a point that raises is a failed one, which ends no survey.
                return self._decided(test, on_plane=True)
            finally:
                self._leave()

    def _look_in_passes(self, far_points: Sequence[Sequence[float]], passes: Passes) -> Partition:
        """Does the same in one pass over the samples; in two where the first places tell nothing."""
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

    def _new_test(self) -> PartitionTest:
        closeness = checks.partition_closeness(self._space_of_test, self._samples.total)
        return PartitionTest(self._forward_here(), self._samples, self._candidates, self._totals_of_metrics, closeness)

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
            metrics=names,
            samples_sha256=self._samples.sha256(with_batches=partition.own_batches),
            partition_dependent=partition.own_batches,
            plan=self._plan,
            notes=(*self._notes, *partition.notes),
        )
        for text in partition.notes:
            if text not in before.notes:
                warnings.warn(text, stacklevel=4)

    @property
    def _keeps_batches(self) -> bool:
        return self._partition.own_batches or not self._samples.can_be_cut

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
            metrics=metrics,
            num_samples=self._samples.total,
            samples_sha256=self._samples.sha256(with_batches=self._partition.own_batches),
            options=setup.options,
            partition_dependent=self._partition.own_batches,
            plan=self._plan,
            device=device,
            notes=(*self._notes, *self._partition.notes),
            streamed=self._samples.passes is not None,
        )
