"""How a landscape is saved: its folder is made, and a file that is there stays unless the user says otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from collectors.files.places import AnyPath, check_can_be_directory, check_can_be_file, check_directory
from collectors.files.remote_path import RemotePath
from collectors.validation import check_bool, check_path

from ..errors import LandscapeWriteError
from ..replacing import check_no_input
from .data import LandscapeData
from .encoding import landscape_bytes
from .kind import LANDSCAPE, FileKind
from .lock import lock_landscape
from .whole_file import check_replaceable, write_image

# Endings of pictures, films and pages.
_DRAWN = (".png", ".jpg", ".jpeg", ".pdf", ".svg", ".gif", ".mp4", ".html")


def make_output_folder(name: str, folder: Path) -> Path:
    """Makes the folder of landscape files, and those above it, where they are missing."""
    check_can_be_directory(name, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LandscapeWriteError(
            f"{name} {folder} cannot be made: {error.strerror}. Give a directory in which you may write, such as "
            "landscapes."
        ) from error
    return folder


def output_file(
    output: object, inputs: Iterable[object] = (), kind: FileKind | None = None, *, overwrite: object = False
) -> AnyPath:
    """Returns the path of a file to write; raises where it is an input, named like a picture, or of another kind."""
    path = check_directory("output", output)
    if isinstance(path, RemotePath):
        path.parent.check_writable("output")
    else:
        check_can_be_file("output", path)
    _check_ending("output", path)
    check_no_input("output", path, inputs)
    if kind is not None and overwrite is True:
        check_replaceable(path, kind)
    return path


def save_landscape(path: str | os.PathLike[str], data: LandscapeData, *, overwrite: bool = False) -> Path:
    """Writes a landscape file, and returns its path; one that is there is replaced only with ``overwrite``."""
    return save_whole(path, lambda: landscape_bytes(data), LANDSCAPE, overwrite=overwrite)


def save_whole(
    path: str | os.PathLike[str], encode: Callable[[], bytes], kind: FileKind, *, overwrite: bool = False
) -> Path:
    """Writes the bytes that ``encode`` makes and returns the path; raises where a file may not or cannot be written."""
    target = check_path("path", path)
    check_bool("overwrite", overwrite)
    check_can_be_file("path", target)
    _check_ending("path", target)
    with lock_landscape(target, kind):
        if os.path.lexists(target) and not overwrite:
            raise already_there(target)
        check_replaceable(target, kind)
        write_image(target, encode(), kind)
    return target


def _check_ending(name: str, path: AnyPath) -> None:
    if path.suffix.lower() in _DRAWN:
        data = f"{path.stem}.h5"
        raise ValueError(
            f"{name} must be the file of what is measured, such as {data}, but got {path.name!r}, the name of a "
            f"drawing. `landscape plot {data}` and `landscape view {data}` draw it when it is measured."
        )


def already_there(target: Path) -> LandscapeWriteError:
    """Returns the error for a file that may not be replaced."""
    return LandscapeWriteError(
        f"{target} exists and was left as it is. Pass overwrite=True to replace it, or give another name."
    )
