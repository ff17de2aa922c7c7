"""Compiles a network, and keeps the compiled one only where it computes the same (PyTorch)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from .errors import NondeterministicLossError
from .pool import check_same_values
from .torch_compile_record import CompileCache, compile_options

_REPEATS = 3


@dataclass(frozen=True)
class Compiled:
    """What came of compiling.

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
        check_same_values("the network", expected, found, "compiled")
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
