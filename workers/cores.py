"""The CPU cores to which this process is pinned, and those that it may use while nobody else computes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_before_pinning: set[int] = set()


def pin_process(cores: tuple[int, ...]) -> None:
    """Restricts every thread of this process to the cores."""
    if not _before_pinning:
        _before_pinning.update(os.sched_getaffinity(0))
    for task in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:
            continue


def unpin_thread() -> None:
    """Lets this thread, and processes that it starts, use all cores that the process had before it was pinned."""
    if _before_pinning:
        with contextlib.suppress(OSError):  # they may have been taken away meanwhile
            os.sched_setaffinity(0, _before_pinning)
