"""Which files a command has written so far: what it may promise when it is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from collectors.files.places import AnyPath

_files: ContextVar[dict[str, None] | None] = ContextVar("kept_files", default=None)


@contextmanager
def noting_files() -> Iterator[dict[str, None]]:
    """Gives the names of the files that hold something measured, in the order in which they were begun."""
    found: dict[str, None] = {}
    token = _files.set(found)
    try:
        yield found
    finally:
        _files.reset(token)


def note_file(path: AnyPath) -> None:
    """Notes that a file now holds what has been measured so far."""
    found = _files.get()
    if found is not None:
        found[str(path)] = None
