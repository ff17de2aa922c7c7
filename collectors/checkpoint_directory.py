"""The directory that a ModelCheckpoint writes to."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from .checkpoint_loading import parse_name
from .validation import check_path


def check_directory(value: Any) -> Path:
    """Returns a directory's real path; nothing is created.

    Raises:
        TypeError: it is no path.
        ValueError: it is blank or too long.
        NotADirectoryError: it, or a part of it, is a file.
        PermissionError: it cannot be written, or cannot be created.
    """
    folder = Path(os.path.realpath(check_path("directory", value)))
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise NotADirectoryError(f"directory must be a directory, but {existing} is a file. Choose another one.")
    if not os.access(existing, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(f"directory must be writable, but {existing} is not. Choose another one.")
    return folder


def make_directory(folder: Path) -> None:
    """Creates a directory, readable for the user alone, unless it is there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_directory(folder)


def unused_prefix(folder: Path, prefix: str, taken: Collection[str]) -> str:
    """Returns the prefix, or ``prefix_1``, ``prefix_2``, ..., the first that no file in the directory has.

    Args:
        folder: the directory.
        prefix: the prefix that is wanted.
        taken: further prefixes that are in use.
    """
    used = {parts[0] for parts in (parse_name(file.name) for file in folder.iterdir()) if parts} | set(taken)
    number, candidate = 0, prefix
    while candidate in used:
        number += 1
        candidate = f"{prefix}_{number}"
    return candidate
