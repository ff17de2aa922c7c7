"""Writes a landscape that no survey is writing."""

from __future__ import annotations

import os
from pathlib import Path

from collectors.validation import check_bool, check_path

from .errors import LandscapeWriteError
from .landscape_data import LandscapeData
from .landscape_file import write_landscape
from .landscape_lock import lock_landscape
from .output_folders import check_folder_of


def save_landscape(path: str | os.PathLike[str], data: LandscapeData, *, overwrite: bool = False) -> Path:
    """Writes a landscape file and returns its path.

    Raises:
        LandscapeLockedError: a survey is writing that file.
        LandscapeWriteError: a file is there and ``overwrite`` is false, or it cannot be written.
    """
    target = check_path("path", path)
    check_bool("overwrite", overwrite)
    check_folder_of(target)
    with lock_landscape(target):
        if os.path.lexists(target) and not overwrite:
            raise already_there(target)
        write_landscape(target, data)
    return target


def already_there(target: Path) -> LandscapeWriteError:
    """Returns the error for a file that may not be replaced."""
    return LandscapeWriteError(
        f"{target} exists and was left as it is. Pass overwrite=True (--overwrite) to replace it, or give another name."
    )
