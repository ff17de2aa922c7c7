"""Remembers what compiling a network cost and gained (PyTorch), so that a forecast knows before it compiles."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from collectors.networks.batches import leaves

from ..measurement_plan import MeasurementPlan, Workload
from ..samples.batches import Batch, is_tensor
from ..samples.samples import Samples

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_COLD_SECONDS = (30.0, 0.25)
_WARM_SECONDS = (3.0, 0.05)
_SPEED_UP = 1.4
_MOST_SHAPES = 2
CLEARLY_FASTER = 1.05


@dataclass(frozen=True)
class CompileRecord:
    """What compiling costs and gains.

    Attributes:
        cold_seconds: with an empty cache.
        warm_seconds: with everything in the cache.
        speed_up: how many times as fast the compiled network is.
        batch_size: for which it was compiled; another one would have to be compiled as well.
        compiled: whether this was measured; if not, it is a guess from the size of the network.
    """

    cold_seconds: float
    warm_seconds: float
    speed_up: float
    batch_size: int | None
    compiled: bool = True


def forecast_compile(
    record: CompileRecord, seconds_per_point: float, workload: Workload, shapes: int
) -> tuple[bool, str, str]:
    """Returns whether compiling pays off, why in words without a measured figure, and the figures.

    Args:
        record: what it costs and gains.
        seconds_per_point: of the eager network, on one worker.
        workload: how many points are measured.
        shapes: how many shapes of batches there are, each of which is compiled separately.
    """
    if shapes > _MOST_SHAPES:
        return False, f"batches have {shapes} shapes, and each would be compiled separately", ""
    known = "measured before" if record.compiled else "an estimate"
    if record.speed_up < CLEARLY_FASTER:
        return False, "compiled code is not clearly faster", f"{record.speed_up:.2f} times as fast ({known})"
    eager = min(workload.points * seconds_per_point, workload.seconds)
    cost = record.warm_seconds if record.compiled else record.cold_seconds * shapes
    if workload.workers > 1 and not record.compiled:
        cost += record.warm_seconds  # the others wait until the first has filled the cache
    gain = eager * (1 - 1 / record.speed_up)
    limited = workload.seconds < workload.points * seconds_per_point
    work = f"{workload.points:.0f} points take {eager:.0f} s on each worker without it"
    text = (
        f"{f'the budget is {eager:.0f} s' if limited else work}, compiling takes {cost:.0f} s "
        f"and makes it {record.speed_up:.2f} times as fast ({known})"
    )
    pays = gain > cost
    return pays, "compiling pays off" if pays else "compiling would not pay off", text


class CompileCache:
    """Compiled code, and records of what compiling cost, in one folder, so that they vanish together.

    Args:
        network: what is compiled.
        plan: how it will run.
        samples: in the layout that it will get them.
        device: where.
    """

    def __init__(self, network: nn.Module, plan: MeasurementPlan, samples: Samples, device: torch.device) -> None:
        self.folder = _users_folder() or cache_folder() / "torchinductor"
        self._layers = sum(1 for layer in network.modules() if not any(layer.children()))
        identity = repr(
            (
                [(name, type(layer).__module__, type(layer).__qualname__) for name, layer in network.named_modules()],
                str(network),
                [(name, tuple(item.shape), str(item.dtype)) for name, item in network.named_parameters()],
                samples.count,
                _shape(samples.own_batches[0], 1),
                plan.batch_size is None,
                plan.threads,
                torch.__version__,
                compile_options(device),
                _hardware(device),
            )
        )
        self._path = self.folder / "summary_landscape" / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"

    def record(self) -> CompileRecord:
        """Returns what was measured, or a guess from the number of layers."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return CompileRecord(**json.loads(self._path.read_text()))
        return self._guess()

    def _guess(self) -> CompileRecord:
        cold, warm = (base + slope * self._layers for base, slope in (_COLD_SECONDS, _WARM_SECONDS))
        return CompileRecord(cold, warm, _SPEED_UP, None, compiled=False)

    def keep(self, seconds: float, speed_up: float, batch_size: int | None) -> None:
        """Remembers what compiling cost and gained, if the folder can be written."""
        before = self.record()
        if before.compiled and before.batch_size == batch_size:
            # The first run found the cache empty, later ones do not.
            record = replace(before, warm_seconds=seconds, speed_up=speed_up)
        else:
            record = CompileRecord(seconds, min(self._guess().warm_seconds, seconds), speed_up, batch_size)
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, suffix=".tmp", delete=False) as file:
                json.dump(asdict(record), file)
            Path(file.name).replace(self._path)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Lets PyTorch keep compiled code in this folder; the environment is the user's again afterwards."""
        before = os.environ.get(CACHE_VARIABLE)
        os.environ[CACHE_VARIABLE] = str(self.folder)
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(CACHE_VARIABLE, None)
            else:
                os.environ[CACHE_VARIABLE] = before


def compile_options(device: torch.device) -> dict[str, str | int | bool | Callable[..., Any]]:
    """Returns what makes PyTorch's CPU code fast where an activation comes before a pooling layer.

    Left alone, the compiler computes the activation inside the pooling loop, which steps over its input and so runs
    without vector instructions; and its vectorized tanh is several times as slow as the same from a sigmoid.
    """
    if device.type != "cpu":
        return {}
    wanted: dict[str, str | int | bool | Callable[..., Any]] = {
        "realize_acc_reads_threshold": 0,
        "cpp.use_decompose_tanh": True,
    }
    import torch._inductor

    known = set(torch._inductor.list_options())
    return {name: value for name, value in wanted.items() if name in known}


def cache_folder() -> Path:
    """Returns the folder of what can be made again: ``$XDG_CACHE_HOME/summary-landscape``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "summary-landscape"


def _users_folder() -> Path | None:
    """Returns the user's folder of compiled code, or None: PyTorch itself may have set the variable, to its default."""
    folder = os.environ.get(CACHE_VARIABLE)
    module = sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    default = module.default_cache_dir() if module is not None else None
    return Path(folder) if folder and folder != default else None


def count_shapes(batches: Sequence[Batch]) -> int:
    """Returns how many shapes of batches there are."""
    return len({_shape(batch) for batch in batches})


def _shape(batch: Batch, first_axis: int = 0) -> str:
    tensors = [leaf for leaf in leaves(batch.inputs) if is_tensor(leaf)]
    return repr([(tuple(leaf.shape[first_axis:]), leaf.stride()[first_axis:], str(leaf.dtype)) for leaf in tensors])


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
