"""The part of PyTorch's evaluator that chooses how the network is run, with the user's own samples."""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..evaluator import MeasurementSetup
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from ..measuring.memory_shortage import shortage_text
from ..measuring.network_evaluator import NetworkEvaluator
from ..measuring.totals import Total
from ..samples.samples import Samples
from .finding_layers import find_first_layer, most_bytes_kept
from .first_layer import NO_FIRST_LAYER, FirstLayer
from .forward import ForwardPass
from .gradients import Gradients
from .moves import NetworkInPlace
from .own_loss import OwnLoss
from .placement import Placement
from .planning import NetworkPlanning, within_memory


class PlannedNetwork(NetworkEvaluator):
    """A PyTorch network, with its samples, for which a plan is chosen; the evaluator's constructor sets all parts."""

    _module: nn.Module
    _placement: Placement
    _device: torch.device
    _options: MeasurementOptions
    _own_loss: OwnLoss | None
    _metrics: Mapping[str, Total]
    _gradients: Gradients
    _moves: NetworkInPlace
    _forward_pass: ForwardPass
    _first_layer: FirstLayer | None
    _forward: Callable[..., Any]
    _settled_forward: Callable[..., Any]
    _settled_for_own_batches: bool

    @abstractmethod
    def _placed(self, samples: Samples, *, channels_last: bool = False) -> Samples:
        """Returns samples where the network takes them."""

    @abstractmethod
    def _settings_with(self, threads: int) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which everything is computed, with a number of threads."""

    @property
    def _stays_on_device(self) -> bool:
        moved = any(item.samples.moved_on_use for item in self._sets)
        on_host = self._options.buffers == "recalibrate" or self._placement.is_kept or moved
        return not (on_host or self._samples.passes is not None or self._draws_alike or self._gradients.are_on)

    def _choose_plan(self, setup: MeasurementSetup) -> None:
        """Takes the plan that was given or tunes one, and compiles the network where the plan says so."""
        others = [item.samples for item in self._further]
        planning = NetworkPlanning(
            self._module, self._placement, self._forward_pass, self._loss, self._metrics, self._settings_with, others
        )
        plan, rate = setup.plan, None
        if plan is None:
            plan, rate = planning.tune(
                self._samples,
                setup.threads,
                functools.partial(self._placed, self._samples, channels_last=True),
                fixed_batches=self._keeps_batches,
                precision=self._options.precision,
            )
        plan = replace(plan, precision=self._options.precision, gradients=self._gradients.are_on)
        self._plan = replace(plan, batch_size=None) if self._keeps_batches else plan
        # Nothing else may hold the samples in the layout before: a device may have no room for both.
        self._samples = self._placed(self._samples, channels_last=self._plan.channels_last)
        with self._settings():
            first_layer = self._find_first_layer(setup)
            left_out = first_layer if self._own_loss is None else None  # which may call the network with anything
            settled = planning.settle(self._samples, self._plan, rate, setup.workload or Workload(), left_out)
        self._warn(*filter(None, [settled.note]))
        self._plan, self._samples = settled.plan, settled.samples
        self._first_layer = first_layer if self._plan.first_layer else None
        if self._first_layer is None and plan.first_layer:
            self._warn(NO_FIRST_LAYER)
        self._forward = self._settled_forward = self._forward_pass.of(settled.network)
        self._settled_for_own_batches = self._keeps_batches

    def _find_first_layer(self, setup: MeasurementSetup) -> FirstLayer | None:
        """Returns what is computed once for a plane, and says in the plan whether anything is."""
        found, asked = None, setup.plan is not None and setup.plan.first_layer
        fits = self._device.type == "cpu" and self._stays_on_device
        if fits and (asked or setup.plan is None):
            room = None if asked else most_bytes_kept(setup.memory.limit, setup.workload or Workload())
            if room is not None:  # it is kept for all data sets
                room *= self._samples.total / sum(item.samples.total for item in self._sets)
            forward = self._forward_here()
            call = find_first_layer(self._module, forward, self._samples, self._plan.batch_size, room)
            found = FirstLayer.of(call, forward, self._moves) if call is not None else None
        self._plan = replace(self._plan, first_layer=found is not None)
        return found

    def _measure_within_memory(self) -> tuple[str, ...]:
        """Returns the names of what is measured."""
        before = self._plan.batch_size
        names, plan = within_memory(self._measure_under, self._plan, self._samples.count)
        if plan.batch_size != before:
            self._warn(shortage_text(before, plan.batch_size))
        return names

    def _measure_under(self, plan: MeasurementPlan) -> tuple[str, ...]:
        self._plan = plan
        return tuple(self._measure_few())
