"""An evaluator for every framework whose networks take their weights as NumPy arrays, one point after another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collectors.networks.buffers_between import BuffersBetween
from collectors.networks.weight_space import State, WeightSpace, direction_dtype, move_along
from collectors.shapes import Float64

from ..curves.curve import CurveTask, Fitting
from ..errors import CurveError, closing_on_failure
from ..evaluator import MeasurementSetup
from ..samples.batches import Batch
from ..samples.data_sets import ReadSet
from ..users_code import warn_and_note
from .checks import check_loaded, check_movable, check_own_options, check_points
from .curve_fitting import BARRIER_INSTEAD
from .measured_set import MeasuredSet
from .network_evaluator import NetworkEvaluator
from .products import check_precise
from .sample_loss import as_columns, as_kept
from .totals import Total, add_up, run_batches


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
        """Returns outputs in eval mode, without gradients, of an array, several (a tuple or list), or a dict's."""

    def settings(self, threads: int) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which everything is computed; the framework's own settings come back afterwards."""

    def close(self) -> None:
        """Puts back everything that is not an array (train and eval modes)."""


class ArrayEvaluator(NetworkEvaluator):
    """Measures a network that takes its weights as NumPy arrays (contract 2); the network ends as it was found."""

    precisions: tuple[str, ...] = ("float32",)  # in which networks can be measured

    def __init__(
        self,
        network: ArrayNetwork,
        sets: Sequence[ReadSet],  # the main one first
        candidates: Sequence[Total],  # the loss, batch by batch; where there is one, the same as sums over samples
        metrics: Mapping[str, Total],
        setup: MeasurementSetup,
        statistics: Callable[[Batch], State] | None = None,  # of normalization, of one batch; None: cannot be had
    ) -> None:
        super().__init__()
        self._options, self._statistics = setup.options, statistics
        self._network, self.space = network, network.space
        self._threads = setup.threads
        self._initial_state = network.read() if setup.restore_network else None
        self._axes: int | None = None
        with closing_on_failure(self):
            remedy = "Let the network or the loss set its seed itself each time it is called."
            check_own_options(
                setup.options,
                self.space.framework,
                remedy,
                precisions=self.precisions,
                recalibrates=statistics is not None,
            )
            check_movable(self.space, "let at least one parameter be trainable")
            if setup.device != "cpu" and network.device == "cpu":
                warn_and_note(
                    sets[0].notes,
                    f"this machine has a GPU ({setup.device}), but {self.space.framework} was set up without it, so "
                    "the network is measured on the CPU.",
                )
            self._get_sets_ready(sets, candidates, metrics, setup, network.device)

    def _put(self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State]) -> None:
        self._origin = {info.name: np.array(origin[info.name]) for info in self.space.parameters}
        self._buffers = {info.name: np.array(buffers[info.name]) for info in self.space.buffers}
        ends = [{name: np.array(array) for name, array in item.items()} for item in end_buffers]
        self._between = BuffersBetween(self.space, self._buffers, ends)
        wide = {info.name: direction_dtype(info.dtype) for info in self.space.trainable}
        self._directions = [
            {name: np.asarray(direction[name], dtype) for name, dtype in wide.items()} for direction in directions
        ]
        self._axes = len(directions)
        self.leave()

    def _measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        points = check_points(points, self._axes)
        rows = []
        with self.settings():
            for coordinates in points.tolist():
                self.visit(coordinates)
                rows.append(self._measure_each(self._measure_set))
        return as_columns(rows, self.description.metrics)

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        check_loaded(self._axes)
        with self.settings():
            try:
                state = {info.name: parameters[info.name] for info in self.space.parameters}
                given = self._buffers if buffers is None else buffers
                self._network.write({**state, **{info.name: given[info.name] for info in self.space.buffers}})
                if buffers is None:
                    self._recalibrate()
                values = self._measure_each(self._measure_set)
                return {name: values[name] for name in self.description.metrics}
            finally:
                self.leave()

    def fit_curve(self, task: CurveTask, begun: Fitting | None, seconds: float) -> Fitting:
        check_precise(self.space, CurveError, BARRIER_INSTEAD)
        before = self._network.read()
        try:
            return super().fit_curve(task, begun, seconds)
        finally:
            self._network.write(before)

    def close(self) -> None:
        initial_state, self._initial_state = self._initial_state, None
        if initial_state is not None:
            self._network.write(initial_state)
            self._network.close()

    def forward_here(self) -> Callable[..., Any]:
        return self._network.forward

    def visit(self, coordinates: Sequence[float], *, roughly: bool = False) -> None:
        moved = move_along(self.space, self._origin, self._directions, coordinates)
        self._network.write({**moved, **self._buffers, **self._between.at(coordinates)})
        if self._between.network_at(coordinates) is None:
            self._recalibrate(roughly=roughly)

    def leave(self) -> None:
        self._network.write({**self._origin, **self._buffers})

    def measure_batches(self, batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]) -> dict[str, float]:
        return run_batches(self._network.forward, batches, loss, metrics)

    def settings(self) -> contextlib.AbstractContextManager[None]:
        return self._network.settings(self._threads)

    def _recalibrate(self, *, roughly: bool = False) -> None:
        """Gives the network the mean over batches of the statistics of each."""
        if self._options.buffers != "recalibrate" or self._statistics is None:
            return
        found: dict[str, list[NDArray[Any]]] = {}
        for batch in self._batches_for_statistics(self._options, roughly):
            for name, values in self._statistics(batch).items():
                found.setdefault(name, []).append(values)
        means = {name: np.asarray(np.mean(parts, axis=0, dtype=np.float64)) for name, parts in found.items()}
        self._network.write(means)

    def _measure_set(self, item: MeasuredSet) -> dict[str, Any]:
        """Returns the values of a data set where the network is, and the losses of its samples where these are kept."""
        values: dict[str, Any] = {}
        for part in add_up(self._network.forward, item.batches, item.totals_at_points):
            values |= part.read() | {name: as_kept(losses) for name, losses in part.samples.items()}
        return values
