"""The folders into which landscapes, pictures and exports are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import LandscapeWriteError

if TYPE_CHECKING:
    from pathlib import Path


def check_folder_of(target: Path) -> None:
    """Checks that a file's folder is there.

    Raises:
        LandscapeWriteError: it is not; the text names it, and not the temporary file that would be written first.
    """
    if not target.parent.is_dir():
        raise LandscapeWriteError(f"{target} cannot be written: {target.parent} is no directory. Make it first.")


def make_output_folder(name: str, folder: Path) -> Path:
    """Makes the folder of landscape files where it is missing, with those above it.

    Args:
        name: of the argument, for an error's text.
        folder: an absolute path.

    Returns:
        The folder.

    Raises:
        LandscapeWriteError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LandscapeWriteError(
            f"{name} {folder} cannot be made: {error.strerror}. Give a directory in which you may write, such as "
            "landscapes."
        ) from error
    return folder
