"""An evaluator for every framework whose networks take their weights as NumPy arrays, one point after another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collectors.networks.buffers_between import BuffersBetween
from collectors.networks.weight_space import State, WeightSpace, direction_dtype, move_along

from ..errors import SamplesError
from ..evaluator import MeasurementSetup
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan
from ..samples.batches import Batch
from ..samples.data_sets import ReadSet, naming_set
from ..samples.samples import Samples
from .checks import check_loaded, check_movable, check_own_precision, check_own_seeding, check_points
from .kept_samples import as_columns, as_kept
from .network_evaluator import NetworkEvaluator
from .partition_sums import add_batches, run_batches
from .totals import Total, low_precision_note
from .tuning import choose_batch_size, chosen_plan, plan_batches

if TYPE_CHECKING:
    from jaxtyping import Float64


class ArrayNetwork(Protocol):
    """A user's network, seen as arrays; what an adapter of a framework offers."""

    @property
    def space(self) -> WeightSpace:
        """The network's description."""

    @property
    def device(self) -> str:
        """The kind of device on which it computes, such as "cpu"."""

    def read(self) -> dict[str, NDArray[Any]]:
        """Returns copies of all parameters and buffers, by name."""

    def write(self, state: State) -> None:
        """Sets the named parameters and buffers, in their own element types; others stay."""

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Returns the network's outputs in eval mode, without gradients.

        Args:
            inputs: one array; several where a batch's inputs are a tuple or list.
            named_inputs: where they are a dict.
        """

    def settings(self, threads: int) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which everything is computed; the framework's own settings come back afterwards."""

    def ran_out_of_memory(self, error: Exception) -> bool:
        """Returns whether an exception means that a batch was too large."""

    def close(self) -> None:
        """Puts back everything that is not an array (train and eval modes)."""


@dataclass(frozen=True)
class Target:
    """What is measured of a network.

    Attributes:
        whole: the user's loss, batch by batch.
        split: the same as sums over samples, or None.
        name: of their data set; "" where it has none.
        further: data sets beside this one, measured by the same loss and metrics.
    """

    samples: Samples
    whole: Total
    split: Total | None
    metrics: Mapping[str, Total]
    notes: Sequence[str] = ()
    name: str = ""
    further: Sequence[ReadSet] = ()


class ArrayEvaluator(NetworkEvaluator):
    """Measures a network that takes its weights as NumPy arrays (contract 2); the network ends as it was found."""

    def __init__(self, network: ArrayNetwork, measured: Target, setup: MeasurementSetup) -> None:
        self._network = network
        self.set_name, self._samples = measured.name, measured.samples
        self._metrics = measured.metrics
        self._notes = list(measured.notes)
        self._plan = MeasurementPlan(threads=setup.threads)
        self._space = network.space
        self._found = network.read() if setup.restore_network else None
        self._axes: int | None = None
        try:
            self._check(setup.options)
            if setup.device != "cpu" and network.device == "cpu":
                self._warn(
                    f"this machine has a GPU ({setup.device}), but {self._space.framework} was set up without it, so "
                    "the network is measured on the CPU."
                )
            candidates = [measured.whole] if measured.split is None else [measured.whole, measured.split]
            self._find_partition(self._space, candidates, self._metrics)
            self._warn(*low_precision_note(self._loss))
            for item in measured.further:
                self._add_set(item.name, item.samples, candidates, self._metrics, item.notes)
            self._find_groups(setup.options)
            self._plan = plan_batches(setup, fixed_batches=self._keeps_batches, choose=self._choose_batch_size)
            with self._settings():
                names = tuple(self._measure_few())
            self._plan_sets(setup)
        except BaseException:
            self.close()
            raise
        self._describe(self._space, names, setup, network.device, chosen_plan(self._plan, setup))

    def _put(self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State]) -> None:
        """Keeps a plane, in host memory."""
        self._origin = {info.name: np.array(origin[info.name]) for info in self._space.parameters}
        self._buffers = {info.name: np.array(buffers[info.name]) for info in self._space.buffers}
        ends = [{name: np.array(array) for name, array in item.items()} for item in end_buffers]
        self._between = BuffersBetween(self._space, self._buffers, ends)
        wide = {info.name: direction_dtype(info.dtype) for info in self._space.trainable}
        self._directions = [
            {name: np.asarray(direction[name], dtype) for name, dtype in wide.items()} for direction in directions
        ]
        self._axes = len(directions)
        self._leave()

    def _measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        """Measures points of the loaded plane, shape (points, axes)."""
        points = check_points(points, self._axes)
        rows, kept = [], []
        with self._settings():
            for coordinates in points.tolist():
                self._visit(coordinates)
                values, samples = self._measure_current()
                rows.append(values)
                kept.append(samples)
        columns = {name: np.array([row[name] for row in rows], np.float64) for name in self.description.metrics}
        return {**columns, **as_columns(kept)}

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        """Measures one full set of weights, off the plane; the loaded plane stays in place."""
        check_loaded(self._axes)
        with self._settings():
            try:
                state = {info.name: parameters[info.name] for info in self._space.parameters}
                held = self._buffers if buffers is None else buffers
                self._network.write({**state, **{info.name: held[info.name] for info in self._space.buffers}})
                return self._measure_current()[0]
            finally:
                self._leave()

    def close(self) -> None:
        """Leaves the user's network as it was found, bit for bit."""
        found, self._found = self._found, None
        if found is not None:
            self._network.write(found)
            self._network.close()

    def _check(self, options: MeasurementOptions) -> None:
        check_own_precision(options.precision, self._space.framework)
        remedy = "Let the network or the loss set its seed itself each time it is called."
        check_own_seeding(options.seed_each_point, self._space.framework, remedy)
        check_movable(self._space, "let at least one parameter be trainable")
        if options.buffers == "recalibrate":
            raise ValueError(
                f'buffers="recalibrate" is not available for {self._space.framework}; use buffers="fixed" (the '
                "origin's statistics everywhere)."
            )

    def _forward_here(self) -> Callable[..., Any]:
        return self._network.forward

    def _visit(self, coordinates: Sequence[float], *, roughly: bool = False) -> None:
        moved = move_along(self._space, self._origin, self._directions, coordinates)
        self._network.write({**moved, **self._buffers, **self._between.at(coordinates)})

    def _leave(self) -> None:
        self._network.write({**self._origin, **self._buffers})

    def _measure_names(self) -> tuple[str, ...]:
        return tuple(self._measure_few())

    def _choose_batch_size(self) -> int:
        return choose_batch_size(self._run_some, self._samples.count, self._network.ran_out_of_memory)

    def _run_some(self, batch_size: int) -> int:
        batch = self._samples.batches(batch_size)[0]
        # A few samples may hold nothing but padding, which has no mean.
        with self._settings(), contextlib.suppress(SamplesError):
            run_batches(self._network.forward, [batch], self._loss, {})
        return batch.size

    def _measure_current(self) -> tuple[dict[str, float], dict[str, NDArray[Any]]]:
        """Returns the values where the network is, and the losses of samples where these are kept."""
        values: dict[str, float] = {}
        samples: dict[str, NDArray[Any]] = {}
        for item in self._sets:
            with naming_set(item.set_name):
                add_batches(self._network.forward, item.batches, totals := item.totals_at_points)
                parts = [total.pending().renamed(item.set_name, item.result_name) for total in totals]
            for part in parts:
                values |= part.read()
                samples |= {name: as_kept(losses) for name, losses in part.samples.items()}
        return values, samples

    def _measure_set(self, batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]) -> dict[str, float]:
        return run_batches(self._network.forward, batches, loss, metrics)

    def _settings(self) -> contextlib.AbstractContextManager[None]:
        return self._network.settings(self._plan.threads)
