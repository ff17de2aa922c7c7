"""Compiles a PyTorch network, and checks that it still gives the same values."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from ...errors import NondeterministicLossError, first_line
from ...measurement_plan import MeasurementPlan
from ...measuring.checks import check_same_values, closeness_elsewhere
from .ahead_of_time import TRUSTED, forget_instructions
from .first_layer import FirstLayer, SplitNetwork
from .packages import PackagedNetwork, compiler_cache, package_folder

_LOGITS = 10.0
_MOST_NOISE = 1e6
# The first run of a CUDA graph warms up, the second is recorded, the third is a replay.
_RUNS_TO_A_REPLAY = 3
# Left alone, the compiler computes an activation that comes before a pooling layer inside the pooling loop, which steps
# over its input and so runs without vector instructions; and its vectorized tanh is several times as slow as one made
# of a sigmoid.
_CPU_OPTIONS = {"realize_acc_reads_threshold": 0, "cpp.use_decompose_tanh": True}


@dataclass(frozen=True)
class Compiled:
    network: Callable[..., object] | None = None  # None where it cannot be used, or is not there
    problem: str = ""  # why it cannot be used
    compiler: str = ""  # "AOTInductor" or "torch.compile"
    not_packaged: str = ""  # why it was not compiled ahead of time, where that was tried
    was_there: bool = False  # whether a package of it was


def compile_network(
    network: nn.Module,
    device: torch.device,
    measure: Callable[[Callable[..., object]], dict[str, float]],
    plan: MeasurementPlan,
    first_layer: FirstLayer | None = None,
    *,
    builds: bool = True,  # otherwise only a package that is there is used
) -> Compiled:
    """Compiles an eval-mode network for its own weights as inputs, so that it may be moved, and checks its values."""
    not_packaged, options = "", _CPU_OPTIONS if device.type == "cpu" else {}

    def difference(compiled: Callable[..., object]) -> str:
        """Returns how the compiled network's values differ from the eager one's, or ""."""
        *_, found = (measure(compiled) for _ in range(_RUNS_TO_A_REPLAY if device.type == "cuda" else 1))
        expected, close = measure(network), closeness_elsewhere(plan.precision)
        # Compiled code rounds logits otherwise, which shows in a tiny loss; but nothing that is worth a per cent of it.
        logits = {name: min(_LOGITS, _MOST_NOISE * abs(value)) for name, value in expected.items()}
        try:
            check_same_values("the network", expected, found, "compiled", close, elsewhere=logits)
        except NondeterministicLossError:
            changed = {name: (value, found[name]) for name, value in expected.items() if found[name] != value}
            return f"compiled it gives other values, eager against compiled: {changed}"
        return ""

    # A package is loaded by later runs and other workers without the compiler.
    if device.type == "cpu" and plan.compiler != "torch.compile":
        try:
            how = dict[str, Any](folder=package_folder(), threads=plan.threads, options=options, builds=builds)
            packaged = SplitNetwork(network, first_layer, **how) if first_layer else PackagedNetwork(network, **how)
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
            packaged.builds = True  # measuring may meet further shapes of inputs
            return Compiled(packaged, compiler="AOTInductor", was_there=packaged.found)
    if not builds:
        return Compiled()
    compilers = os.environ.get("CXX") or "g++", "c++", "clang++"
    if device.type == "cpu" and not any(map(shutil.which, compilers)):
        return Compiled(problem="there is no C++ compiler")

    def attempt(options: dict[str, Any]) -> tuple[Any, str]:
        compiled = _compile(network, device, options)
        return compiled, difference(compiled)

    try:
        with compiler_cache():
            try:
                compiled, problem = attempt(options | TRUSTED)
            except Exception:
                if device.type != "cpu":
                    raise
                # Perhaps the compiler is older than the CPU.
                forget_instructions()
                compiled, problem = attempt(options)
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
