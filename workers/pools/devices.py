"""Which devices and CPU cores there are, and how workers share them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import itertools
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from collectors.files import system
from collectors.validation import check_int, wrong_value

from .. import hardware
from ..users_code import warn_user

CORES_PER_SLOT = 4
_NO_DRIVER = "neither its library NVML nor nvidia-smi is there"
_PROGRAM_SECONDS = 60.0


@dataclass(frozen=True)
class WorkerPlace:
    devices: tuple[int, ...]  # ids of its GPUs or, without GPUs, of the slots whose cores it has
    cores: tuple[int, ...] | None = None  # the CPU cores that are its own; None stays where a cluster puts it
    part: int | None = None  # which of the workers on that device it is; None where it has the device for itself

    @property
    def label(self) -> str:
        worker = "the worker" if self.part is None else f"worker {self.part}"
        ids = ", ".join(str(device) for device in self.devices)
        return f"{worker} of device{'s' if len(self.devices) > 1 else ''} {ids}"


@dataclass(frozen=True)
class WorkerLayout:
    """How workers and devices belong together; at least one of the two numbers is 1."""

    # With GPUs, both were tried only on logical ones, which Ray hands out although the machine has none.
    devices_per_worker: int = 1  # GPUs that each worker sees, or slots whose cores it joins
    workers_per_device: int = 1  # on each GPU, or among which a slot's cores are split

    def __post_init__(self) -> None:
        check_int("devices_per_worker", self.devices_per_worker, minimum=1)
        check_int("workers_per_device", self.workers_per_device, minimum=1)
        if self.devices_per_worker > 1 and self.workers_per_device > 1:
            raise ValueError(
                "only one of devices_per_worker and workers_per_device may exceed 1, but got "
                f"{self.devices_per_worker} and {self.workers_per_device}; a worker has several devices, or shares one."
            )

    @property
    def share(self) -> float:
        """How much of a device, or how many devices, one worker asks for."""
        return 1 / self.workers_per_device if self.workers_per_device > 1 else self.devices_per_worker

    def workers(self, devices: int) -> int:
        """Returns how many workers that many devices give; devices that are left over stay free."""
        return devices // self.devices_per_worker * self.workers_per_device

    def check_devices(self, devices: Sequence[int]) -> None:
        """Checks that no device is left over: their number is a multiple of ``devices_per_worker``."""
        if len(devices) % self.devices_per_worker:
            wanted = f"ids whose number is a multiple of devices_per_worker={self.devices_per_worker}"
            raise wrong_value("device_ids", wanted, list(devices))

    def places(self, devices: Sequence[int], *, cores: tuple[int, ...] | None) -> tuple[WorkerPlace, ...]:
        """Returns each worker's place, without cores where a cluster decides; a device that is left over has none."""
        together, parts = self.devices_per_worker, self.workers_per_device
        groups = [tuple(devices[start : start + together]) for start in range(0, len(devices) - together + 1, together)]
        places = []
        for group, share in zip(groups, share_cores(len(groups), cores), strict=True):
            for part, own in enumerate(share_cores(parts, share)):
                places.append(WorkerPlace(group, own, part if parts > 1 else None))
        return tuple(places)


def available_cores() -> tuple[int, ...]:
    """Returns the CPU cores that this process may use: by its affinity, a container's quota and Slurm's share."""
    cores = hardware.usable_cores()
    # Not every cluster binds a task of Slurm to its cores.
    share = os.environ.get("SLURM_CPUS_PER_TASK", "")
    limits = [limit for limit in (hardware.core_quota(), int(share) if share.isdigit() else None) if limit is not None]
    return cores[: max(1, int(min(limits)))] if limits else cores


def gpu_ids() -> tuple[int, ...]:
    """Returns the ids of the NVIDIA GPUs that this process may use; loads no framework."""
    # The driver says how many there are, and ``CUDA_VISIBLE_DEVICES`` which of them count: a name of none is no GPU.
    count = driver_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not count:
        return tuple(range(count))
    there = itertools.takewhile(lambda name: not name.isdigit() or int(name) < count, visible_gpus(visible))
    return tuple(range(len(list(there))))


def driver_gpus() -> int:
    """Returns how many GPUs NVIDIA's driver has on this machine, which within WSL2 are no files below ``/dev``."""
    return _ask_driver()[0]


def apple_gpu() -> str:
    """Returns PyTorch's name of this Mac's GPU, or "" where there is none that PyTorch can use."""
    if not system.MACOS or importlib.util.find_spec("torch") is None:
        return ""
    import torch

    return "mps" if torch.backends.mps.is_available() else ""


def why_the_cpu(*, of_ray: bool = False) -> str:
    """Returns why the CPU measures on a machine (or running Ray) that may have a GPU; "" where nothing hints at one."""
    count = driver_gpus()
    if of_ray:
        return f"Ray offers no GPU, but NVIDIA's driver has {count} here; see ray start --num-gpus" if count else ""
    if count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return "" if gpu_ids() else f"CUDA_VISIBLE_DEVICES={visible!r} names none of NVIDIA's {count} GPUs here"
    if system.MACOS:
        if gpu := apple_gpu():
            return f"this Mac's GPU ({gpu}) is for one worker without Ray; leave device_ids out to use it"
        return "PyTorch is not there, or cannot use this Mac's GPU (torch.backends.mps.is_available())"
    (_, problem), files = _ask_driver(), hardware.device_files(r"nvidia\d+|dxg|kfd")
    if problem and (problem != _NO_DRIVER or set(files) - {"/dev/kfd"}):
        return (
            f"NVIDIA's driver does not say whether there is a GPU{_shown(files)}: {problem}. Install it, or start the "
            "container with it (--gpus all, NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
        )
    return (
        f"GPUs are used if they are NVIDIA's or Apple's, and NVIDIA's driver has none{_shown(files)}" if files else ""
    )


def tell_why_the_cpu(*, of_ray: bool = False) -> None:
    """Warns, once for each run, where the CPU measures on a machine that may have a GPU."""
    if why := why_the_cpu(of_ray=of_ray):
        warn_user(f"the CPU measures: {why}.")


def _shown(files: Sequence[str]) -> str:
    return f" (there is {', '.join(files)})" if files else ""


@functools.cache
def _ask_driver() -> tuple[int, str]:
    """Returns how many GPUs NVIDIA's driver has, and why nobody knows where it does not answer."""
    problem = _NO_DRIVER
    with contextlib.suppress(OSError, AttributeError):
        library, count = hardware.nvidia_driver(), ctypes.c_uint(0)
        failure = library.nvmlInit_v2()
        if not failure:
            failure = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
            library.nvmlShutdown()
        if not failure:
            return count.value, ""
        problem = f"its library NVML gives error {failure}"
    if program := hardware.nvidia_program():
        try:
            asked = subprocess.run(
                [program, "--list-gpus"], capture_output=True, text=True, timeout=_PROGRAM_SECONDS, check=True
            )
            return sum(line.startswith("GPU ") for line in asked.stdout.splitlines()), ""
        except (OSError, subprocess.SubprocessError) as error:
            said = str(error).removesuffix(".")
            problem = said if problem == _NO_DRIVER else f"{problem}; {said}"
    return 0, problem


def visible_gpus(variable: str) -> list[str]:
    """Returns what CUDA sees in ``CUDA_VISIBLE_DEVICES``: numbers or UUIDs (GPUs, MIG) up to an invalid name."""
    names = [name.strip() for name in variable.split(",")]
    return list(itertools.takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), names))


def gpu_numbers(names: Sequence[str], visible: Sequence[str]) -> tuple[int, ...]:
    """Returns GPUs' ids on their machine: numbers or, of UUIDs, places among the visible (empty where unknown)."""
    places = {name: place for place, name in enumerate(visible)}
    numbers = (int(name) if name.isdigit() else places.get(name) for name in names)
    return tuple(number for number in numbers if number is not None)


def choose_devices(asked: tuple[int, ...] | None) -> tuple[int, ...]:
    """Returns the device ids of a run on this machine; None takes all GPUs or, without any, a slot per four cores."""
    gpus = gpu_ids()
    if asked is None:
        return gpus or tuple(range(max(1, len(available_cores()) // CORES_PER_SLOT)))
    if gpus and not set(asked) <= set(gpus):
        raise wrong_value("device_ids", f"among this machine's GPUs {list(gpus)}", list(asked))
    return asked


def tell_of_devices(asked: Sequence[int]) -> None:
    """Warns where the CPU measures although there may be a GPU, and of ids that no core stands behind."""
    tell_why_the_cpu()
    # Somebody may have meant a GPU, or how many workers.
    cores = len(available_cores())
    if gpu_ids() or max(asked) < cores:
        return
    workers = "one worker computes on all of them" if len(asked) == 1 else f"{len(asked)} workers share them"
    warn_user(
        f"device_ids {list(asked)} go beyond this machine, which has no NVIDIA GPU and {cores} CPU "
        f"core{'' if cores == 1 else 's'}: without these an id is only the number of a slot, so {workers}. "
        f"Ids from 0 to {cores - 1} use everything that is here.",
    )


def share_cores(slots: int, cores: tuple[int, ...] | None) -> tuple[tuple[int, ...] | None, ...]:
    """Returns disjoint shares of the cores, one per slot; with more slots than cores, cores are shared in turn."""
    if cores is None:
        return (None,) * slots
    if slots > len(cores):
        return tuple((cores[slot % len(cores)],) for slot in range(slots))
    bounds = [round(index * len(cores) / slots) for index in range(slots + 1)]
    return tuple(cores[start:stop] for start, stop in itertools.pairwise(bounds))


def local_processes_suffice() -> bool:
    """Returns whether workers of this machine need nothing of Ray: no GPUs to hand out."""
    return not gpu_ids() and not hardware.device_files(r"davinci\d.*")
