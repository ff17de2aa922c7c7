"""Finds out how a PyTorch network is run: in which batches, layout and threads, compiled or not, within memory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from ..errors import SamplesError
from ..evaluator import MeasurementSetup
from ..measurement_plan import MeasurementPlan, Workload
from ..measuring.measured_set import MeasuredSet
from ..measuring.memory_shortage import halved, is_memory_shortage
from ..measuring.totals import Total, run_batches
from ..measuring.tuning import tune
from ..samples.batches import Batch
from ..samples.samples import Samples
from .compiling import PlanChooser, SettledPlan, has_images
from .finding_layers import find_first_layer, most_bytes_kept
from .first_layer import NO_FIRST_LAYER, FirstLayer
from .forward import ForwardPass
from .moves import NetworkInPlace
from .placement import Placement

_Result = TypeVar("_Result")


class NetworkPlanning:
    """Times a network, and settles on a plan."""

    def __init__(
        self,
        network: nn.Module,
        placement: Placement,
        forward: ForwardPass,
        loss: Total,
        metrics: Mapping[str, Total],
        settings: Callable[[int], contextlib.AbstractContextManager[None]],
        others: Sequence[Samples] = (),
    ) -> None:
        self._network, self._placement, self._forward = network, placement, forward
        self._loss, self._metrics, self._settings, self._others = loss, metrics, settings, others

    def choose(
        self,
        main: MeasuredSet,  # the main data set, which is measured in that plan from now on
        setup: MeasurementSetup,
        moves: NetworkInPlace,
        place: Callable[..., Samples],  # samples where the network takes them, with ``channels_last`` or without
        *,
        stays_on_device: bool,  # whether nothing of a point is computed on the host
    ) -> tuple[Callable[..., Any], FirstLayer | None]:
        """Takes the given plan or tunes one; returns the forward pass, and what is computed once for a plane."""
        precision, asked, rate = self._forward.precision, setup.plan, None
        if asked is None:
            channels_last = functools.partial(place, main.samples, channels_last=True)
            fixed = main.keeps_batches
            asked, rate = self.tune(main.samples, setup.threads, channels_last, fixed_batches=fixed)
            del channels_last
        asked = replace(asked, precision=precision, gradients=self._forward.gradients.are_on)
        main.plan = replace(asked, batch_size=None) if main.keeps_batches else asked
        # Nothing else may hold the samples in the layout before: a device may have no room for both.
        main.samples = place(main.samples, channels_last=main.plan.channels_last)
        with self._settings(main.plan.threads):
            first_layer = self._find_first_layer(main, setup, moves) if stays_on_device else None
            main.plan = replace(main.plan, first_layer=first_layer is not None)
            # A network's own loss may call the network with anything.
            left_out = None if self._forward.is_own_loss else first_layer
            settled = self.settle(main.samples, main.plan, rate, setup.workload or Workload(), left_out)
        main.warn(*filter(None, [settled.note]))
        main.plan, main.samples = settled.plan, settled.samples
        first_layer = first_layer if main.plan.first_layer else None
        if first_layer is None and asked.first_layer:
            main.warn(NO_FIRST_LAYER)
        return self._forward.of(settled.network), first_layer

    def _find_first_layer(self, main: MeasuredSet, setup: MeasurementSetup, moves: NetworkInPlace) -> FirstLayer | None:
        asked = setup.plan is not None and setup.plan.first_layer
        if self._placement.inputs.type != "cpu" or not (asked or setup.plan is None):
            return None
        room = None if asked else most_bytes_kept(setup.memory.limit, setup.workload or Workload())
        if room is not None:  # it is kept for all data sets
            room *= main.samples.total / (main.samples.total + sum(item.total for item in self._others))
        forward = self._forward.of(self._network)
        call = find_first_layer(self._network, forward, main.samples, main.plan.batch_size, room)
        return FirstLayer.of(call, forward, moves) if call is not None else None

    def tune(
        self,
        samples: Samples,
        threads: int,
        channels_last: Callable[[], Samples],
        *,
        fixed_batches: bool,
    ) -> tuple[MeasurementPlan, float]:
        """Returns the fastest plan without compiling, and its samples per second."""
        return tune(
            self._time,
            threads,
            samples,
            fixed_batches=fixed_batches,
            ran_out_of_memory=ran_out_of_memory,
            channels_last=channels_last if has_images(samples, self._network) else None,
            largest_first=self._placement.uses_cuda,
        )

    def settle(
        self,
        samples: Samples,
        plan: MeasurementPlan,
        rate: float | None,
        workload: Workload,
        first_layer: FirstLayer | None = None,
    ) -> SettledPlan:
        """Returns the plan, compiled or not, and its network; rate: samples per second, None for a given plan."""
        obstacle = self._forward.obstacle
        if self._placement.is_kept:
            obstacle = "it is spread over devices, or hooks of Accelerate run it"
        elif self._placement.inputs.type not in ("cpu", "cuda"):
            obstacle = f"code is compiled for CPUs and NVIDIA GPUs, and not for {self._placement.inputs}"
        elif samples.passes is not None:
            obstacle = "its samples are read anew in each pass, in batches of several shapes"
        chooser = PlanChooser(
            self._network, samples, self._placement.inputs, self._run, obstacle, first_layer, self._others
        )
        return chooser.from_user(plan) if rate is None else chooser.from_tuning(plan, rate, workload)

    def _time(self, plan: MeasurementPlan, batches: Sequence[Batch]) -> None:
        # A few batches may hold nothing but padding, which has no mean.
        with self._settings(plan.threads), contextlib.suppress(SamplesError):
            run_batches(self._forward.of(self._network), batches, self._loss, {})

    def _run(self, network: Callable[..., object], batches: Sequence[Batch]) -> dict[str, float]:
        return run_batches(self._forward.of(network), batches, self._loss, self._metrics)


def within_memory(
    measure: Callable[[MeasurementPlan], _Result], plan: MeasurementPlan, count: int
) -> tuple[_Result, MeasurementPlan]:
    """Returns what is measured of so many samples, and the plan, in smaller batches where memory does not suffice."""
    while True:
        size = plan.batch_size
        try:
            return measure(plan), plan
        except Exception as error:
            if not ran_out_of_memory(error) or size is None or size < 2:
                raise
        # Only here is the exception gone, and with it the memory that its frames held.
        plan = replace(plan, batch_size=halved(size, count))


def ran_out_of_memory(error: Exception) -> bool:
    """Returns whether an exception means that a batch was too large, and frees what PyTorch keeps of a GPU's memory."""
    found = is_memory_shortage(error)
    if found and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    return found
