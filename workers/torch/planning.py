"""Finds out how a PyTorch network is run: in which batches, layout and threads, compiled or not, within memory."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from collectors.files import system
from collectors.networks.batches import leaves

from ..errors import SamplesError
from ..evaluator import MeasurementSetup
from ..measurement_plan import NOT_IN_A_REHEARSAL, MeasurementPlan, Workload
from ..measuring.measured_set import MeasuredSet
from ..measuring.memory_shortage import halved, is_memory_shortage
from ..measuring.totals import run_batches
from ..measuring.tuning import tune
from ..samples.batches import Batch, is_tensor
from ..samples.samples import Samples
from ..samples.torch_samples import place_samples
from .compiled.compiling import Compiled, compile_network
from .compiled.first_layer import NO_FIRST_LAYER, FirstLayer, SplitNetwork, find_first_layer, most_bytes_kept
from .compiled.packages import danger
from .forward import ForwardPass
from .moves import NetworkInPlace
from .placement import Placement

# Of measuring on each worker without it. LeNet-5 takes 12 CPU seconds to compile on two cores, after which 900 points
# take 12 s instead of 31.
_WORTH_COMPILING_SECONDS = 30.0
# Where each process compiles anew, because packages are for CPUs under Linux: 20 s and more, and it gains a third.
_WORTH_COMPILING_WITHOUT_PACKAGES = 90.0
_MOST_SHAPES = 2
_FEW = 4
# Of a batch's largest activation, so that it stays in a core's cache: compiled LeNet-5 is fastest in batches of 256
# (4.8 MB), ResNet-20 of 64 (4.2 MB); with 1024 they took 1.3 and 1.5 times as long.
_CACHED_BYTES = 5 * 2**20
_COMPILED_BATCHES = (1024, 512, 256, 128, 64)


@dataclass(frozen=True)
class SettledPlan:
    """How a network is run: plan, samples in its layout, and a note where what was asked for could not be done."""

    plan: MeasurementPlan
    samples: Samples
    network: Callable[..., object]
    note: str = ""


@dataclass(frozen=True)
class NetworkPlanning:
    """Times a network, compiles it where that was asked for or pays off, and settles on a plan."""

    network: nn.Module
    placement: Placement
    forward: ForwardPass
    settings: Callable[[int], contextlib.AbstractContextManager[None]]
    sets: Sequence[MeasuredSet]  # the main data set, which is measured in the plan that is chosen, and further ones

    def choose(
        self,
        setup: MeasurementSetup,
        moves: NetworkInPlace,
        place: Callable[..., Samples],  # samples where the network takes them, with ``channels_last`` or without
        *,
        on_host: bool,  # whether something of a point is computed there
    ) -> tuple[Callable[..., Any], FirstLayer | None]:
        """Takes the given plan or tunes one; returns the forward pass, and what is computed once for a plane."""
        main, asked, rate = self.sets[0], setup.plan, None
        if asked is None:
            channels_last = functools.partial(place, main.samples, channels_last=True)
            asked, rate = tune(
                self._time,
                setup.threads,
                main.samples,
                fixed_batches=main.keeps_batches,
                ran_out_of_memory=ran_out_of_memory,
                channels_last=channels_last if has_images(main.samples, self.network) else None,
                largest_first=self.placement.uses_cuda,
            )
            del channels_last
        asked = replace(asked, precision=self.forward.precision, gradients=self.forward.gradients.are_on)
        main.plan = replace(asked, batch_size=None) if main.keeps_batches else asked
        # Nothing else may hold the samples in the layout before: a device may have no room for both.
        main.samples = place(main.samples, channels_last=main.plan.channels_last)
        with self.settings(main.plan.threads):
            first_layer = None if on_host else self._find_first_layer(setup, moves)
            main.plan = replace(main.plan, first_layer=first_layer is not None)
            # A network's own loss may call the network with anything.
            left_out = None if self.forward.is_own_loss else first_layer
            if rate is None:
                eager = SettledPlan(replace(main.plan, compile=False, compiler=""), main.samples, self.network)
                settled = replace(eager, plan=main.plan)
                if main.plan.compile:
                    settled = self._compiled(settled, eager, left_out, asked=True, builds=True) or settled
            else:
                settled = self.from_tuning(main.samples, main.plan, rate, setup.workload or Workload(), left_out)
        main.warn(*filter(None, [settled.note]))
        main.plan, main.samples = settled.plan, settled.samples
        first_layer = first_layer if main.plan.first_layer else None
        if first_layer is None and asked.first_layer:
            main.warn(NO_FIRST_LAYER)
        return self.forward.of(settled.network), first_layer

    def from_tuning(
        self,
        samples: Samples,
        plan: MeasurementPlan,  # the fastest without compilation
        samples_per_second: float,
        workload: Workload,
        first_layer: FirstLayer | None = None,
    ) -> SettledPlan:
        """Returns the tuned plan, compiled where that was asked for or pays off."""
        eager = SettledPlan(plan, samples, self.network)
        if not workload.compile:
            return eager
        asked = workload.compile is True
        if not asked and (obstacle := self._obstacle(samples)):
            return _not_compiled(eager, obstacle)
        candidate = replace(plan, compile=True, batch_size=self.compiled_batch_size(samples, plan.batch_size))
        if has_images(samples, self.network):
            # Compiled code for images is fast where channels are next to each other, and slower than none elsewhere.
            candidate = replace(candidate, channels_last=True)
        placed = place_samples(samples, self.placement.inputs, candidate.channels_last)
        if placed.is_changed_on_use:  # nothing can be kept for batches that are made anew
            first_layer = None
        if not asked and (problem := self._never_pays(placed, candidate)):
            return _not_compiled(eager, problem)
        count = samples.count + sum(item.samples.count for item in self.sets[1:])
        seconds = workload.points * count / samples_per_second
        work = f"{workload.points:.0f} points take {seconds:.0f} s on each worker without it"
        if seconds > workload.seconds:
            seconds, work = workload.seconds, f"the budget is {workload.seconds:.0f} s"
        has_packages = system.LINUX and self.placement.inputs.type == "cpu"
        least = _WORTH_COMPILING_SECONDS if has_packages else _WORTH_COMPILING_WITHOUT_PACKAGES
        pays = asked or seconds >= least
        wanted = SettledPlan(candidate, placed, self.network)
        builds = pays and not workload.rehearsal
        settled = self._compiled(wanted, eager, first_layer, asked=workload.compile, builds=builds)
        if settled is None and pays:
            return _not_compiled(eager, NOT_IN_A_REHEARSAL, f"a run would: {'asked for' if asked else work}")
        if settled is None:
            return _not_compiled(eager, "compiling would not pay off", f"{work}, and it does from {least:.0f} s on")
        if settled.plan.compile:
            reason = "asked for" if asked else "compiling pays off" if pays else "its package is there"
            settled = replace(settled, plan=replace(settled.plan, reason=f"compiled: {reason}"))
        return settled

    def compiled_batch_size(self, samples: Samples, eager: int | None) -> int | None:
        """Returns the batch size for compiled code, of which each shape costs a compilation: none is tried."""
        if eager is None:
            return None
        if self.placement.inputs.type == "cpu":
            # The largest whose activations stay in a cache; that is not the one which suits eager code.
            each = self._largest_activation(samples.batches(eager)[0])
            fitting = [size for size in _COMPILED_BATCHES if size * each <= _CACHED_BYTES]
            eager = min((*fitting, _COMPILED_BATCHES[-1])[0], samples.count)
        # One that leaves no remainder, or a small one.
        return -(-samples.count // -(-samples.count // eager))

    def _find_first_layer(self, setup: MeasurementSetup, moves: NetworkInPlace) -> FirstLayer | None:
        main, *further = self.sets
        asked = setup.plan is not None and setup.plan.first_layer
        if self.placement.inputs.type != "cpu" or not (asked or setup.plan is None):
            return None
        room = None if asked else most_bytes_kept(setup.memory.limit, setup.workload or Workload())
        if room is not None:  # it is kept for all data sets
            room *= main.samples.total / (main.samples.total + sum(item.samples.total for item in further))
        forward = self.forward.of(self.network)
        return find_first_layer(self.network, forward, moves, main.samples, main.plan.batch_size, room)

    def _obstacle(self, samples: Samples) -> str:
        """Returns why the network must not be compiled, or ""."""
        if self.placement.is_kept:
            return "it is spread over devices, or hooks of Accelerate run it"
        if self.placement.inputs.type not in ("cpu", "cuda"):
            return f"code is compiled for CPUs and NVIDIA GPUs, and not for {self.placement.inputs}"
        if samples.passes is not None:
            return "its samples are read anew in each pass, in batches of several shapes"
        return self.forward.obstacle

    def _never_pays(self, samples: Samples, plan: MeasurementPlan) -> str:
        """Returns why compiling costs more than it gains, however much is measured, or ""."""
        shapes = len({_shape(batch) for batch in [*samples.batches(plan.batch_size), *self._of_others(plan)]})
        if shapes > _MOST_SHAPES:
            return f"batches have {shapes} shapes, and each would be compiled separately"
        # Matrix products leave little to fuse: perceptrons ran 0.8 to 1.3 times as fast. And while they are not
        # compiled, their first layer is computed once for a plane, which gains more.
        with_parameters = [layer for layer in self.network.modules() if list(layer.parameters(recurse=False))]
        fully_connected = all(isinstance(layer, nn.Linear) for layer in with_parameters)
        return "compiled code of fully connected layers alone is not clearly faster" if fully_connected else ""

    def _largest_activation(self, batch: Batch) -> float:
        """Returns the bytes of a layer's largest output for one sample, as a batch shows it."""
        largest = [0.0]

        def see(_layer: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, torch.Tensor):
                largest.append(output.nbytes / batch.size)

        with contextlib.ExitStack() as hooks:
            for layer in self.network.modules():
                hooks.enter_context(layer.register_forward_hook(see))
            with contextlib.suppress(SamplesError):  # it may hold nothing but padding, which has no mean
                self._run(self.network, [batch])
        return max(largest)

    def _of_others(self, plan: MeasurementPlan) -> list[Batch]:
        """Returns the first and the last batch of each data set beside the main one."""
        found: list[Batch] = []
        for item in self.sets[1:]:
            batches = item.samples.batches(plan.batch_size)
            for batch in {0: batches[0], len(batches) - 1: batches[-1]}.values():
                found += place_samples(Samples([batch], batch), self.placement.inputs, plan.channels_last).batches(None)
        return found

    def _compiled(
        self,
        wanted: SettledPlan,
        eager: SettledPlan,
        first_layer: FirstLayer | None,
        *,
        asked: bool | str,
        builds: bool,
    ) -> SettledPlan | None:
        """Returns the compiled network, or the eager one and why; None where there is no package and none is built."""
        plan, others = wanted.plan, self._of_others(wanted.plan)
        batches = wanted.samples.batches(plan.batch_size)

        def run_few(network: Callable[..., object]) -> dict[str, float]:
            """Measures the first batches and the last, which may have another shape; all, where no target counts."""
            few = [*batches[: _FEW - 1], batches[-1]] if len(batches) > _FEW else batches
            try:
                return self._run(network, [*few, *others])
            except SamplesError:
                if few is batches:
                    raise
                return self._run(network, [*batches, *others])

        start = time.perf_counter()
        compiled = Compiled(problem=self._obstacle(eager.samples) or (danger() if builds else ""))
        if not compiled.problem:
            compiled = compile_network(self.network, self.placement.inputs, run_few, plan, first_layer, builds=builds)
        if compiled.problem:
            note = f"compile={asked!r} was asked for, but the network runs eagerly: {compiled.problem}."
            return replace(_not_compiled(eager, compiled.problem), note=note)
        if compiled.network is None:
            return None
        note = ""
        if plan.compiler and plan.compiler != compiled.compiler:
            note = (
                f"the plan says that {plan.compiler} compiles the network, but {compiled.compiler} did: "
                f"{compiled.not_packaged}. The last bits of a loss may differ."
            )
        details = f"{'loaded' if compiled.was_there else 'compiled'} in {time.perf_counter() - start:.1f} s"
        if compiled.not_packaged:
            details += f", and not kept as a package: {compiled.not_packaged}"
        kept = isinstance(compiled.network, SplitNetwork)
        plan = replace(plan, compiler=compiled.compiler, first_layer=kept, details=details)
        return SettledPlan(plan, wanted.samples, compiled.network, note)

    def _time(self, plan: MeasurementPlan, batches: Sequence[Batch]) -> None:
        # A few batches may hold nothing but padding, which has no mean.
        with self.settings(plan.threads), contextlib.suppress(SamplesError):
            run_batches(self.forward.of(self.network), batches, self.sets[0].loss, {})

    def _run(self, network: Callable[..., object], batches: Sequence[Batch]) -> dict[str, float]:
        return run_batches(self.forward.of(network), batches, self.sets[0].loss, self.sets[0].metrics)


def _not_compiled(eager: SettledPlan, reason: str, details: str = "") -> SettledPlan:
    return replace(eager, plan=replace(eager.plan, reason=f"not compiled: {reason}", details=details))


def has_images(samples: Samples, network: nn.Module) -> bool:
    """Returns whether the inputs are batches of images for a network with convolutions."""
    inputs = samples.own_batches[0].inputs
    images = isinstance(inputs, torch.Tensor) and inputs.ndim == 4
    return images and any(parameter.ndim == 4 for parameter in network.parameters())


def _shape(batch: Batch) -> str:
    tensors = [leaf for leaf in leaves(batch.inputs) if is_tensor(leaf)]
    return repr([(tuple(leaf.shape), leaf.stride(), str(leaf.dtype)) for leaf in tensors])


def few_within_memory(main: MeasuredSet) -> tuple[str, ...]:
    """Returns the names of what is measured of a few samples, in smaller batches where memory does not suffice."""
    while True:
        size = main.plan.batch_size
        try:
            return tuple(main.measure_few())
        except Exception as error:
            if not ran_out_of_memory(error) or size is None or size < 2:
                raise
        # Only here is the exception gone, and with it the memory that its frames held.
        main.plan = replace(main.plan, batch_size=halved(size, main.samples.count))


def ran_out_of_memory(error: Exception) -> bool:
    """Returns whether an exception means that a batch was too large, and frees what PyTorch keeps of a GPU's memory."""
    found = is_memory_shortage(error)
    if found and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    return found
