"""How a landscape is saved: its folder is made, and a file that is there stays unless the user says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

from collectors.files.places import check_can_be_directory, check_can_be_file
from collectors.validation import check_bool, check_path

from ..errors import LandscapeWriteError
from .data import LandscapeData
from .landscape_file import write_landscape
from .lock import lock_landscape


def make_output_folder(name: str, folder: Path) -> Path:
    """Makes the folder of landscape files, and those above it, where they are missing.

    Args:
        name: of the argument, for an error's text.
        folder: an absolute path.

    Returns:
        The folder.

    Raises:
        NotADirectoryError: it, or a part of it, is a file.
        LandscapeWriteError: it cannot be made.
    """
    check_can_be_directory(name, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LandscapeWriteError(
            f"{name} {folder} cannot be made: {error.strerror}. Give a directory in which you may write, such as "
            "landscapes."
        ) from error
    return folder


def save_landscape(path: str | os.PathLike[str], data: LandscapeData, *, overwrite: bool = False) -> Path:
    """Writes a landscape file and returns its path.

    Raises:
        NotADirectoryError: the file's directory does not exist.
        LandscapeLockedError: a survey is writing that file.
        LandscapeWriteError: a file is there and ``overwrite`` is false, or it cannot be written.
    """
    target = check_path("path", path)
    check_bool("overwrite", overwrite)
    check_can_be_file("path", target)
    with lock_landscape(target):
        if os.path.lexists(target) and not overwrite:
            raise already_there(target)
        write_landscape(target, data)
    return target


def already_there(target: Path) -> LandscapeWriteError:
    """Returns the error for a file that may not be replaced."""
    return LandscapeWriteError(
        f"{target} exists and was left as it is. Pass overwrite=True to replace it, or give another name."
    )
