"""Decides whether a PyTorch network is compiled."""

from __future__ import annotations

import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from ..errors import SamplesError
from ..measurement_plan import NOT_IN_A_REHEARSAL, MeasurementPlan, Workload
from ..samples.batches import Batch
from ..samples.samples import Samples
from ..samples.torch_samples import place_samples
from .compile_record import (
    CLEARLY_FASTER,
    NOT_FASTER,
    CompileCache,
    count_shapes,
    forecast_compile,
)
from .compiler import Compiled, compile_network
from .first_layer import FirstLayer
from .split_network import SplitNetwork

_REPEATS = 5
_TIMING_SECONDS = 1.0
_FEW = 4
# Of a batch's largest activation, so that it stays in a core's cache: compiled LeNet-5 is fastest in batches of 256
# (4.8 MB), ResNet-20 of 64 (4.2 MB); with 1024 they took 1.3 and 1.5 times as long.
_CACHED_BYTES = 5 * 2**20
_COMPILED_BATCHES = (1024, 512, 256, 128, 64)
# Of the time of a first layer that is computed once for a plane; what its sums take is the rest.
_SAVED = 0.7


@dataclass(frozen=True)
class SettledPlan:
    """How a network is run: plan, samples in its layout, and a note where what was asked for could not be done."""

    plan: MeasurementPlan
    samples: Samples
    network: Callable[..., object]
    note: str = ""


class PlanChooser:
    """Compiles a network where that was asked for, or pays off."""

    def __init__(
        self,
        network: nn.Module,
        samples: Samples,
        device: torch.device,
        run: Callable[[Callable[..., object], Sequence[Batch]], dict[str, float]],
        obstacle: str = "",
        first_layer: FirstLayer | None = None,
        others: Sequence[Samples] = (),
    ) -> None:
        self._network, self._samples, self._device, self._run = network, samples, device, run
        self._obstacle, self._first_layer, self._others = obstacle, first_layer, others
        self._seconds, self._not_packaged = 0.0, ""

    def from_user(self, plan: MeasurementPlan) -> SettledPlan:
        """Returns a plan that somebody else chose, compiled where it says so and that can be done."""
        if not plan.compile:
            return SettledPlan(plan, self._samples, self._network)
        cache = CompileCache(self._network, plan, self._samples, self._device)
        eager = replace(plan, compile=False, compiler="")
        if danger := cache.danger():
            return self._refused(eager, danger, True)
        return self._compiled(plan, self._samples, eager, cache, True)

    def from_tuning(self, plan: MeasurementPlan, samples_per_second: float, workload: Workload) -> SettledPlan:
        """Returns the tuned plan (the fastest without compilation), compiled where that was asked for or pays off."""
        if not workload.compile:
            return SettledPlan(plan, self._samples, self._network)
        if self._obstacle and workload.compile == "auto":
            return self._eager(plan, self._obstacle)
        candidate = replace(plan, compile=True, batch_size=self._compiled_batch_size(plan.batch_size))
        if has_images(self._samples, self._network):
            # Compiled code for images is fast where channels are next to each other, and slower than none elsewhere.
            candidate = replace(candidate, channels_last=True)
        samples = place_samples(self._samples, self._device, candidate.channels_last)
        cache = CompileCache(self._network, candidate, samples, self._device)
        record = cache.record()
        if record.batch_size is not None:
            candidate = replace(candidate, batch_size=record.batch_size)
        reason, details = "asked for", ""
        if workload.compile == "auto":
            shapes = count_shapes([*samples.batches(candidate.batch_size), *self._of_others(candidate)])
            seconds = (self._samples.count + sum(item.count for item in self._others)) / samples_per_second
            if self._first_layer is not None:
                seconds *= 1 - _SAVED * self._first_layer.share
            forecast = forecast_compile(record, seconds, workload, shapes)
            reason, details = forecast.reason, forecast.details
            if not forecast.pays:
                if not workload.rehearsal:
                    cache.keep_missed(forecast.gain)
                return self._eager(plan, reason, details)
        if workload.rehearsal:
            return self._eager(plan, NOT_IN_A_REHEARSAL, f"a run would: {details or reason}")
        if danger := cache.danger():
            return self._refused(plan, danger, workload.compile)
        settled = self._compiled(candidate, samples, plan, cache, workload.compile)
        if not settled.plan.compile:
            cache.keep_failed(self._seconds)
            return settled
        factor = self._speed_up(settled, samples, plan)
        cache.keep(self._seconds, factor, candidate.batch_size)
        if workload.compile == "auto" and factor < CLEARLY_FASTER:
            return self._eager(plan, NOT_FASTER, f"{factor:.2f} times as fast here")
        details = f"{factor:.1f} times as fast here, compiled in {self._seconds:.0f} s"
        if self._not_packaged:
            details += f", and not kept as a package: {self._not_packaged}"
        return replace(settled, plan=replace(settled.plan, reason=f"compiled: {reason}", details=details))

    def _compiled_batch_size(self, eager: int | None) -> int | None:
        """Returns the batch size for compiled code, of which each shape costs a compilation: none is tried."""
        if eager is not None and self._device.type == "cpu":
            # The largest whose activations stay in a cache; that is not the one which suits eager code.
            each = self._largest_activation(eager)
            fitting = [size for size in _COMPILED_BATCHES if size * each <= _CACHED_BYTES]
            eager = min((*fitting, _COMPILED_BATCHES[-1])[0], self._samples.count)
        return _even_batches(eager, self._samples.count)

    def _largest_activation(self, batch_size: int) -> float:
        """Returns the bytes of a layer's largest output for one sample, as a batch shows it."""
        batch, largest = self._samples.batches(batch_size)[0], [0.0]

        def see(_layer: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, torch.Tensor):
                largest.append(output.nbytes / batch.size)

        hooks = [layer.register_forward_hook(see) for layer in self._network.modules()]
        try:
            self._run_some(self._network, [batch])
        finally:
            for hook in hooks:
                hook.remove()
        return max(largest)

    def _speed_up(self, settled: SettledPlan, samples: Samples, eager: MeasurementPlan) -> float:
        """Returns how many times as fast the compiled network is for each sample, timed with a few batches."""
        few_compiled = samples.batches(settled.plan.batch_size)[:_FEW]
        # Of as many samples: what is kept of fewer would stay in a cache, as that of all of them does not.
        few = _first_batches(self._samples.batches(eager.batch_size), sum(batch.size for batch in few_compiled))
        # What one thread computed takes no longer on a machine that others use as well; what several did must be timed.
        alone = self._device.type == "cpu" and eager.threads == 1
        clock = time.thread_time if alone else time.perf_counter
        if self._first_layer is None:
            factor = speed_up(
                lambda: self._run_some(self._network, few), lambda: self._run_some(settled.network, few_compiled), clock
            )
        else:
            factor = self._speed_up_after(self._first_layer, settled, few, few_compiled, clock)
        return factor * sum(batch.size for batch in few_compiled) / sum(batch.size for batch in few)

    def _speed_up_after(
        self,
        first_layer: FirstLayer,
        settled: SettledPlan,
        few: Sequence[Batch],
        few_compiled: Sequence[Batch],
        clock: Callable[[], float],
    ) -> float:
        """Returns how many times as fast the compiled network is where the first layer is computed once for a plane."""
        eager = copy.copy(first_layer)
        eager.rehearse(few, compiled=False)
        if settled.plan.first_layer:
            first_layer.rehearse(few_compiled, compiled=True)

        def run(layer: FirstLayer, network: Callable[..., object], batches: Sequence[Batch], is_used: bool) -> None:
            with layer.at([0.0]) if is_used else contextlib.nullcontext():
                self._run_some(network, batches)

        try:
            return speed_up(
                lambda: run(eager, self._network, few, True),
                lambda: run(first_layer, settled.network, few_compiled, settled.plan.first_layer),
                clock,
            )
        finally:
            first_layer.load(())

    def _of_others(self, plan: MeasurementPlan) -> list[Batch]:
        """Returns the first and the last batch of each data set beside the main one."""
        found: list[Batch] = []
        for item in self._others:
            batches = item.batches(plan.batch_size)
            ends = [batches[0], batches[-1]] if len(batches) > 1 else [batches[0]]
            for batch in ends:
                found += place_samples(Samples([batch], batch), self._device, plan.channels_last).batches(None)
        return found

    def _run_some(self, network: Callable[..., object], batches: Sequence[Batch]) -> None:
        with contextlib.suppress(SamplesError):  # they may hold nothing but padding, which has no mean
            self._run(network, batches)

    def _run_few(
        self, network: Callable[..., object], batches: Sequence[Batch], others: Sequence[Batch]
    ) -> dict[str, float]:
        """Measures the first batches and the last, which may have a shape of its own; all, where no target counts."""
        few = [*batches[: _FEW - 1], batches[-1]] if len(batches) > _FEW else batches
        try:
            return self._run(network, [*few, *others])
        except SamplesError:
            if few is batches:
                raise
            return self._run(network, [*batches, *others])

    def _eager(self, plan: MeasurementPlan, reason: str, details: str = "") -> SettledPlan:
        eager = replace(plan, reason=f"not compiled: {reason}", details=details)
        return SettledPlan(eager, self._samples, self._network)

    def _refused(self, plan: MeasurementPlan, problem: str, wanted: bool | str) -> SettledPlan:
        note = f"compile={wanted!r} was asked for, but the network runs eagerly: {problem}."
        return replace(self._eager(plan, problem), note=note)

    def _compiled(
        self,
        plan: MeasurementPlan,
        samples: Samples,
        eager: MeasurementPlan,
        cache: CompileCache,
        wanted: bool | str,
    ) -> SettledPlan:
        batches, others = samples.batches(plan.batch_size), self._of_others(plan)
        start = time.perf_counter()
        if self._obstacle:
            compiled = Compiled(None, problem=self._obstacle)
        else:
            compiled = compile_network(
                self._network,
                self._device,
                cache,
                lambda network: self._run_few(network, batches, others),
                plan,
                self._first_layer,
            )
        self._seconds = compiled.seconds if compiled.network is not None else time.perf_counter() - start
        self._not_packaged = compiled.not_packaged
        if compiled.network is None:
            return self._refused(eager, compiled.problem, wanted)
        note = ""
        if plan.compiler and plan.compiler != compiled.compiler:
            note = (
                f"the plan says that {plan.compiler} compiles the network, but {compiled.compiler} did: "
                f"{compiled.not_packaged}. The last bits of a loss may differ."
            )
        first_layer = isinstance(compiled.network, SplitNetwork)
        plan = replace(plan, compiler=compiled.compiler, first_layer=first_layer)
        return SettledPlan(plan, samples, compiled.network, note)


def _first_batches(batches: Sequence[Batch], count: int) -> Sequence[Batch]:
    """Returns the first batches that hold so many samples, or all."""
    ends = itertools.accumulate(batch.size for batch in batches)
    return batches[: next((number for number, end in enumerate(ends, start=1) if end >= count), len(batches))]


def has_images(samples: Samples, network: nn.Module) -> bool:
    """Returns whether the inputs are batches of images for a network with convolutions."""
    inputs = samples.own_batches[0].inputs
    images = isinstance(inputs, torch.Tensor) and inputs.ndim == 4
    return images and any(parameter.ndim == 4 for parameter in network.parameters())


def _even_batches(batch_size: int | None, count: int) -> int | None:
    """Returns a batch size that leaves no remainder, or a small one: each shape is compiled separately."""
    return batch_size if batch_size is None else -(-count // -(-count // batch_size))


def speed_up(
    eager: Callable[[], object], compiled: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Returns how many times as fast the compiled network is: the best of a few passes of each, in turns."""
    best = [float("inf"), float("inf")]
    end = time.perf_counter() + _TIMING_SECONDS
    for _ in range(_REPEATS):
        for index, run in enumerate((eager, compiled)):
            start = clock()
            run()
            best[index] = min(best[index], clock() - start)
        if time.perf_counter() > end:
            break
    return best[0] / max(best[1], 1e-9)
