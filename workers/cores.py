"""The CPU cores to which this process is pinned, and those that it may use while nobody else computes."""

from __future__ import annotations

from collectors.files import system

_before_pinning: set[int] = set()


def pin_process(cores: tuple[int, ...]) -> None:
    if not _before_pinning:
        _before_pinning.update(system.usable_cores())
    system.pin_process(cores)


def unpin_thread() -> None:
    """Lets this thread, and processes that it starts, use all cores that the process had before it was pinned."""
    if _before_pinning:
        system.pin_thread(_before_pinning)  # some may have been taken away meanwhile
