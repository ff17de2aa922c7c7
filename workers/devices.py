"""Which devices and CPU cores there are, and how workers share them."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from collectors.validation import wrong_value

CORES_PER_SLOT = 4


def available_cores() -> tuple[int, ...]:
    """Returns the CPU cores that this process may use (affinity mask and container quota respected)."""
    cores = sorted(os.sched_getaffinity(0))
    quota = _container_quota()
    return tuple(cores if quota is None else cores[: max(1, int(quota))])


def gpu_ids() -> tuple[int, ...]:
    """Returns the ids of the NVIDIA GPUs that this process may use; loads no framework."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(range(len([item for item in visible.split(",") if item.strip() not in ("", "-1")])))
    names = (path.name for path in Path("/dev").glob("nvidia*"))
    return tuple(range(sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in names)))


def choose_devices(asked: tuple[int, ...] | None) -> tuple[int, ...]:
    """Returns the device ids of a run on this machine.

    Args:
        asked: ids that the user named, or None: every GPU or, without GPUs, one slot for each group of four cores.

    Raises:
        ValueError: a GPU was asked for that is not there.
    """
    gpus = gpu_ids()
    if asked is None:
        return gpus or tuple(range(max(1, len(available_cores()) // CORES_PER_SLOT)))
    if gpus and not set(asked) <= set(gpus):
        raise wrong_value("device_ids", f"among this machine's GPUs {list(gpus)}", list(asked))
    return asked


def share_cores(slots: int, cores: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Returns disjoint shares of the cores, one per slot; with more slots than cores, cores are shared in turn."""
    if slots > len(cores):
        return tuple((cores[slot % len(cores)],) for slot in range(slots))
    bounds = [round(index * len(cores) / slots) for index in range(slots + 1)]
    return tuple(cores[start:stop] for start, stop in itertools.pairwise(bounds))


def pin_process(cores: tuple[int, ...]) -> None:
    """Restricts every thread of this process to the cores."""
    for task in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue


def _container_quota() -> float | None:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None
