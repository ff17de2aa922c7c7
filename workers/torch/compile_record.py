"""Remembers what compiling a network cost and gained (PyTorch), so that a forecast knows before it compiles."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from collectors.files import system
from collectors.networks.batches import leaves
from collectors.validation import check_bool, check_float, check_int

from ..measurement_plan import MeasurementPlan, Workload
from ..samples.batches import Batch, is_tensor
from ..samples.samples import Samples
from .packages import PackageFolder, check_private, make_private

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
# A number, and more for each layer: LeNet-5 took 12.4 CPU seconds, ResNet-20 15.2, a perceptron 11.1. Three of them go
# by beside the others where there are two cores.
_COLD_SECONDS_OF_PACKAGE = (7.5, 0.12)
_COLD_SECONDS = (20.0, 0.32)
# A package is loaded without the compiler; elsewhere PyTorch finds its own code in its cache.
_WARM_SECONDS_OF_PACKAGE = (0.1, 0.0)
_WARM_SECONDS = (3.0, 0.05)
_SPEED_UP, _SPEED_UP_OF_CONVOLUTIONS = 1.4, 1.6
# Matrix products leave little to fuse: perceptrons ran 0.8 to 1.3 times as fast. And while they are not compiled, their
# first layer is computed once for a plane, which gains more.
_SPEED_UP_OF_PERCEPTRONS = 1.0
_MOST_SHAPES = 2
_WORTH_KEEPING_SECONDS = 0.5
_RECORDS_VERSION = 3
# What looking again may take of the work, where compiled code was not faster: another program may have disturbed it.
_WORTH_A_LOOK = 0.02
CLEARLY_FASTER = 1.05
_NOT_USED = "compiled code could not be used before"
NOT_FASTER = "compiled code is not clearly faster"


@dataclass(frozen=True)
class CompileRecord:
    """What compiling costs and gains.

    Attributes:
        cold_seconds: with an empty cache.
        warm_seconds: with everything in the cache.
        speed_up: how many times as fast the compiled network is; 0 where it could not be used.
        batch_size: for which it was compiled; another one would have to be compiled as well.
        compiled: whether this was measured; if not, it is a guess from the size of the network.
        missed_seconds: what compiled code would have saved in earlier runs that were not compiled.
    """

    cold_seconds: float
    warm_seconds: float
    speed_up: float
    batch_size: int | None
    compiled: bool = True
    missed_seconds: float = 0.0

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> CompileRecord:
        """Returns a record that was read from a file; TypeError or ValueError where its entries are not a record's."""
        found = cls(**record)
        for name in ("cold_seconds", "warm_seconds", "speed_up", "missed_seconds"):
            check_float(name, getattr(found, name), minimum=0)
        if found.batch_size is not None:
            check_int("batch_size", found.batch_size, minimum=1)
        check_bool("compiled", found.compiled)
        return found


@dataclass(frozen=True)
class CompileForecast:
    """Whether compiling pays off.

    Attributes:
        reason: why, in words without a measured figure.
        details: the figures.
        gain: seconds that compiled code would save.
    """

    pays: bool
    reason: str
    details: str = ""
    gain: float = 0.0


def forecast_compile(
    record: CompileRecord, seconds_per_point: float, workload: Workload, shapes: int
) -> CompileForecast:
    """Returns whether compiling saves more than it costs; the seconds are of the eager network on one worker."""
    if shapes > _MOST_SHAPES:
        return CompileForecast(False, f"batches have {shapes} shapes, and each would be compiled separately")
    known = "measured before" if record.compiled else "an estimate"
    eager = min(workload.points * seconds_per_point, workload.seconds)
    cost = record.warm_seconds if record.compiled else record.cold_seconds * shapes
    if workload.workers > 1 and not record.compiled:
        cost += record.warm_seconds  # the others wait until the first has filled the cache
    if record.speed_up < CLEARLY_FASTER:
        # A guess that nothing is gained is no measurement that could have been disturbed.
        worth_a_look = record.compiled and cost < _WORTH_A_LOOK * eager
        reason = "compiling pays off" if worth_a_look else NOT_FASTER if record.speed_up else _NOT_USED
        details = f"{record.speed_up:.2f} times as fast ({known})" if record.speed_up else ""
        return CompileForecast(worth_a_look, reason, details)
    gain = eager * (1 - 1 / record.speed_up)
    limited = workload.seconds < workload.points * seconds_per_point
    work = f"{workload.points:.0f} points take {eager:.0f} s on each worker without it"
    text = (
        f"{f'the budget is {eager:.0f} s' if limited else work}, compiling takes {cost:.0f} s "
        f"and makes it {record.speed_up:.2f} times as fast ({known})"
    )
    # Compiled code is kept: where runs without it could have saved its cost by now, the next one compiles.
    if gain <= cost < gain + record.missed_seconds:
        text += f", which would have saved {record.missed_seconds:.0f} s in earlier runs"
        return CompileForecast(True, "compiling pays off over several runs", text, gain)
    pays = gain > cost
    return CompileForecast(pays, "compiling pays off" if pays else "compiling would not pay off", text, gain)


class CompileCache:
    """Compiled code, and records of what compiling cost, in one folder, so that they vanish together."""

    def __init__(self, network: nn.Module, plan: MeasurementPlan, samples: Samples, device: torch.device) -> None:
        users = _users_folder()
        self._is_users, self.folder = users is not None, users or cache_folder() / "torchinductor"
        self._layers = sum(1 for layer in network.modules() if not any(layer.children()))
        self._has_convolutions = any(parameter.ndim == 4 for parameter in network.parameters())
        self._is_perceptron = _is_perceptron(network)
        self._is_packaged = device.type == "cpu"
        identity = repr(
            (
                _RECORDS_VERSION,
                [(name, type(layer).__module__, type(layer).__qualname__) for name, layer in network.named_modules()],
                str(network),
                [(name, tuple(item.shape), str(item.dtype)) for name, item in network.named_parameters()],
                samples.count,
                # In the layout in which the network will get them.
                _shape(samples.own_batches[0], 1),
                plan.batch_size is None,
                plan.threads,
                plan.precision,
                plan.first_layer,
                torch.__version__,
                wanted_options(device),
                _hardware(device),
            )
        )
        self.packages = PackageFolder(cache_folder() / "packages", self.in_use)
        self.key = hashlib.sha256(identity.encode()).hexdigest()[:32]
        self._path = self.folder / "summary_landscape" / f"{self.key}.json"

    def danger(self) -> str:
        """Returns why no code may be kept in these folders and run from them; "" where they are this user's alone."""
        try:
            make_private(self.packages.path)
            if self._is_users:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                check_private(self.folder, forbidden=0o022)
            else:
                make_private(self.folder)
        except OSError as error:
            names = "XDG_CACHE_HOME" + (f" and {CACHE_VARIABLE}" if self._is_users else "")
            return f"the folder of compiled code is not safe ({error}); set {names} to a folder that is"
        return ""

    def record(self) -> CompileRecord:
        """Returns what was measured, or a guess from the number of layers."""
        with contextlib.suppress(ValueError, TypeError):
            return CompileRecord.from_json(read_record(self._path))
        return self._guess()

    def _guess(self) -> CompileRecord:
        warm_seconds = _WARM_SECONDS_OF_PACKAGE if self._is_packaged else _WARM_SECONDS
        cold_seconds = _COLD_SECONDS_OF_PACKAGE if self._is_packaged else _COLD_SECONDS
        cold, warm = (base + slope * self._layers for base, slope in (cold_seconds, warm_seconds))
        speed_up = _SPEED_UP_OF_CONVOLUTIONS if self._has_convolutions else _SPEED_UP
        speed_up = _SPEED_UP_OF_PERCEPTRONS if self._is_perceptron else speed_up
        return CompileRecord(cold, warm, speed_up, None, compiled=False)

    def keep(self, seconds: float, speed_up: float, batch_size: int | None) -> None:
        """Remembers what compiling cost and gained, if the folder can be written."""
        before = self.record()
        if before.compiled and before.batch_size == batch_size:
            # The first run found the cache empty, later ones do not; one that did, or that waited for others, is none.
            warm_seconds = min(before.warm_seconds, seconds)
            self._write(replace(before, warm_seconds=warm_seconds, speed_up=speed_up))
        else:
            self._write(CompileRecord(seconds, min(self._guess().warm_seconds, seconds), speed_up, batch_size))

    def keep_failed(self, seconds: float) -> None:
        """Remembers that compiled code could not be used, and how long it took to find that out."""
        self._write(CompileRecord(seconds, seconds, 0.0, None))

    def keep_missed(self, seconds: float) -> None:
        """Remembers that a run was not compiled, and what compiled code would have saved."""
        before = self.record()
        if not before.compiled and seconds > _WORTH_KEEPING_SECONDS:
            self._write(replace(before, missed_seconds=before.missed_seconds + seconds))

    def _write(self, record: CompileRecord) -> None:
        write_record(self._path, asdict(record))

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


def read_record(path: Path) -> dict[str, Any]:
    """Returns a record, or nothing where it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_text("utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def write_record(path: Path, record: Mapping[str, object]) -> None:
    """Writes a record, if the folder can be written."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
            json.dump(record, file)
        system.replace(Path(file.name), path)


def wanted_options(device: torch.device) -> dict[str, str | int | bool | Callable[..., Any]]:
    """Returns what makes PyTorch's CPU code fast where an activation comes before a pooling layer."""
    # Left alone, the compiler computes the activation inside the pooling loop, which steps over its input and so runs
    # without vector instructions; and its vectorized tanh is several times as slow as one made of a sigmoid.
    return {"realize_acc_reads_threshold": 0, "cpp.use_decompose_tanh": True} if device.type == "cpu" else {}


def compile_options(device: torch.device) -> dict[str, str | int | bool | Callable[..., Any]]:
    """Returns those of the wanted options that this version knows; loads the compiler, which takes a second."""
    wanted = wanted_options(device)
    if not wanted:
        return {}
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


def _is_perceptron(network: nn.Module) -> bool:
    """Returns whether all parameters are those of fully connected layers."""
    with_parameters = [layer for layer in network.modules() if list(layer.parameters(recurse=False))]
    return all(isinstance(layer, nn.Linear) for layer in with_parameters)


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
