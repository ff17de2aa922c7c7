"""How much memory samples may take."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

from collectors.validation import wrong_type, wrong_value

AUTO = "auto"
_SHARE = 0.5
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+|%)\s*")
_EXPECTED = '"auto" (half of what is free), a number of bytes, or text such as "8GB" or "25%" (of what is free)'


def memory_limit(value: object) -> int | float:
    """Returns the largest number of bytes that samples may take (int), or the share of what is free (float).

    Args:
        value: "auto", a number of bytes, or text such as "8GB" or "25%".

    Raises:
        TypeError: it is neither text nor a whole number.
        ValueError: it is no size.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong_type("sample_memory", _EXPECTED, value)
    if value == AUTO:
        return _SHARE
    if isinstance(value, int):
        size: int | float = value
    else:
        match = _TEXT.fullmatch(value.lower())
        if value.strip().isdigit():
            size = int(value)
        elif match is None or (match[2] != "%" and match[2] not in _UNITS):
            raise wrong_value("sample_memory", _EXPECTED, value)
        elif match[2] == "%":
            size = float(match[1]) / 100
            if size > 1:
                raise wrong_value("sample_memory", _EXPECTED, value)
        else:
            size = int(float(match[1]) * _UNITS[match[2]])
    if size <= 0:
        raise wrong_value("sample_memory", _EXPECTED, value)
    return size


def free_memory() -> float:
    """Returns the bytes that this process may still take: of the machine, its control group and its own limits."""
    found = [_of_machine(), *_of_control_groups()]
    if sys.platform != "win32":
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            found.append(limit - _pages("/proc/self/statm") * os.sysconf("SC_PAGE_SIZE"))
    return max(0.0, min(found))


def size_text(size: float) -> str:
    """Returns a number of bytes in the unit that people would use."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _of_machine() -> float:
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / 2
    return float("inf")


def _of_control_groups() -> list[float]:
    """Returns what this process's group and those around it may still take."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds not in ("", "memory"):
                continue
            root = Path("/sys/fs/cgroup", kinds)
            names = (
                ("memory.max", "memory.current") if not kinds else ("memory.limit_in_bytes", "memory.usage_in_bytes")
            )
            # In a container the path may be that of the host, which is not there; the root is the container then.
            for folder in {root / path.lstrip("/"), *(root / path.lstrip("/")).parents, root}:
                with contextlib.suppress(OSError, ValueError):
                    limit, used = (int((folder / name).read_text()) for name in names)
                    found.append(float(limit - used + _reclaimable(folder)))
    return found


def _reclaimable(folder: Path) -> int:
    """Returns the bytes of files that the kernel keeps in memory and would give up."""
    for line in (folder / "memory.stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _pages(path: str) -> int:
    try:
        return int(Path(path).read_text().split()[0])
    except OSError:
        return 0
