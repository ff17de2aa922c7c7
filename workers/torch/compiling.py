"""Decides whether a PyTorch network is compiled, and compiles it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from ..errors import NondeterministicLossError
from ..measurement_plan import MeasurementPlan, Workload
from ..measuring.checks import check_same_values
from ..samples.batches import Batch
from ..samples.samples import Samples
from ..samples.torch_samples import place_samples
from .compile_record import CLEARLY_FASTER, CompileCache, compile_options, count_shapes, forecast_compile

_REPEATS = 3
_LOGITS = 10.0
_MOST_NOISE = 1e6


@dataclass(frozen=True)
class SettledPlan:
    """How the network is run.

    Attributes:
        plan: with the choice, and its reason where tuning chose.
        samples: in the plan's layout.
        network: the network, or its compiled form.
        note: what the user should know where what was asked for could not be done.
    """

    plan: MeasurementPlan
    samples: Samples
    network: Callable[..., object]
    note: str = ""


class PlanChooser:
    """Compiles a network where that was asked for, or pays off.

    Args:
        network: in eval mode, on its device.
        samples: on the device, in the plan's layout.
        device: where.
        run: returns the loss and all metrics of a network over batches.
        obstacle: why the network must not be compiled, where that is known.
    """

    def __init__(
        self,
        network: nn.Module,
        samples: Samples,
        device: torch.device,
        run: Callable[[Callable[..., object], Sequence[Batch]], dict[str, float]],
        obstacle: str = "",
    ) -> None:
        self._network, self._samples, self._device, self._run = network, samples, device, run
        self._obstacle = obstacle

    def from_user(self, plan: MeasurementPlan) -> SettledPlan:
        """Returns a plan that somebody else chose, compiled where it says so and that can be done."""
        if not plan.compile:
            return SettledPlan(plan, self._samples, self._network)
        cache = CompileCache(self._network, plan, self._samples, self._device)
        return self._compiled(plan, self._samples, replace(plan, compile=False), cache, True)

    def from_tuning(self, plan: MeasurementPlan, samples_per_second: float, workload: Workload) -> SettledPlan:
        """Returns the tuned plan, compiled where that was asked for or pays off.

        Args:
            plan: the fastest without compilation.
            samples_per_second: how fast it is.
            workload: what was asked for, and for how many points.
        """
        if not workload.compile:
            return SettledPlan(plan, self._samples, self._network)
        if self._obstacle and workload.compile == "auto":
            return self._eager(plan, self._obstacle)
        candidate = replace(plan, compile=True, batch_size=_even_batches(plan.batch_size, self._samples.count))
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
            shapes = count_shapes(samples.batches(candidate.batch_size))
            pays, reason, details = forecast_compile(record, self._samples.count / samples_per_second, workload, shapes)
            if not pays:
                return self._eager(plan, reason, details)
        settled = self._compiled(candidate, samples, plan, cache, workload.compile)
        if not settled.plan.compile:
            return settled
        eager, compiled = self._samples.batches(plan.batch_size), samples.batches(candidate.batch_size)
        factor = speed_up(lambda: self._run(self._network, eager), lambda: self._run(settled.network, compiled))
        cache.keep(self._seconds, factor, candidate.batch_size)
        if workload.compile == "auto" and factor < CLEARLY_FASTER:
            return self._eager(plan, "compiled code is not clearly faster", f"{factor:.2f} times as fast")
        found = f"compiled in {self._seconds:.0f} s, {factor:.2f} times as fast"
        details = f"{found}; forecast: {details}" if details else found
        return replace(settled, plan=replace(settled.plan, reason=f"compiled: {reason}", details=details))

    def _eager(self, plan: MeasurementPlan, reason: str, details: str = "") -> SettledPlan:
        eager = replace(plan, reason=f"not compiled: {reason}", details=details)
        return SettledPlan(eager, self._samples, self._network)

    def _compiled(
        self,
        plan: MeasurementPlan,
        samples: Samples,
        eager: MeasurementPlan,
        cache: CompileCache,
        wanted: bool | str,
    ) -> SettledPlan:
        batches = samples.batches(plan.batch_size)
        if self._obstacle:
            compiled = Compiled(None, problem=self._obstacle)
        else:
            compiled = compile_network(self._network, self._device, cache, lambda network: self._run(network, batches))
        self._seconds = compiled.seconds
        if compiled.network is None:
            note = f"compile={wanted!r} was asked for, but the network runs eagerly: {compiled.problem}."
            return replace(self._eager(eager, compiled.problem), note=note)
        return SettledPlan(plan, samples, compiled.network)


def has_images(samples: Samples, network: nn.Module) -> bool:
    """Returns whether the inputs are batches of images for a network with convolutions."""
    inputs = samples.own_batches[0].inputs
    images = isinstance(inputs, torch.Tensor) and inputs.ndim == 4
    return images and any(parameter.ndim == 4 for parameter in network.parameters())


def _even_batches(batch_size: int | None, count: int) -> int | None:
    """Returns a batch size that leaves no remainder, or a small one: each shape is compiled separately."""
    return batch_size if batch_size is None else -(-count // -(-count // batch_size))


@dataclass(frozen=True)
class Compiled:
    """The result of compiling.

    Attributes:
        network: the compiled network, or None where it cannot be used.
        seconds: what it cost, the first pass included.
        problem: why it cannot be used.
    """

    network: Callable[..., object] | None
    seconds: float = 0.0
    problem: str = ""


def compile_network(
    network: nn.Module,
    device: torch.device,
    cache: CompileCache,
    measure: Callable[[Callable[..., object]], dict[str, float]],
) -> Compiled:
    """Compiles a network for its own weights as inputs, so that it may be moved afterwards.

    Args:
        network: in eval mode, on its device.
        device: where it is.
        cache: keeps the compiled code.
        measure: returns the loss and all metrics that a network gives.
    """
    if device.type == "cpu" and not _has_compiler():
        return Compiled(None, problem="there is no C++ compiler")
    expected = measure(network)
    try:
        start = time.perf_counter()
        compiled = torch.compile(network, dynamic=False, options=compile_options(device))
        with cache.in_use():
            found = measure(compiled)
        # Compiled code rounds logits otherwise, which shows in a tiny loss; but nothing that is worth a per cent of it.
        logits = {name: min(_LOGITS, _MOST_NOISE * abs(value)) for name, value in expected.items()}
        check_same_values("the network", expected, found, "compiled", elsewhere=logits)
    except NondeterministicLossError:
        changed = {name: (value, found[name]) for name, value in expected.items() if found[name] != value}
        return Compiled(None, problem=f"compiled it gives other values, eager against compiled: {changed}")
    except Exception as error:
        return Compiled(None, problem=(str(error).strip() or type(error).__name__).splitlines()[0])
    return Compiled(compiled, time.perf_counter() - start)


def speed_up(eager: Callable[[], object], compiled: Callable[[], object]) -> float:
    """Returns how many times as fast the compiled network is: the best of a few passes of each, in turns."""
    best = [float("inf"), float("inf")]
    for _ in range(_REPEATS):
        for index, run in enumerate((eager, compiled)):
            start = time.perf_counter()
            run()
            best[index] = min(best[index], time.perf_counter() - start)
    return best[0] / best[1]


def _has_compiler() -> bool:
    return any(map(shutil.which, (os.environ.get("CXX") or "g++", "c++", "clang++")))
