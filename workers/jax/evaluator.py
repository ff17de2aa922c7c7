"""JAX's evaluator: one jitted function of the coordinates, in which the point itself is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
from numpy.typing import NDArray

from collectors.networks.jax_arrays import take_apart
from collectors.networks.weight_space import State, direction_dtype

from ..evaluator import MeasurementOptions, MeasurementSetup
from ..measuring import checks
from ..measuring.network_evaluator import NetworkEvaluator
from ..measuring.partition import PartitionTest
from ..measuring.totals import low_precision_note
from ..measuring.tuning import choose_batch_size, chosen_plan, plan_batches
from ..samples.array_samples import read_array_samples
from ..samples.batches import Batch
from ..samples.samples import Samples
from .functions import (
    POINTS_AT_ONCE,
    CompiledFunctions,
    Plane,
    find_device,
    measurement_settings,
    outputs_of,
    points_at_once,
    ran_out_of_memory,
)
from .losses import JaxTotal, find_metrics, make_totals
from .placement import Placement

if TYPE_CHECKING:
    from jaxtyping import Float64


_LOSSES = (
    "a loss function of (outputs, targets) written with jax.numpy, such as "
    "optax.softmax_cross_entropy_with_integer_labels"
)
# Several of these may be computing while the first is waited for.
_GROUPS_UNDER_WAY = 4


class JaxEvaluator(NetworkEvaluator):
    """Measures a JAX network (contract 2).

    Everything is compiled once for each shape of a batch. Arrays do not change in JAX, so the user's network is never
    touched.

    Args:
        model: a loss function of (outputs, targets), or an object that has one as ``loss_fn``; it returns a loss for
            each sample (as Optax's do), which has a standard error, or one number for a batch.
        network: a flax.nnx.Module or a ``collectors.jax.JaxNetwork``. One whose arrays are divided among devices
            (``jax.sharding``) stays so, and origin and directions are divided alike.
        dataset: a pair of arrays (inputs, targets), an iterable of batches of such pairs, or a PyTorch DataLoader or
            Dataset.
        metrics: name to function of (outputs, targets), which returns the same as a loss.
        setup: what is measured, and how; the threads are only noted in the plan.

    Raises:
        FrozenNetworkError: no parameter is trainable.
        SamplesError: the samples cannot be measured.
        CallbackFunctionError: the network, the loss or a metric raises, cannot be compiled, or gives the wrong shape;
            or the network is divided among devices that the worker does not have.
        TypeError: an argument has the wrong type.
        ValueError: ``buffers="recalibrate"`` is asked for.
    """

    def __init__(
        self, model: object, network: object, dataset: object, metrics: object, setup: MeasurementSetup
    ) -> None:
        loss, functions = checks.find_loss(model, _LOSSES), find_metrics(metrics)
        self._network = take_apart(network)
        self._space = self._network.space
        self._check(setup.options)
        self._samples, self._notes = read_array_samples(dataset, setup.options, setup.memory)
        device = find_device(setup.device, self._notes)
        self._placement = Placement(self._network.arrays, device, setup.devices)
        self._placed: dict[int | None, list[Batch]] = {}
        self._plane: Plane | None = None
        self._points_at_once: int | None = None
        with self._settings():
            self._own = self._place_arrays({name: np.asarray(value) for name, value in self._network.arrays.items()})
            self._here = self._own
            self._find_totals(loss, functions)
            self._warn(*low_precision_note(self._loss))
            self._plan = plan_batches(setup, fixed_batches=self._keeps_batches, choose=self._choose_batch_size)
            names = tuple(self._measure_weights(self._own))
        self._describe(self._space, names, setup, self._placement.device.platform, chosen_plan(self._plan, setup))

    def load(
        self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State] = ()
    ) -> None:
        """Puts a plane on the device."""
        wide = {info.name: direction_dtype(info.dtype) for info in self._space.trainable}
        fixed = {info.name: origin[info.name] for info in self._space.parameters if not info.trainable}
        fixed |= {info.name: buffers[info.name] for info in self._space.buffers}
        corners = ([{name: buffers[name] for name in end_buffers[0]}] if end_buffers else []) + list(end_buffers)
        between = [
            {name: np.asarray(array).astype(direction_dtype(array.dtype.name)) for name, array in corner.items()}
            for corner in corners
        ]
        with self._settings():
            self._plane = Plane(
                self._place_arrays({name: np.asarray(origin[name]).astype(dtype) for name, dtype in wide.items()}),
                [
                    self._place_arrays({name: np.asarray(direction[name], dtype) for name, dtype in wide.items()})
                    for direction in directions
                ],
                self._place_arrays(fixed),
                [self._place_arrays(corner) for corner in between],
            )
            self._points_at_once = None
            # Compiled here rather than at the first point, whose time a survey uses to forecast its own.
            jax.block_until_ready(self._start(np.zeros((1, len(directions)))))

    def measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        """Measures points of the loaded plane, shape (points, axes)."""
        points = checks.check_points(points, None if self._plane is None else len(self._plane.directions))
        columns: list[dict[str, NDArray[Any]]] = []
        under_way: list[tuple[list[Any], bool]] = []
        with self._settings():
            for group in _groups(points, self._group_size(len(points))):
                # The device computes the next groups while the host adds the values of earlier ones up.
                under_way.append((self._start(group), len(group) == 1))
                if len(under_way) >= _GROUPS_UNDER_WAY:
                    values, one_point = under_way.pop(0)
                    columns.append(self._add_up(values, one_point=one_point))
            columns += [self._add_up(values, one_point=one_point) for values, one_point in under_way]
        return {
            name: np.concatenate([column[name] for column in columns]) if columns else np.empty(0)
            for name in self.description.metrics
        }

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        """Measures one full set of weights, off the plane; the loaded plane stays in place."""
        fixed = checks.check_loaded(self._plane).fixed
        with self._settings():
            state = self._place_arrays({info.name: parameters[info.name] for info in self._space.parameters})
            names = [info.name for info in self._space.buffers]
            state |= (
                {name: fixed[name] for name in names}
                if buffers is None
                else self._place_arrays({name: buffers[name] for name in names})
            )
            return self._measure_weights(state)

    def close(self) -> None:
        """Frees the device's memory; the user's network was never touched."""
        self._plane = None
        self._placed.clear()

    def _check(self, options: MeasurementOptions) -> None:
        checks.check_movable(self._space, "let JaxNetwork's trainable be true for at least one name")
        if options.buffers == "recalibrate":
            raise ValueError(
                'buffers="recalibrate" is not available for JAX, where nothing says which of a network\'s buffers are '
                'statistics; use buffers="fixed" (the origin\'s statistics everywhere).'
            )

    def _find_totals(self, loss: Any, metrics: Mapping[str, Any]) -> None:
        """Finds out how the loss and the metrics are added up, as far as callback_fn's weights tell."""
        batch = self._samples.own_batches[0]
        with checks.callback_errors("compiled and evaluated"):
            outputs = jax.eval_shape(self._outputs, self._own, batch.inputs)
            whole, split, totals = make_totals(loss, metrics, outputs, batch)
            candidates = [whole] if split is None else [whole, split]
            self._functions = CompiledFunctions(self._network, [*candidates, *totals.values()])
            self._find_partition(self._space, candidates, totals)
        self._use_totals()

    def _use_totals(self) -> None:
        self._totals = self._functions.totals = [
            cast(JaxTotal, total) for total in (self._loss, *self._totals_of_metrics.values())
        ]

    def _new_test(self) -> PartitionTest:
        samples, closeness = _with_targets(self._samples), checks.partition_closeness(self._space, self._samples.count)
        return PartitionTest(self._forward_here(), samples, self._candidates, self._totals_of_metrics, closeness)

    def _forward_here(self) -> Callable[..., Any]:
        def run(inputs: Any, targets: Any) -> Any:
            return jax.device_get(self._functions.at_state(self._here, Batch(inputs, targets, 0)))

        return run

    def _visit(self, coordinates: Sequence[float]) -> None:
        plane = checks.check_loaded(self._plane)
        self._here = self._functions.state_at(np.asarray(coordinates, np.float64), plane)

    def _leave(self) -> None:
        self._here = self._own

    def _measure_names(self) -> tuple[str, ...]:
        self._functions = self._functions.anew()
        self._use_totals()
        self._points_at_once = None
        values = self._start(np.zeros((1, len(checks.check_loaded(self._plane)[1]))))
        return tuple(self._add_up(values, one_point=True))

    def _outputs(self, state: Mapping[str, Any], inputs: Any) -> Any:
        return outputs_of(self._network, state, inputs)

    def _start(self, coordinates: NDArray[Any]) -> list[Any]:
        """Begins to measure a few points; returns the values of each batch."""
        plane = checks.check_loaded(self._plane)
        if len(coordinates) == 1:
            return [self._functions.at_point(coordinates[0], plane, batch) for batch in self._batches()]
        return [self._functions.at_points(coordinates, plane, batch) for batch in self._batches()]

    def _add_up(self, values: Sequence[Any], *, one_point: bool) -> dict[str, NDArray[Any]]:
        sizes = [batch.size for batch in self._batches()]
        on_host = jax.device_get(list(values))
        if one_point:
            on_host = jax.tree.map(lambda leaf: leaf[None], on_host)
        columns: dict[str, NDArray[Any]] = {}
        for total in self._totals:
            columns |= total.columns([parts[total.key] for parts in on_host], sizes)
        return columns

    def _measure_weights(self, state: Mapping[str, Any]) -> dict[str, float]:
        columns = self._add_up([self._functions.at_state(state, batch) for batch in self._batches()], one_point=True)
        return {name: float(column[0]) for name, column in columns.items()}

    def _batches(self) -> list[Batch]:
        return self._placed_batches(self._plan.batch_size)

    def _placed_batches(self, batch_size: int | None) -> list[Batch]:
        """Returns the samples on the device; of batch sizes, the last one's are kept."""
        if batch_size not in self._placed:
            self._placed = {
                batch_size: [
                    Batch(self._place(batch.inputs), self._place(batch.targets), batch.size)
                    for batch in self._samples.batches(batch_size)
                ]
            }
        return self._placed[batch_size]

    def _choose_batch_size(self) -> int:
        return choose_batch_size(self._run_some, self._samples.count, ran_out_of_memory)

    def _run_some(self, batch_size: int) -> int:
        batches = self._placed_batches(batch_size)[:4]
        jax.block_until_ready([self._functions.at_state(self._own, batch) for batch in batches])
        return sum(batch.size for batch in batches)

    def _group_size(self, points: int) -> int:
        if points < POINTS_AT_ONCE or self._placement.is_kept:
            return 1
        if self._points_at_once is None:
            plane, batch = checks.check_loaded(self._plane), self._batches()[0]
            lowered = self._functions.lower_at_point(np.zeros(len(plane.directions)), plane, batch)
            self._points_at_once = points_at_once(lowered)
        return self._points_at_once

    def _settings(self) -> contextlib.AbstractContextManager[None]:
        return measurement_settings(self._placement.device)

    def _place(self, tree: Any) -> Any:
        return self._placement.place(tree)

    def _place_arrays(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        return self._placement.place_arrays(arrays)


def _with_targets(samples: Samples) -> Samples:
    """Returns the samples with the targets among the inputs: losses are computed where the network is."""
    return samples.map_batches(lambda batch: Batch((batch.inputs, batch.targets), None, batch.size))


def _groups(points: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """Yields the points in groups of that size and the rest one by one, because each size is compiled separately."""
    whole = len(points) - len(points) % size
    for start in range(0, whole, size):
        yield points[start : start + size]
    for index in range(whole, len(points)):
        yield points[index : index + 1]


EVALUATOR = JaxEvaluator
