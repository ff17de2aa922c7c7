"""JAX's evaluator: one jitted function of the coordinates, in which the point itself is computed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np
from numpy.typing import NDArray

from collectors.networks.buffers_between import BuffersBetween
from collectors.networks.jax_network import take_apart
from collectors.networks.weight_space import State, direction_dtype
from collectors.shapes import Float64

from ..curvature.products import ProductSettings
from ..evaluator import DENOMINATORS, NUMERATORS, MeasurementSetup
from ..measurement_options import MeasurementOptions
from ..measuring import checks
from ..measuring.measured_set import MeasuredSet
from ..measuring.network_evaluator import NetworkEvaluator
from ..measuring.sample_loss import values_at
from ..measuring.totals import Total
from ..metric_names import SAMPLE_LOSSES
from ..samples.array_samples import read_array_samples
from ..samples.batches import Batch
from ..samples.data_sets import ReadSet, naming_set, read_sets
from ..samples.samples import Samples
from ..users_code import warn_and_note
from .functions import POINTS_AT_ONCE, CompiledFunctions, Placement, Plane, find_device, outputs_of
from .losses import JaxTotal, SampleTotal, find_metrics, make_totals
from .products import JaxProducts

_LOSSES = (
    "a loss function of (outputs, targets) written with jax.numpy, such as "
    "optax.softmax_cross_entropy_with_integer_labels"
)
_KEYS = (
    "JAX draws from keys: a network or a loss that is given the same key, such as one that is made in callback_fn, "
    "draws the same numbers at every point without it."
)
_STATISTICS = (
    'buffers="recalibrate" needs to know how this network updates its statistics: give JaxNetwork(..., update='
    'functools.partial(model.apply, train=True, mutable=["batch_stats"])), or use buffers="fixed" (the origin\'s '
    "statistics everywhere)."
)
# Several of these may be computing while the first is waited for.
_GROUPS_UNDER_WAY = 4


class JaxEvaluator(NetworkEvaluator):
    """Measures a JAX network (contract 2), compiled once for each shape of a batch.

    Args:
        model: a loss function of (outputs, targets), or an object that has one as ``loss_fn``; it returns a loss for
            each sample (as Optax's do), which has a standard error, or one number for a batch.
        network: a flax.nnx.Module or a ``collectors.jax.JaxNetwork``. One whose arrays are divided among devices
            (``jax.sharding``) stays so, and origin and directions are divided alike.
        dataset: a pair of arrays (inputs, targets), an iterable of batches of such pairs, or a PyTorch DataLoader or
            Dataset; or a mapping of several of these by name.
        metrics: name to function of (outputs, targets), which returns what a loss returns.
        setup: what is measured, and how; the threads are only noted in the plan.
    """

    def __init__(
        self, model: object, network: object, dataset: object, metrics: object, setup: MeasurementSetup
    ) -> None:
        super().__init__()
        loss, functions = checks.find_loss(model, _LOSSES), find_metrics(metrics)
        self._network = take_apart(network)
        self.space = self._network.space
        checks.check_own_options(setup.options, "JAX", _KEYS, recalibrates=True)
        self._recalibrates = setup.options.buffers == "recalibrate" and bool(self.space.buffers)
        if self._recalibrates and self._network.update is None:
            raise ValueError(_STATISTICS)
        checks.check_movable(self.space, "let JaxNetwork's trainable be true for at least one name")
        sets = read_sets(dataset, setup.options, setup.memory, read_array_samples)
        device = find_device(setup.device, sets[0].notes)
        self._placement = Placement(self._network.arrays, device, setup.devices)
        self._placed: dict[str, tuple[int | None, list[Batch]]] = {}
        self._plane: Plane | None = None
        self._points_at_once: dict[str, int] = {}
        with self.settings():
            arrays = {name: np.asarray(value) for name, value in self._network.arrays.items()}
            self._state = self._initial_state = self._placement.place_arrays(arrays)
            batch = sets[0].samples.own_batches[0]
            with checks.callback_errors("compiled and evaluated"):
                run = functools.partial(outputs_of, self._network)
                outputs = jax.eval_shape(run, self._initial_state, batch.inputs)
                candidates, totals = make_totals(loss, functions, outputs, batch)
            self._functions = CompiledFunctions(self._network, [*candidates, *totals.values()])
            self._prepare_statistics(sets[0], setup.options)
        self._get_sets_ready(sets, candidates, totals, setup, self._placement.device.platform)

    def _put(self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State]) -> None:
        wide = {info.name: direction_dtype(info.dtype) for info in self.space.trainable}
        fixed = {info.name: origin[info.name] for info in self.space.parameters if not info.trainable}
        fixed |= {info.name: buffers[info.name] for info in self.space.buffers}
        self._between = between = BuffersBetween(self.space, buffers, end_buffers)
        types = {name: direction_dtype(array.dtype.name) for name, array in between.networks[0].items()}
        corners = [{name: array.astype(types[name]) for name, array in corner.items()} for corner in between.corners]
        place = self._placement.place_arrays
        with self.settings():
            self._plane = Plane(
                place({name: np.asarray(origin[name]).astype(dtype) for name, dtype in wide.items()}),
                [place({name: np.asarray(item[name], dtype) for name, dtype in wide.items()}) for item in directions],
                place(fixed),
                [place(corner) for corner in corners],
                dict.fromkeys(between.vectors, 0),
                [place(network) for network in between.networks if network],
            )
            # Compiled here rather than at the first point, whose time a survey uses to forecast its own.
            self.sets_changed()

    def _measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        points = checks.check_points(points, None if self._plane is None else len(self._plane.directions))
        with self.settings():
            return self._measure_each(lambda item: self._measure_points(item, points))

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        fixed, place = checks.check_loaded(self._plane).fixed, self._placement.place_arrays
        with self.settings():
            state = place({info.name: parameters[info.name] for info in self.space.parameters})
            found = {info.name: (fixed if buffers is None else buffers)[info.name] for info in self.space.buffers}
            state |= found if buffers is None else place(found)
            if buffers is None:
                state = self._settled(state)
            return self._measure_each(
                lambda item: self._values_of(state, self._placed_batches(item), item.totals, item)
            )

    def products(self, settings: ProductSettings) -> JaxProducts:
        return JaxProducts(self._network, self._main, self._placement, self.settings, settings)

    def close(self) -> None:
        """Frees the device's memory; the user's network was never touched."""
        self._plane = None
        self._placed.clear()

    def _prepare_statistics(self, read: ReadSet, options: MeasurementOptions) -> None:
        batches = read.samples.batches(options.recalibration_batch_size) if self._recalibrates else []
        if options.buffers == "recalibrate":
            warn_and_note(read.notes, *checks.check_recalibration(self._recalibrates, batches))
        self._statistics_batches = self._place_batches([batch for batch in batches if batch.size > 1])
        if self._recalibrates:
            with checks.callback_errors("compiled and evaluated"):
                self._functions.find_statistics(self._state, self._statistics_batches[0])

    def _settled(self, state: dict[str, Any]) -> dict[str, Any]:
        return self._functions.recalibrated(state, self._statistics_batches) if self._recalibrates else state

    def _state_at(self, coordinates: NDArray[Any]) -> dict[str, Any]:
        """Returns the arrays at a point, with the statistics that count there."""
        state = self._functions.state_at(coordinates, checks.check_loaded(self._plane))
        return state if self._between.network_at(coordinates.tolist()) is not None else self._settled(state)

    @property
    def _keys(self) -> tuple[str, ...]:
        # At points only what some data set needs is computed.
        return tuple(dict.fromkeys(cast(JaxTotal, total).key for item in self._sets for total in item.totals))

    def samples_for_test(self, samples: Samples) -> Samples:
        # With the targets among the inputs: losses are computed where the network is.
        return samples.map_batches(lambda batch: Batch((batch.inputs, batch.targets), None, batch.size))

    def forward_here(self) -> Callable[..., Any]:
        """Returns the function from inputs and targets to what each candidate needs to know of a batch."""

        def run(inputs: Any, targets: Any) -> Any:
            return jax.device_get(self._functions.at_state(self._state, Batch(inputs, targets, 0)))

        return run

    def visit(self, coordinates: Sequence[float], *, roughly: bool = False) -> None:
        self._state = self._state_at(np.asarray(coordinates, np.float64))

    def leave(self) -> None:
        self._state = self._initial_state

    def sets_changed(self) -> None:
        self._points_at_once, axes = {}, len(checks.check_loaded(self._plane).directions)
        for item in self._sets:
            with naming_set(item.name):
                batches = self._placed_batches(item)
                first_and_last = batches[:: max(len(batches) - 1, 1)]
                jax.block_until_ready(self._start(np.zeros((1, axes)), first_and_last))

    def _measure_points(self, item: MeasuredSet, points: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Returns the values of a data set at points, shape (points, axes), by the metric's own name."""
        columns: list[dict[str, NDArray[Any]]] = []
        under_way: list[tuple[list[Any], bool]] = []
        batches = self._placed_batches(item)
        add_up = functools.partial(_add_up, batches=batches, totals=item.totals, item=item)
        size = self._group_size(item, len(points))
        whole = len(points) - len(points) % size
        # The rest are measured one by one, because each size is compiled separately.
        for group in (*points[:whole].reshape(whole // size, size, points.shape[1]), *points[whole:, None]):
            # The device computes the next groups while the host adds the values of earlier ones up.
            under_way.append((self._start(group, batches), len(group) == 1))
            if len(under_way) >= _GROUPS_UNDER_WAY:
                columns.append(add_up(*under_way.pop(0)))
        columns += [add_up(*group) for group in under_way]
        return {
            name: np.concatenate([column[name] for column in columns]) if columns else np.empty(0)
            for name in (*item.description.metrics, *([SAMPLE_LOSSES] if item.keeps_samples and columns else []))
        }

    def _start(self, coordinates: NDArray[Any], batches: Sequence[Batch]) -> list[Any]:
        """Begins to measure a few points on batches; returns the values of each."""
        plane, keys = checks.check_loaded(self._plane), self._keys
        if self._recalibrates:
            state = self._state_at(coordinates[0])
            return [self._functions.at_state(state, batch) for batch in batches]
        return [self._functions.at_points(coordinates, plane, batch, keys) for batch in batches]

    def measure_batches(self, batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]) -> dict[str, float]:
        return self._values_of(self._state, self._place_batches(batches), [loss, *metrics.values()])

    def _values_of(
        self,
        state: Mapping[str, Any],
        batches: Sequence[Batch],
        totals: Sequence[Total],
        item: MeasuredSet | None = None,
    ) -> dict[str, float]:
        values = [self._functions.at_state(state, batch) for batch in batches]
        return values_at(_add_up(values, True, batches, totals, item), 0)

    def _sums_of_samples(self, item: MeasuredSet, points: Float64[np.ndarray, "points axes"]) -> dict[str, Any]:
        loss = item.loss
        assert isinstance(loss, SampleTotal)
        with self.settings():
            batches = self._placed_batches(item)
            values_of_points = [_read_back(self._start(point[None], batches), True) for point in points]
        sizes = [batch.size for batch in batches]
        sums = [loss.sample_sums([parts[loss.key] for parts in values], sizes) for values in values_of_points]
        return {NUMERATORS: np.concatenate([numerators for numerators, _ in sums]), DENOMINATORS: sums[0][1]}

    def _placed_batches(self, item: MeasuredSet) -> list[Batch]:
        """Returns the samples of a data set on the device; of batch sizes, the last one's are kept."""
        batch_size = item.plan.batch_size
        if item.name not in self._placed or self._placed[item.name][0] != batch_size:
            self._placed.pop(item.name, None)
            self._placed[item.name] = (batch_size, self._place_batches(item.samples.batches(batch_size)))
        return self._placed[item.name][1]

    def _place_batches(self, batches: Sequence[Batch]) -> list[Batch]:
        place = self._placement.place
        return [Batch(place(batch.inputs), place(batch.targets), batch.size) for batch in batches]

    def _group_size(self, item: MeasuredSet, points: int) -> int:
        if points < POINTS_AT_ONCE or self._placement.is_kept or self._recalibrates:
            return 1
        if item.name not in self._points_at_once:
            plane, batch = checks.check_loaded(self._plane), self._placed_batches(item)[0]
            self._points_at_once[item.name] = self._functions.points_at_once(plane, batch, self._keys)
        return self._points_at_once[item.name]

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """On the device, in full float32 precision; NaN is a value like any other."""
        precision = jax.default_matmul_precision("highest")
        with jax.default_device(self._placement.device), precision, jax.debug_nans(False), jax.debug_infs(False):
            yield


def _add_up(
    values: list[Any], one_point: bool, batches: Sequence[Batch], totals: Sequence[Total], item: MeasuredSet | None
) -> dict[str, NDArray[Any]]:
    """Returns the values of totals at points, and those of an item's groups and samples where it is given."""
    on_host, sizes = _read_back(values, one_point), [batch.size for batch in batches]
    columns: dict[str, NDArray[Any]] = {}
    for total in totals:
        assert isinstance(total, JaxTotal)
        columns |= total.columns([parts[total.key] for parts in on_host], sizes, item)
    return columns


def _read_back(values: list[Any], one_point: bool) -> Any:
    on_host = jax.device_get(values)
    return jax.tree.map(lambda leaf: leaf[None], on_host) if one_point else on_host


EVALUATOR = JaxEvaluator
