"""A data set that is measured beside the main one, wherever the network was moved for that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from collectors.networks.weight_space import WeightSpace

from ..evaluator import MeasurementSetup, Partition
from ..measurement_plan import MeasurementPlan
from ..metric_names import name_in_set
from ..samples.batches import Batch
from ..samples.data_sets import note_of_set
from ..samples.samples import Samples
from .partition import PartitionTest
from .partitioned_set import PartitionedSet
from .totals import Total
from .tuning import chosen_plan

if TYPE_CHECKING:
    from jaxtyping import Float64


class _Visit(Protocol):
    def __call__(self, coordinates: Sequence[float], *, roughly: bool = False) -> None:
        """Moves the network to a point of the loaded plane."""


@dataclass(frozen=True)
class MovedNetwork:
    """The network that an evaluator moves, as its other data sets see it; each is what ``PartitionedSet`` says.

    Attributes:
        forward_here: returns it where it is.
        visit: moves it.
        leave: moves it back to the plane's origin.
        measure: measures batches with a loss and metrics, where it is.
        samples_for_test: returns samples as ``forward_here`` takes them.
        use_batch_size: lets all data sets be measured in smaller batches.
        draws_alike: whether the same random numbers are drawn at every point.
    """

    space: WeightSpace
    forward_here: Callable[[], Callable[..., Any]]
    visit: _Visit
    leave: Callable[[], None]
    settings: Callable[[], contextlib.AbstractContextManager[None]]
    measure: Callable[[Sequence[Batch], Total, Mapping[str, Total]], dict[str, float]]
    samples_for_test: Callable[[Samples], Samples]
    use_batch_size: Callable[[int], None]
    draws_alike: bool = False


class FurtherSet(PartitionedSet):
    """A data set beside the main one: its own samples, sums and partition, on the main one's network and plan."""

    def __init__(
        self,
        name: str,
        network: MovedNetwork,
        samples: Samples,
        candidates: Sequence[Total],
        metrics: Mapping[str, Total],
        plan: MeasurementPlan,
        notes: Sequence[str] = (),
    ) -> None:
        self.set_name, self._network, self._samples = name, network, samples
        self._notes = [note_of_set(name, note) for note in notes]
        self._plan = plan
        self._draws_alike = network.draws_alike
        self._find_partition(
            network.space,
            [total.fresh() for total in candidates],
            {metric: total.fresh() for metric, total in metrics.items()},
        )

    def take_plan(self, plan: MeasurementPlan, setup: MeasurementSetup, samples: Samples) -> None:
        """Is measured from now on in the plan that was chosen for the main data set; samples are in its layout."""
        self._samples = samples
        chosen = chosen_plan(plan, setup)
        self._plan = replace(chosen, batch_size=None) if self._keeps_batches else chosen
        with self._settings():
            names = self._measure_names()
        self._describe(self._network.space, names, setup, "", chosen)

    def result_name(self, metric: str) -> str:
        """Returns under which name a metric of this set is stored."""
        return name_in_set(metric, self.set_name)

    def measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        """Measures points of the loaded plane, shape (points, axes), on this set alone and without groups."""
        rows = []
        with self._settings():
            for coordinates in points.tolist():
                self._visit(coordinates)
                rows.append(self._measure_batches(self.batches))
        return {name: np.array([row[name] for row in rows], np.float64) for name in rows[0]}

    def use_batch_size(self, batch_size: int) -> None:
        """Measures in smaller batches from now on, as all sets."""
        self._network.use_batch_size(batch_size)

    def _forward_here(self) -> Callable[..., Any]:
        return self._network.forward_here()

    def _visit(self, coordinates: Sequence[float], *, roughly: bool = False) -> None:
        self._network.visit(coordinates, roughly=roughly)

    def _leave(self) -> None:
        self._network.leave()

    def _measure_names(self) -> tuple[str, ...]:
        return tuple(self._measure_few())

    def _measure_batches(self, batches: Sequence[Batch]) -> dict[str, float]:
        return self._network.measure(batches, self._loss, self._totals_of_metrics)

    def _measure_set(self, batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]) -> dict[str, float]:
        return self._network.measure(batches, loss, metrics)

    def _settings(self) -> contextlib.AbstractContextManager[None]:
        return self._network.settings()

    def _samples_for_test(self, samples: Samples) -> Samples:
        return self._network.samples_for_test(samples)

    def _decided(self, test: PartitionTest, *, on_plane: bool) -> Partition:
        found = super()._decided(test, on_plane=on_plane)
        return replace(found, notes=tuple(note_of_set(self.set_name, note) for note in found.notes))
