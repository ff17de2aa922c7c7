"""Compiles a PyTorch network where that was asked for or pays off, and checks that it still gives the same values."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from collectors.files import system
from collectors.networks.batches import leaves

from ..errors import NondeterministicLossError, SamplesError, first_line
from ..measurement_plan import NOT_IN_A_REHEARSAL, MeasurementPlan, Workload
from ..measuring.checks import check_same_values, closeness_elsewhere
from ..samples.batches import Batch, is_tensor
from ..samples.samples import Samples
from ..samples.torch_samples import place_samples
from .first_layer import FirstLayer
from .packages import PackagedNetwork, compiler_cache, danger, package_folder
from .split_network import SplitNetwork

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
_LOGITS = 10.0
_MOST_NOISE = 1e6
# The first run of a CUDA graph warms up, the second is recorded, the third is a replay.
_RUNS_TO_A_REPLAY = 3


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

    def from_user(self, plan: MeasurementPlan) -> SettledPlan:
        """Returns a plan that somebody else chose, compiled where it says so and that can be done."""
        eager = replace(plan, compile=False, compiler="")
        settled = self._compiled(plan, self._samples, eager, True, builds=True) if plan.compile else None
        return settled or SettledPlan(plan, self._samples, self._network)

    def from_tuning(self, plan: MeasurementPlan, samples_per_second: float, workload: Workload) -> SettledPlan:
        """Returns the tuned plan (the fastest without compilation), compiled where that was asked for or pays off."""
        if not workload.compile:
            return SettledPlan(plan, self._samples, self._network)
        asked = workload.compile is True
        if self._obstacle and not asked:
            return self._eager(plan, self._obstacle)
        candidate = replace(plan, compile=True, batch_size=self._compiled_batch_size(plan.batch_size))
        if has_images(self._samples, self._network):
            # Compiled code for images is fast where channels are next to each other, and slower than none elsewhere.
            candidate = replace(candidate, channels_last=True)
        samples = place_samples(self._samples, self._device, candidate.channels_last)
        if not asked and (problem := self._never_pays(samples, candidate)):
            return self._eager(plan, problem)
        seconds = (
            workload.points * (self._samples.count + sum(item.count for item in self._others)) / samples_per_second
        )
        work = f"{workload.points:.0f} points take {seconds:.0f} s on each worker without it"
        if seconds > workload.seconds:
            seconds, work = workload.seconds, f"the budget is {workload.seconds:.0f} s"
        has_packages = system.LINUX and self._device.type == "cpu"
        least = _WORTH_COMPILING_SECONDS if has_packages else _WORTH_COMPILING_WITHOUT_PACKAGES
        pays = asked or seconds >= least
        settled = self._compiled(candidate, samples, plan, workload.compile, builds=pays and not workload.rehearsal)
        if settled is None and pays:
            return self._eager(plan, NOT_IN_A_REHEARSAL, f"a run would: {'asked for' if asked else work}")
        if settled is None:
            return self._eager(plan, "compiling would not pay off", f"{work}, and it does from {least:.0f} s on")
        if settled.plan.compile:
            reason = "asked for" if asked else "compiling pays off" if pays else "its package is there"
            settled = replace(settled, plan=replace(settled.plan, reason=f"compiled: {reason}"))
        return settled

    def _never_pays(self, samples: Samples, plan: MeasurementPlan) -> str:
        """Returns why compiling costs more than it gains, however much is measured, or ""."""
        shapes = len({_shape(batch) for batch in [*samples.batches(plan.batch_size), *self._of_others(plan)]})
        if shapes > _MOST_SHAPES:
            return f"batches have {shapes} shapes, and each would be compiled separately"
        # Matrix products leave little to fuse: perceptrons ran 0.8 to 1.3 times as fast. And while they are not
        # compiled, their first layer is computed once for a plane, which gains more.
        with_parameters = [layer for layer in self._network.modules() if list(layer.parameters(recurse=False))]
        fully_connected = all(isinstance(layer, nn.Linear) for layer in with_parameters)
        return "compiled code of fully connected layers alone is not clearly faster" if fully_connected else ""

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
            with contextlib.suppress(SamplesError):  # it may hold nothing but padding, which has no mean
                self._run(self._network, [batch])
        finally:
            for hook in hooks:
                hook.remove()
        return max(largest)

    def _of_others(self, plan: MeasurementPlan) -> list[Batch]:
        """Returns the first and the last batch of each data set beside the main one."""
        found: list[Batch] = []
        for item in self._others:
            batches = item.batches(plan.batch_size)
            ends = [batches[0], batches[-1]] if len(batches) > 1 else [batches[0]]
            for batch in ends:
                found += place_samples(Samples([batch], batch), self._device, plan.channels_last).batches(None)
        return found

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

    def _compiled(
        self, plan: MeasurementPlan, samples: Samples, eager: MeasurementPlan, wanted: bool | str, *, builds: bool
    ) -> SettledPlan | None:
        """Returns the compiled network, or the eager one and why; None where there is no package and none is built."""
        batches, others = samples.batches(plan.batch_size), self._of_others(plan)
        start = time.perf_counter()
        compiled = Compiled(problem=self._obstacle or (danger() if builds else ""))
        if not compiled.problem:
            compiled = compile_network(
                self._network,
                self._device,
                lambda network: self._run_few(network, batches, others),
                plan,
                self._first_layer,
                builds=builds,
            )
        if compiled.problem:
            note = f"compile={wanted!r} was asked for, but the network runs eagerly: {compiled.problem}."
            return replace(self._eager(eager, compiled.problem), note=note)
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
        first_layer = isinstance(compiled.network, SplitNetwork)
        plan = replace(plan, compiler=compiled.compiler, first_layer=first_layer, details=details)
        return SettledPlan(plan, samples, compiled.network, note)


@dataclass(frozen=True)
class Compiled:
    """The result of compiling.

    Attributes:
        network: the compiled network, or None where it cannot be used, or is not there.
        problem: why it cannot be used.
        compiler: "AOTInductor" or "torch.compile".
        not_packaged: why it was not compiled ahead of time, where that was tried.
        was_there: whether a package of it was.
    """

    network: Callable[..., object] | None = None
    problem: str = ""
    compiler: str = ""
    not_packaged: str = ""
    was_there: bool = False


def compile_network(
    network: nn.Module,
    device: torch.device,
    measure: Callable[[Callable[..., object]], dict[str, float]],
    plan: MeasurementPlan,
    first_layer: FirstLayer | None = None,
    *,
    builds: bool = True,
) -> Compiled:
    """Compiles an eval-mode network for its own weights as inputs, so that it may be moved, and checks its values.

    With ``builds=False`` only a package that is there is used.
    """
    not_packaged, options = "", _cpu_options() if device.type == "cpu" else {}

    def difference(compiled: Callable[..., object]) -> str:
        runs = _RUNS_TO_A_REPLAY if device.type == "cuda" else 1
        *_, found = (measure(compiled) for _ in range(runs))
        return _difference(measure(network), found, plan.precision)

    # A package is loaded by later runs and other workers without the compiler.
    if device.type == "cpu" and plan.compiler != "torch.compile":
        try:
            package = functools.partial(
                PackagedNetwork, folder=package_folder(), threads=plan.threads, options=options, builds=builds
            )
            packaged = package(network) if first_layer is None else SplitNetwork(network, first_layer, package)
            problem = difference(packaged)
            if problem and packaged.found:
                packaged.discard()  # perhaps it is of other code, in a way that the key does not see
                problem = difference(packaged)
        except Exception as error:
            not_packaged = first_line(error)
        else:
            if problem:
                packaged.discard()
                return Compiled(problem=problem)
            packaged.allow_building()
            return Compiled(packaged, compiler="AOTInductor", was_there=packaged.found)
    if not builds:
        return Compiled()
    if device.type == "cpu" and not _has_compiler():
        return Compiled(problem="there is no C++ compiler")
    try:
        with compiler_cache():
            compiled = _compile(network, device, options)
            problem = difference(compiled)
    except Exception as error:
        problem = first_line(error)
    if problem:
        return Compiled(problem=problem)
    return Compiled(compiled, compiler="torch.compile", not_packaged=not_packaged)


def _compile(network: nn.Module, device: torch.device, options: dict[str, Any]) -> Any:
    if device.type == "cpu":
        from torch._inductor import list_options  # which takes a second

        known = set(list_options())
        options = {name: value for name, value in options.items() if name in known}
        return torch.compile(network, dynamic=False, options=options)
    compiled: Any = torch.compile(network, dynamic=False, mode="reduce-overhead")
    # A CUDA graph writes each batch's outputs where those of the batch before are, and a metric may keep them.
    compiled.register_forward_hook(lambda _network, _inputs, outputs: tree_map_only(torch.Tensor, torch.clone, outputs))
    return compiled


def _cpu_options() -> dict[str, Any]:
    """Returns what makes PyTorch's CPU code fast where an activation comes before a pooling layer."""
    # Left alone, the compiler computes the activation inside the pooling loop, which steps over its input and so runs
    # without vector instructions; and its vectorized tanh is several times as slow as one made of a sigmoid.
    return {"realize_acc_reads_threshold": 0, "cpp.use_decompose_tanh": True}


def _difference(expected: dict[str, float], found: dict[str, float], precision: str) -> str:
    """Returns how the compiled network's values differ from the eager one's, or ""."""
    # Compiled code rounds logits otherwise, which shows in a tiny loss; but nothing that is worth a per cent of it.
    logits = {name: min(_LOGITS, _MOST_NOISE * abs(value)) for name, value in expected.items()}
    try:
        check_same_values("the network", expected, found, "compiled", closeness_elsewhere(precision), elsewhere=logits)
    except NondeterministicLossError:
        changed = {name: (value, found[name]) for name, value in expected.items() if found[name] != value}
        return f"compiled it gives other values, eager against compiled: {changed}"
    return ""


def _has_compiler() -> bool:
    return any(map(shutil.which, (os.environ.get("CXX") or "g++", "c++", "clang++")))


def has_images(samples: Samples, network: nn.Module) -> bool:
    """Returns whether the inputs are batches of images for a network with convolutions."""
    inputs = samples.own_batches[0].inputs
    images = isinstance(inputs, torch.Tensor) and inputs.ndim == 4
    return images and any(parameter.ndim == 4 for parameter in network.parameters())


def _even_batches(batch_size: int | None, count: int) -> int | None:
    """Returns a batch size that leaves no remainder, or a small one: each shape is compiled separately."""
    return batch_size if batch_size is None else -(-count // -(-count // batch_size))


def _shape(batch: Batch) -> str:
    tensors = [leaf for leaf in leaves(batch.inputs) if is_tensor(leaf)]
    return repr([(tuple(leaf.shape), leaf.stride(), str(leaf.dtype)) for leaf in tensors])
