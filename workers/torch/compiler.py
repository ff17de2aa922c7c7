"""Compiles a PyTorch network, and checks that it still gives the same values."""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from ..errors import NondeterministicLossError, first_line
from ..measurement_plan import MeasurementPlan
from ..measuring.checks import check_same_values, closeness_elsewhere
from .compile_record import CompileCache, compile_options, wanted_options
from .first_layer import FirstLayer
from .packages import PackagedNetwork
from .split_network import SplitNetwork

_LOGITS = 10.0
_MOST_NOISE = 1e6


@dataclass(frozen=True)
class Compiled:
    """The result of compiling.

    Attributes:
        network: the compiled network, or None where it cannot be used.
        seconds: what it cost, the first pass included.
        problem: why it cannot be used.
        compiler: "AOTInductor" or "torch.compile".
        not_packaged: why it was not compiled ahead of time, where that was tried.
    """

    network: Callable[..., object] | None
    seconds: float = 0.0
    problem: str = ""
    compiler: str = ""
    not_packaged: str = ""


def compile_network(
    network: nn.Module,
    device: torch.device,
    cache: CompileCache,
    measure: Callable[[Callable[..., object]], dict[str, float]],
    plan: MeasurementPlan,
    first_layer: FirstLayer | None = None,
) -> Compiled:
    """Compiles an eval-mode network for its own weights as inputs, so that it may be moved, and checks its values."""
    expected = measure(network)
    not_packaged = ""
    # A package is loaded by later runs and other workers without the compiler.
    if device.type == "cpu" and plan.compiler != "torch.compile":
        start = time.perf_counter()
        try:
            package = functools.partial(
                PackagedNetwork, folder=cache.packages, threads=plan.threads, options=wanted_options(device)
            )
            packaged = package(network) if first_layer is None else SplitNetwork(network, first_layer, package)
            problem = _difference(expected, lambda: measure(packaged), plan.precision)
            if problem and packaged.found:
                packaged.discard()  # perhaps it is of other code, in a way that the key does not see
                problem = _difference(expected, lambda: measure(packaged), plan.precision)
        except Exception as error:
            not_packaged = first_line(error)
        else:
            if problem:
                packaged.discard()
                return Compiled(None, problem=problem)
            return Compiled(packaged, time.perf_counter() - start, compiler="AOTInductor")
    if device.type == "cpu" and not _has_compiler():
        return Compiled(None, problem="there is no C++ compiler")
    try:
        start = time.perf_counter()
        compiled = torch.compile(network, dynamic=False, options=compile_options(device))
        with cache.in_use():
            problem = _difference(expected, lambda: measure(compiled), plan.precision)
    except Exception as error:
        problem = first_line(error)
    if problem:
        return Compiled(None, problem=problem)
    return Compiled(compiled, time.perf_counter() - start, compiler="torch.compile", not_packaged=not_packaged)


def _difference(expected: dict[str, float], measure: Callable[[], dict[str, float]], precision: str) -> str:
    """Returns how the compiled network's values differ from the eager one's, or ""."""
    found = measure()
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
