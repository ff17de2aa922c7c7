"""What this machine has for measuring: CPU cores, memory, and GPUs, as its system, its driver and its files tell."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from collectors.files import system

_WSL_LIBRARIES = "/usr/lib/wsl/lib"
# The files with a group's limit and use, of both versions of control groups.
_OF_CONTROL_GROUPS = {
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}
_before_pinning: set[int] = set()


def usable_cores() -> tuple[int, ...]:
    """Returns the CPU cores that this process is allowed; on macOS and Windows all."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def core_quota() -> float | None:
    """Returns how many cores' time a container may take; None where nobody limits it."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def pin_process(cores: Collection[int]) -> None:
    """Restricts every thread of this process to the cores; macOS and Windows cannot."""
    if not _before_pinning:
        _before_pinning.update(usable_cores())
    if system.LINUX:
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)


def unpin_thread() -> None:
    """Lets this thread, and processes that it starts, use all cores that the process had before it was pinned."""
    if system.LINUX and _before_pinning:
        with contextlib.suppress(OSError):  # some may have been taken away meanwhile
            os.sched_setaffinity(0, _before_pinning)


@contextlib.contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Sets environment variables (None: removes them), which processes inherit, for a while."""

    def put(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    before = {name: os.environ.get(name) for name in changes}
    put(changes)
    try:
        yield
    finally:
        put(before)


def cpu_description() -> list[str]:
    """Returns what the system says of one core's model and instructions; nothing where it does not."""
    with contextlib.suppress(OSError):
        lines = itertools.takewhile(bool, Path("/proc/cpuinfo").read_text("utf-8").splitlines())
        return [line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))]
    return []


def nvidia_driver() -> ctypes.CDLL:
    """Returns NVIDIA's library about its GPUs; unlike CUDA itself, it may be used before a process forks."""
    if system.WINDOWS:
        return ctypes.CDLL("nvml.dll")
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ctypes.CDLL(f"{_WSL_LIBRARIES}/libnvidia-ml.so.1")


def nvidia_program() -> str | None:
    """Returns the path of ``nvidia-smi``, which asks the driver as well; None where it is not there."""
    return shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=_WSL_LIBRARIES)


def device_files(names: str) -> list[str]:
    """Returns the files, of names that match, by which Linux shows that there may be devices, and no more."""
    found = sorted(path.name for path in Path("/dev").glob("*"))
    return [f"/dev/{name}" for name in found if re.fullmatch(names, name)]


def free_memory() -> float:
    """Returns the bytes that this process may still take: of the machine, its control group and its own limits."""
    found = [_free_of_machine(), *_free_of_control_groups()]
    if not system.WINDOWS:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            statm = Path("/proc/self/statm")
            pages = int(statm.read_text().split()[0]) if statm.exists() else 0
            found.append(limit - pages * os.sysconf("SC_PAGE_SIZE"))
    return max(0.0, min(found))


def peak_memory() -> int:
    """Returns the most bytes of memory that this process has taken so far; 0 where the system does not say."""
    if system.WINDOWS:
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if system.MACOS else 1024)


def _free_of_machine() -> float:
    """Returns the bytes that are free as far as the system says; half of all where it does not."""
    numbers = _numbers(Path("/proc/meminfo"))
    if "MemAvailable:" in numbers:
        return float(numbers["MemAvailable:"]) * 1024
    if system.WINDOWS:
        status = (ctypes.c_ulonglong * 8)()
        ctypes.cast(status, ctypes.POINTER(ctypes.c_ulong))[0] = ctypes.sizeof(status)
        if ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status)):  # type: ignore[attr-defined]
            return float(status[2])
        return float("inf")
    with contextlib.suppress(OSError, ValueError):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / 2
    return float("inf")


def _free_of_control_groups() -> list[float]:
    """Returns what this process's group and those around it may still take."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds not in _OF_CONTROL_GROUPS:
                continue
            root = Path("/sys/fs/cgroup", kinds)
            # In a container the path may be that of the host, which is not there; the root is the container then.
            for folder in {root / path.lstrip("/"), *(root / path.lstrip("/")).parents, root}:
                with contextlib.suppress(OSError, ValueError):
                    limit, used = (int((folder / name).read_text()) for name in _OF_CONTROL_GROUPS[kinds])
                    # Files that the kernel keeps in memory, and would give up.
                    kept = _numbers(folder / "memory.stat")
                    found.append(float(limit - used + kept.get("inactive_file", kept.get("total_inactive_file", 0))))
    return found


def _numbers(file: Path) -> dict[str, int]:
    """Returns what stands behind the first word of each line in a file of the kernel; nothing where it is not there."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        words = (line.split() for line in file.read_text("ascii").splitlines())
        return {found[0]: int(found[1]) for found in words if len(found) > 1 and found[1].isdigit()}
    return {}


def size_text(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
