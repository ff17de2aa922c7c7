"""PyTorch's evaluator: eval mode, forward only, on a fixed set of samples, the network moved in place."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from collectors.networks.batches import call_network
from collectors.networks.torch_network import unwrap
from collectors.networks.weight_space import State

from ..errors import CallbackFunctionError, SamplesError
from ..evaluator import MeasurementSetup, PassCost
from ..measurement_plan import MeasurementPlan, Workload
from ..measuring import checks
from ..measuring.memory_shortage import halved, is_memory_shortage, shortage_text
from ..measuring.network_evaluator import NetworkEvaluator
from ..measuring.partition import run_batches
from ..measuring.totals import NamedMetric, Total, batch_loss, low_precision_note
from ..measuring.tuning import chosen_plan, tune
from ..samples.batches import Batch, as_batch, as_whole_batch
from ..samples.samples import Samples
from ..samples.torch_samples import place_samples, read_samples
from .compiling import PlanChooser, has_images
from .losses import make_metrics, place_loss, split_into_samples
from .moves import NetworkInPlace, NetworkSnapshot
from .own_loss import OwnMetric, own_loss_of, weightings
from .passes import RECALIBRATED, NetworkInPasses
from .placement import HeldWeights, device_of, find_placement
from .points import PendingPoint, PointRunner, capture_of, read_points, run_pending
from .precision import Float32Losses, at_least_float32, with_float32_outputs, with_float32_weights
from .settings import measurement_settings, normalization_layers, recalibrate

if TYPE_CHECKING:
    from jaxtyping import Float64


_LOSSES = "a Model with a loss_fn or a loss function of (outputs, targets)"


class TorchEvaluator(NetworkEvaluator):
    """Measures a PyTorch network (contract 2).

    Args:
        model: a Model (its ``loss_fn`` counts), a loss function of (outputs, targets), or, for a network that computes
            its own loss of a whole batch, an ``OwnLoss`` or None.
        network: the network; it ends as it was found. One that is spread over devices stays where it is, and each
            parameter is moved there; any other is put on the setup's device.
        dataset: a DataLoader, Dataset, pair of tensors, or iterable of (inputs, targets); of any batches for a network
            that computes its own loss.
        metrics: name to torchmetrics object or function of (outputs, targets), or of (outputs, batch).
        setup: what is measured, and how.

    Raises:
        FrozenNetworkError: no parameter is trainable.
        SamplesError: the samples cannot be measured.
        CallbackFunctionError: the network, the loss or a metric raises, or gives no single number; or the network is
            spread over devices that the worker does not have, or replaces its weights while it computes.
        TypeError: an argument has the wrong type, or the network has a tensor without values.
        ValueError: ``buffers="recalibrate"`` is asked for, but the network's statistics are offloaded.
    """

    def __init__(
        self, model: object, network: nn.Module, dataset: object, metrics: object, setup: MeasurementSetup
    ) -> None:
        options, plan = setup.options, setup.plan
        self._module = unwrap(network)
        self._placement = find_placement(self._module, setup.device, setup.devices)
        # Of batches; and of outputs, until a network that is spread over devices shows where it has them.
        self._device = self._outputs_device = self._placement.inputs
        self._options = options
        self._plan = MeasurementPlan(threads=setup.threads)
        self._found: list[NetworkSnapshot] = []
        self._held: HeldWeights | None = None
        self._own_loss = own_loss_of(model, self._module)
        loss = place_loss(checks.find_loss(model, _LOSSES), self._device) if self._own_loss is None else None
        self._metrics = make_metrics(metrics, self._device, NamedMetric if self._own_loss is None else OwnMetric)
        make_batch = as_batch if self._own_loss is None else as_whole_batch
        memory = replace(setup.memory, obstacle=RECALIBRATED if options.buffers == "recalibrate" else "")
        samples, self._notes = read_samples(dataset, options, make_batch, memory)
        try:
            self._take_over(self._module, setup.restore_network)
            if self._placement.is_kept:
                self._held = HeldWeights(self._module, restore=setup.restore_network)
            self._moves = NetworkInPlace(self._module)
            checks.check_movable(self._moves.space, "set requires_grad=True on the parameters that training moves")
            # Of a network with a loss of its own only where its loss shows the need: looking in costs time.
            self._widens = self._own_loss is None
            self._forward = self._forward_of(self._module)
            self._samples = self._placed(samples)
            if self._placement.is_kept and loss is not None:
                self._find_outputs()
                loss, self._samples = place_loss(loss, self._outputs_device), self._placed(samples)
                self._metrics = make_metrics(metrics, self._outputs_device)
            if isinstance(loss, nn.Module):
                self._take_over(loss, setup.restore_network)
            loss = None if loss is None else with_float32_weights(loss)
            self._samples = self._samples.map_targets(at_least_float32)
            self._normalization = normalization_layers(self._module)
            self._check_buffers()
            self._find_partition_in_float32(loss)
            self._check_in_place()
            plan, rate = self._tune(setup.threads, self._keeps_batches) if plan is None else (plan, None)
            self._plan = replace(plan, batch_size=None) if self._keeps_batches else plan
            self._samples = self._placed(self._samples, channels_last=self._plan.channels_last)
            with self._settings():
                self._settle_plan(rate, setup.workload or Workload())
                names = self._measure_within_memory()
                capture = capture_of(self._device) if self._stays_on_device else None
                self._points = PointRunner(self._moves, self._pending, self._treat_buffers, self._device, capture)
                self._notes.extend(filter(None, [self._points.check()]))
            self._passes = self._in_passes()
        except BaseException:
            self.close()
            raise
        self._describe(self._moves.space, names, setup, self._placement.kinds, chosen_plan(self._plan, setup))

    def load(
        self, origin: State, directions: Sequence[State], buffers: State, end_buffers: Sequence[State] = ()
    ) -> None:
        """Puts a plane on the device."""
        with torch.no_grad():
            self._moves.load(origin, directions, buffers, end_buffers)
        with self._settings():
            self._points.record(len(directions))

    def measure(self, points: Float64[np.ndarray, "points axes"]) -> dict[str, Float64[np.ndarray, " points"]]:
        """Measures points of the loaded plane, shape (points, axes)."""
        points = checks.check_points(points, self._moves.axes)
        with self._settings():
            if self._passes is not None:
                rows = self._passes.measure(points.tolist())
            else:
                # A device goes on to the next point while this one is computed; nothing is read before the last.
                rows = read_points([self._points.measure(coordinates) for coordinates in points.tolist()])
        return {name: np.array([row[name] for row in rows], np.float64) for name in self.description.metrics}

    def measure_state(self, parameters: State, buffers: State | None) -> dict[str, float]:
        """Measures one full set of weights, off the plane; the loaded plane stays in place."""
        checks.check_loaded(self._moves.axes)
        with self._settings():
            try:
                if self._passes is not None:
                    return self._passes.measure_state(parameters, buffers)
                self._moves.set_state(parameters, buffers)
                if buffers is None:
                    self._treat_buffers()
                return self._measure_current()
            finally:
                self._moves.return_to_origin()

    @property
    def pass_cost(self) -> PassCost | None:
        """What a pass costs where samples are read anew in each."""
        return None if self._passes is None else self._passes.cost

    def use_batch_size(self, batch_size: int) -> None:
        """Measures in smaller batches from now on."""
        super().use_batch_size(batch_size)
        if self._placement.uses_cuda:
            torch.cuda.empty_cache()
        if self._moves.axes is not None:
            with self._settings():
                self._points.record(self._moves.axes)

    def close(self) -> None:
        """Leaves the user's network as it was found, bit for bit."""
        while self._found:
            self._found.pop().restore()  # the last first: a loss may hold the network
        if self._held is not None:
            self._held.release()

    def _take_over(self, module: nn.Module, restore: bool) -> None:
        """Puts the network, or a loss that is a module, where it computes, in eval mode."""
        device: torch.device | None = self._outputs_device
        if self._placement.is_kept:
            own = {id(parameter) for parameter in self._module.parameters()}
            # A loss may hold the network (a penalty on its weights), and must not take it along.
            device = None if any(id(parameter) in own for parameter in module.parameters()) else device
        self._found.append(NetworkSnapshot(module, device, restore=restore))
        self._found[-1].apply()

    def _placed(self, samples: Samples, *, channels_last: bool = False) -> Samples:
        return place_samples(samples, self._device, channels_last, self._outputs_device)

    def _find_outputs(self) -> None:
        """Finds out on which device a network that is spread over several has its outputs."""
        with checks.callback_errors(), self._settings():
            outputs = call_network(self._forward, self._samples.own_batches[0].inputs)
        self._outputs_device = device_of(outputs) or self._device

    def _check_in_place(self) -> None:
        """Checks, after a forward pass, that the network still computes with the tensors that are moved."""
        replaced = self._moves.replaced_by(self._module)
        if replaced:
            raise CallbackFunctionError(
                f"the network that callback_fn returned replaces its weights while it computes ({replaced[0]!r} and "
                f"{len(replaced) - 1} others), so they cannot be moved. Hooks that bring weights to a device or cast "
                "them for each forward pass do that; of Accelerate's, those of device_map are supported. Remove the "
                "others (accelerate.hooks.remove_hook_from_module(network, recurse=True))."
            )

    @property
    def _stays_on_device(self) -> bool:
        on_host = self._options.buffers == "recalibrate" or self._placement.is_kept
        return not on_host and self._samples.passes is None

    def _in_passes(self) -> NetworkInPasses | None:
        passes = self._samples.passes
        if passes is None:
            return None
        return NetworkInPasses(
            passes, self._moves, lambda: self._forward, self._batches_of, lambda: [self._loss, *self._metrics.values()]
        )

    def _batches_of(self, part: Samples) -> Sequence[Batch]:
        return part.batches(None if self._keeps_batches else self._plan.batch_size)

    def _settings(self) -> contextlib.AbstractContextManager[None]:
        return measurement_settings(self._placement.devices, self._plan.threads)

    def _check_buffers(self) -> None:
        if self._options.buffers != "recalibrate":
            return
        if not self._normalization:
            self._warn('buffers="recalibrate" changes nothing: the network has no normalization statistics.')
        elif any(layer.running_mean is not None and layer.running_mean.is_meta for layer in self._normalization):
            raise ValueError(
                'buffers="recalibrate" is not available where normalization statistics are offloaded; load the network '
                'without offload_buffers, or use buffers="fixed" (the origin\'s statistics everywhere).'
            )
        elif all(batch.size < 2 for batch in self._recalibration_batches()):
            raise SamplesError(
                'buffers="recalibrate" needs batches of at least two samples for its statistics, but the data set '
                'gives single ones; use more samples, larger batches or buffers="fixed".'
            )

    def _forward_of(self, network: Callable[..., Any]) -> Callable[..., Any]:
        if self._own_loss is not None:
            return self._own_loss.forward(network, Float32Losses if self._widens else contextlib.nullcontext)
        return with_float32_outputs(network) if self._widens else network

    def _find_partition_in_float32(self, loss: Callable[..., Any] | None) -> None:
        """Finds out how the loss is added up, computed from outputs in at least float32 where that can be done."""
        find = functools.partial(self._find_partition, self._moves.space, self._ways_to_add_up(loss), self._metrics)
        try:
            find()
        except CallbackFunctionError as error:
            if loss is None or is_memory_shortage(error.__cause__ or error):
                raise
            self._widen(False)
            try:
                find()
            except CallbackFunctionError:
                raise error from error.__cause__
            self._warn(
                "loss and metrics are computed from the network's outputs in low precision, because they do not take "
                f"them in float32 ({error.__cause__ or error})."
            )
            return
        if loss is None and self._loss.low_precision is not None:
            self._widen(True)
            find()
        self._warn(*low_precision_note(self._loss))

    def _widen(self, widens: bool) -> None:
        self._widens = widens
        self._forward = self._forward_of(self._module)

    def _ways_to_add_up(self, loss: Callable[..., Any] | None) -> list[Total]:
        if loss is None:
            return weightings(self._samples.own_batches)
        split = split_into_samples(loss)
        return [batch_loss(loss)] if split is None else [batch_loss(loss), split]

    def _forward_here(self) -> Callable[..., Any]:
        return self._forward_of(self._module)

    def _visit(self, coordinates: Sequence[float]) -> None:
        self._moves.move(coordinates)
        self._treat_buffers()

    def _leave(self) -> None:
        with torch.no_grad():
            self._moves.return_to_origin()

    def _measure_names(self) -> tuple[str, ...]:
        self._forward = self._settled_forward
        if self._plan.compile and self._keeps_batches != self._settled_for_own_batches:
            # It was compiled, and found to be right, for batches of another size.
            self._forward = self._forward_of(self._module)
            self._plan = replace(self._plan, compile=False, reason="not compiled: this plane needs other batches")
        if self._moves.axes is not None:
            self._points.record(self._moves.axes)
            self._visit([0.0] * self._moves.axes)
        return tuple(self._measure_current())

    def _tune(self, threads: int, fixed_batches: bool) -> tuple[MeasurementPlan, float]:
        channels_last = functools.partial(self._placed, self._samples, channels_last=True)
        return tune(
            self._time_plan,
            threads,
            self._samples,
            fixed_batches=fixed_batches,
            ran_out_of_memory=_ran_out_of_memory,
            channels_last=channels_last if has_images(self._samples, self._module) else None,
            largest_first=self._placement.uses_cuda,
        )

    def _time_plan(self, plan: MeasurementPlan, batches: Sequence[Batch]) -> None:
        self._plan = replace(plan, compile=False)
        # A few batches may hold nothing but padding, which has no mean.
        with self._settings(), contextlib.suppress(SamplesError):
            run_batches(self._forward, batches, self._loss, {})

    def _settle_plan(self, rate: float | None, workload: Workload) -> None:
        """Takes the plan, whose samples per second tuning measured unless it came from elsewhere, compiled or not."""
        # Compiled code calls no loss function that could be given float32.
        widened = self._own_loss is not None and self._widens
        obstacle = "its own loss is computed in float32 although the network is not" if widened else ""
        if self._placement.is_kept:
            obstacle = "it is spread over devices, or hooks of Accelerate run it"
        elif self._samples.passes is not None:
            obstacle = "its samples are read anew in each pass, in batches of several shapes"
        chooser = PlanChooser(self._module, self._samples, self._device, self._run, obstacle)
        settled = chooser.from_user(self._plan) if rate is None else chooser.from_tuning(self._plan, rate, workload)
        if settled.note:
            self._warn(settled.note)
        self._plan, self._samples = settled.plan, settled.samples
        self._forward = self._settled_forward = self._forward_of(settled.network)
        self._settled_for_own_batches = self._keeps_batches

    def _run(self, network: Callable[..., Any], batches: Sequence[Batch]) -> dict[str, float]:
        return run_batches(self._forward_of(network), batches, self._loss, self._metrics)

    def _measure_current(self) -> dict[str, float]:
        return read_points([self._pending()])[0]

    def _measure_within_memory(self) -> tuple[str, ...]:
        """Returns the names of what is measured; a plan from elsewhere may ask for larger batches than fit here."""
        before = self._plan.batch_size
        while True:
            size = self._plan.batch_size
            try:
                names = tuple(self._measure_current())
                break
            except Exception as error:
                if not _ran_out_of_memory(error) or size is None or size < 2:
                    raise
            # Only here is the exception gone, and with it the memory that its frames held.
            self._plan = replace(self._plan, batch_size=halved(size, self._samples.count))
        if size != before:
            self._warn(shortage_text(before, size))
        return names

    def _pending(self) -> PendingPoint:
        # A network's own autocast may insist on its cache, which would hold the weights of the point before.
        torch.clear_autocast_cache()
        batches = self._samples.batches(self._plan.batch_size)
        return run_pending(self._forward, batches, self._loss, self._metrics, self._device)

    def _treat_buffers(self) -> None:
        if self._options.buffers == "recalibrate" and self._normalization:
            recalibrate(self._forward_of(self._module), self._normalization, self._recalibration_batches())

    def _recalibration_batches(self) -> Sequence[Batch]:
        return self._samples.batches(self._options.recalibration_batch_size)


def _ran_out_of_memory(error: Exception) -> bool:
    if isinstance(error, torch.cuda.OutOfMemoryError):
        torch.cuda.empty_cache()
    return is_memory_shortage(error)


EVALUATOR = TorchEvaluator
