"""PyTorch's evaluator: eval mode, forward only, on a fixed set of samples, the network moved in place."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from collectors.networks.batches import call_network
from collectors.networks.readers import without_average
from collectors.networks.torch_network import check_shapes, unwrap
from collectors.networks.weight_space import State
from collectors.shapes import Float64

from ..curvature.products import ProductSettings, ShareProducts
from ..curves.curve import CurveTask, Fitting
from ..errors import closing_on_failure
from ..evaluator import MeasurementSetup
from ..measurement_plan import MeasurementPlan
from ..measuring import checks
from ..measuring.curve_fitting import CurveSamples
from ..measuring.measured_set import MeasuredSet
from ..measuring.memory_shortage import shortage_text
from ..measuring.network_evaluator import NetworkEvaluator
from ..measuring.sample_loss import as_columns
from ..measuring.streamed import StreamedMeasurement
from ..measuring.totals import Total, add_up
from ..samples.batches import Batch
from ..samples.data_sets import ReadSet, naming_set, read_sets
from ..samples.samples import Samples
from ..samples.torch_samples import moved_on_use_note, place_samples
from ..users_code import warn_and_note as warn
from .compiled.first_layer import FirstLayer
from .derivatives.curve_fitting import TorchCurveFitter, check_fitting
from .derivatives.network import DifferentiatedNetwork
from .derivatives.products import TorchProducts, check_products
from .derivatives.weight_copies import SAMPLES_TRIED, weight_copies_warning
from .forward import ForwardPass
from .gradients import Gradients, without_graph
from .losses import (
    OutputMetric,
    OwnMetric,
    PendingPoint,
    make_metrics,
    own_loss_of,
    pending_point,
    place_loss,
    read_points,
)
from .moves import NetworkInPlace
from .placement import bring_weights, device_of, find_placement
from .planning import NetworkPlanning, few_within_memory
from .settings import (
    SAME_DRAWS,
    RandomNumbers,
    at_least_float32,
    check_at_hand,
    check_precision,
    measurement_settings,
    normalization_layers,
    recalibrate,
    with_float32_weights,
)
from .snapshot import NetworkSnapshot
from .user_data import changes_batches, copied, read_user_data

_LOSSES = "a Model with a loss_fn or a loss function of (outputs, targets)"
_NOT_COMPILED: Mapping[str, Any] = {"compile": False, "compiler": ""}


class TorchEvaluator(NetworkEvaluator):
    """Measures a PyTorch network (contract 2).

    Args:
        model: a Model (its ``loss_fn`` counts), a loss function of (outputs, targets), or, for a network that computes
            its own loss of a whole batch, an ``OwnLoss`` or None.
        network: the network; it ends as it was found. One that is spread over devices stays where it is, and each
            parameter is moved there; any other is put on the setup's device.
        dataset: a DataLoader, Dataset, pair of tensors, or iterable of (inputs, targets); of any batches for a network
            that computes its own loss. Or a mapping of several of these by name.
        metrics: name to torchmetrics object or function of (outputs, targets), or of (outputs, batch).
        setup: what is measured, and how.
    """

    _forward: Callable[..., Any]
    _first_layer: FirstLayer | None
    _changes_batches = False

    def __init__(
        self, model: object, network: nn.Module, dataset: object, metrics: object, setup: MeasurementSetup
    ) -> None:
        super().__init__()
        self._options = options = setup.options
        self._module = unwrap(cast(nn.Module, without_average(network)))
        self._placement = find_placement(self._module, setup.device, setup.devices)
        # Of batches; and of outputs, until a network that is spread over devices shows where it has them.
        self._device = self._outputs_device = self._placement.inputs
        self._threads = setup.threads
        self._snapshots: list[NetworkSnapshot] = []
        self._brought = contextlib.ExitStack()  # of weights that were offloaded
        self._own_loss = own_loss_of(model, self._module)
        loss = place_loss(checks.find_loss(model, _LOSSES), self._device) if self._own_loss is None else None
        self._metrics = make_metrics(metrics, self._device, OutputMetric if self._own_loss is None else OwnMetric)
        self.draws_alike = options.seed_each_point
        self._numbers = RandomNumbers(options.seed if self.draws_alike else None, self._placement.devices)
        memory = replace(setup.memory, obstacle=SAME_DRAWS if self.draws_alike else "")
        read = functools.partial(read_user_data, network=self._module, own_loss=self._own_loss)
        main, *further = read_sets(dataset, options, memory, read)
        self._gradients = Gradients((self._module, loss), restore=setup.restore_network)
        with closing_on_failure(self):
            self._take_over(self._module, setup.restore_network)
            if self._placement.is_kept:
                bring_weights(self._module, self._brought, restore=setup.restore_network)
            self._moves = NetworkInPlace(self._module)
            self.space = self._moves.space
            checks.check_movable(self.space, "set requires_grad=True on the parameters that training moves")
            check_precision(options.precision, self._placement.devices, self.space)
            self._forward_pass = ForwardPass(self._own_loss, options, self._placement.devices, self._gradients)
            if self._placement.is_kept and loss is not None:
                batch = self._placed(main.samples).own_batches[0]
                warn(main.notes, *self._gradients.retried(functools.partial(self._find_outputs, batch))[1])
                loss = place_loss(loss, self._outputs_device)
                self._metrics = make_metrics(metrics, self._outputs_device)
            if isinstance(loss, nn.Module):
                check_shapes("loss", loss)
                self._take_over(loss, setup.restore_network)
            self._user_loss = None if loss is None else with_float32_weights(loss)
            self._normalization = normalization_layers(self._module)
            self._find_way(main)
            self._moves.check_in_place(self._module)
            if not self._placement.is_kept and not self._gradients.are_on:  # such a loss may leave gradients in it
                batch = self._main.samples.batches(None if self._main.keeps_batches else SAMPLES_TRIED)[0]
                self._main.warn(*filter(None, [weight_copies_warning(self._differentiated(), batch, self.space)]))
            self._add_sets(further)
            names = self._choose_plan(setup)
            if (passes := self._main.samples.passes) is not None:
                size = sum(info.size for info in self.space.parameters) * torch.float32.itemsize
                self._passes = StreamedMeasurement(
                    passes, lambda: self._forward, lambda part: part.batches(self._main.batch_size), size
                )
            self._describe(names, setup, self._placement.kinds)

    def _put(self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State]) -> None:
        with torch.no_grad():
            self._moves.load(origin, directions, buffers, end_buffers)
            if self._first_layer is not None:
                self._first_layer.load((origin, *directions))
        self._prepare_first_layer()

    def _measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        points = checks.check_points(points, self._moves.axes)
        with self.settings():
            if self._passes is not None:
                rows = self._passes.measure(points.tolist(), self.visit, self._main.totals)
            else:
                # A device goes on to the next point while this one is computed; nothing is read before the last.
                rows = read_points([self._measure_point(coordinates) for coordinates in points.tolist()])
        return as_columns(rows, self.description.metrics)

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        checks.check_loaded(self._moves.axes)

        def put() -> None:
            torch.clear_autocast_cache()
            self._moves.set_state(parameters, buffers)

        with self.settings():
            try:
                if self._passes is not None:
                    return self._passes.measure_one(put, self._main.totals)
                put()
                if buffers is None:
                    self._treat_buffers()
                (values,) = read_points([self._pending()])
                return {name: values[name] for name in self.description.metrics}
            finally:
                self._moves.return_to_origin()

    def products(self, settings: ProductSettings) -> ShareProducts:
        check_products(settings, self._placement, self._main.samples, self._own_loss, self._gradients)
        return TorchProducts(self._differentiated(), settings)

    def fit_curve(self, task: CurveTask, begun: Fitting | None, seconds: float) -> Fitting:
        check_fitting(self._placement, self._main.samples)
        samples = CurveSamples(self._main.samples, self._main.keeps_batches, task.settings)
        with contextlib.closing(TorchCurveFitter(self._differentiated(), samples, task)) as fitter:
            return fitter.fit(begun, seconds)

    def _differentiated(self) -> DifferentiatedNetwork:
        main = self._main
        # Derivatives are of what is computed in float32, and in one pass that keeps its graph.
        plain = ForwardPass(self._own_loss, replace(self._options, precision="float32"), self._placement.devices)
        return DifferentiatedNetwork(
            self._module,
            plain.of(self._module),
            plain.ways_to_add_up(self._user_loss, main.samples.own_batches)[main.partition.candidate],
            main.samples.batches,
            main.batch_size,
            lambda: self._numbers.kept(measurement_settings(self._placement.devices, self._threads)),
            self._placement.devices,
            self._numbers.start_batch,
        )

    def use_batch_size(self, batch_size: int) -> None:
        super().use_batch_size(batch_size)
        if self._placement.uses_cuda:
            torch.cuda.empty_cache()
        if self._first_layer is not None or (self._placement.uses_cuda and self._main.plan.compile):
            # What is kept goes first: the layer takes more than a batch, and a CUDA graph its memory for ever.
            self._first_layer = None
            changes: dict[str, Any] = {"first_layer": False}
            if self._main.plan.compile:
                self._forward = self._settled_forward = self.forward_here()
                changes |= {**_NOT_COMPILED, "reason": "not compiled: memory ran out"}
            self._main.change_plan(**changes)

    def use_one_thread(self) -> None:
        """Measures with one thread from here on, but for compiled code, which keeps those that it was compiled for."""
        if not self._main.plan.compile:
            self._threads = 1
            for item in self._sets:
                item.change_plan(threads=1)

    def close(self) -> None:
        self._gradients.close()
        while self._snapshots:
            self._snapshots.pop().restore()  # the last first: a loss may hold the network
        self._brought.close()

    def _find_way(self, read: ReadSet) -> None:
        """Finds out how the loss of the main data set is added up, as far as callback_fn's weights tell."""
        samples = self._placed(read.samples).map_targets(at_least_float32)
        warn(read.notes, *filter(None, [self._placement.note, moved_on_use_note(samples, self._device)]))
        if self._options.buffers == "recalibrate":
            batches = samples.batches(self._options.recalibration_batch_size)
            check_at_hand(self._normalization)
            warn(read.notes, *checks.check_recalibration(bool(self._normalization), batches))
        plan = MeasurementPlan(threads=self._threads, precision=self._options.precision)

        def find() -> Total:
            candidates = self._forward_pass.ways_to_add_up(self._user_loss, samples.own_batches)
            self._forward = self.forward_here()
            with self.settings():
                measure = functools.partial(self.measure_batches, loss=candidates[0], metrics=self._metrics)
                self._changes_batches = changes_batches(lambda batch: measure([batch]), samples)
            used = self._copied_on_use(samples)
            self._sets = [MeasuredSet(self, read.name, used, candidates, self._metrics, plan, read.notes)]
            return self._main.loss

        notes, more = self._gradients.retried(functools.partial(self._forward_pass.find_in_float32, find))
        warn(read.notes, *more, *notes)

    def _add_sets(self, further: Sequence[ReadSet]) -> None:
        for item in further:
            samples = self._placed(item.samples).map_targets(at_least_float32)
            self._main.warn(*filter(None, [moved_on_use_note(samples, self._device)]))
            candidates = self._forward_pass.ways_to_add_up(self._user_loss, samples.own_batches)
            self._add_set(replace(item, samples=samples), candidates, self._metrics)
        self._find_groups(self._options)

    def _choose_plan(self, setup: MeasurementSetup) -> tuple[str, ...]:
        """Chooses how the network is run, within memory; returns the names of what is measured."""
        main = self._main
        planning = NetworkPlanning(self._module, self._placement, self._forward_pass, self.settings, self._sets)
        moved = any(item.samples.moved_on_use for item in self._sets)
        on_host = self._options.buffers == "recalibrate" or self._placement.is_kept or moved
        on_host |= main.samples.passes is not None or self.draws_alike or self._gradients.are_on
        self._forward, self._first_layer = planning.choose(setup, self._moves, self._placed, on_host=on_host)
        self._settled_forward, self._settled_for_own_batches = self._forward, main.keeps_batches
        self._threads, before = main.plan.threads, main.plan.batch_size
        with self.settings():
            names = few_within_memory(main)
            if main.plan.batch_size != before:
                main.warn(shortage_text(before, main.plan.batch_size))
            self._plan_sets(setup, functools.partial(self._placed, channels_last=main.plan.channels_last))
        main.notes += self._numbers.notes(main.samples.own_batches)
        return names

    def _prepare_first_layer(self) -> None:
        if self._first_layer is not None:
            with self.settings():
                try:
                    stay = [item for item in self._sets if not item.samples.is_changed_on_use]
                    batches = [batch for item in stay for batch in item.batches]
                    self._first_layer.prepare(batches, compiled=self._main.plan.compile)
                finally:
                    self._moves.return_to_origin()

    def _take_over(self, module: nn.Module, restore: bool) -> None:
        """Puts the network, or a loss that is a module, where it computes, in eval mode."""
        device: torch.device | None = self._outputs_device
        if self._placement.is_kept:
            own = {id(parameter) for parameter in self._module.parameters()}
            # A loss may hold the network (a penalty on its weights), and must not take it along.
            device = None if any(id(parameter) in own for parameter in module.parameters()) else device
        self._snapshots.append(NetworkSnapshot(module, device, restore=restore))
        self._snapshots[-1].apply()

    def _placed(self, samples: Samples, *, channels_last: bool = False) -> Samples:
        return self._copied_on_use(place_samples(samples, self._device, channels_last, self._outputs_device))

    def _copied_on_use(self, samples: Samples) -> Samples:
        return samples.changed_on_use(copied, copies=True) if self._changes_batches else samples

    def _find_outputs(self, batch: Batch) -> None:
        """Finds out on which device a network that is spread over several has its outputs."""
        with checks.callback_errors(), self.settings():
            outputs = call_network(self.forward_here(), batch.inputs)
        self._outputs_device = device_of(without_graph(outputs)) or self._device

    def settings(self, threads: int | None = None) -> contextlib.AbstractContextManager[None]:
        threads = self._threads if threads is None else threads
        return self._numbers.kept(measurement_settings(self._placement.devices, threads, self._options.precision))

    def forward_here(self) -> Callable[..., Any]:
        return self._forward_pass.of(self._module)

    def visit(self, coordinates: Sequence[float], *, roughly: bool = False) -> None:
        torch.clear_autocast_cache()  # it would hold the weights of the point before
        self._moves.move(coordinates)
        self._treat_buffers(roughly=roughly)

    def leave(self) -> None:
        with torch.no_grad():
            self._moves.return_to_origin()

    def sets_changed(self) -> None:
        self._forward, main = self._settled_forward, self._main
        if main.plan.compile and main.keeps_batches != self._settled_for_own_batches:
            # It was compiled, and found to be right, for batches of another size.
            self._forward = self.forward_here()
            main.plan = replace(main.plan, **_NOT_COMPILED, reason="not compiled: this plane needs other batches")
        if self._moves.axes is not None:
            self._prepare_first_layer()

    def _measure_point(self, coordinates: Sequence[float]) -> PendingPoint:
        """Measures a point of the loaded plane, without reading anything from the device."""
        self.visit(coordinates)
        with contextlib.nullcontext() if self._first_layer is None else self._first_layer.at(coordinates):
            return self._pending()

    def _pending(self) -> PendingPoint:
        # A network's own autocast may insist on its cache, which would hold the weights of the point before.
        torch.clear_autocast_cache()
        forward, parts = self._numbers.numbered, []
        for item in self._sets:
            with naming_set(item.name):
                pending = add_up(forward(self._forward), item.batches, item.totals_at_points)
            parts += [part.renamed(item.name, item.result_name) for part in pending] if item.name else pending
        return pending_point(parts, self._device)

    def measure_batches(self, batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]) -> dict[str, float]:
        torch.clear_autocast_cache()
        parts = add_up(self._numbers.numbered(self._forward), batches, [loss, *metrics.values()])
        return read_points([pending_point(parts, self._device)])[0]

    def _treat_buffers(self, *, roughly: bool = False) -> None:
        if self._options.buffers == "recalibrate" and self._normalization and not self._moves.is_at_network:
            batches = self._batches_for_statistics(self._options, roughly)
            recalibrate(self._numbers.numbered(self.forward_here()), self._normalization, batches)


EVALUATOR = TorchEvaluator
