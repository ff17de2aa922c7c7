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


def output_file(
    output: object, inputs: Iterable[object] = (), kind: FileKind | None = None, *, overwrite: object = False
) -> AnyPath:
    """Returns where a file of ours goes, after checking that it can be written there.

    Args:
        output: as the user gives it.
        inputs: what the same call reads, as ``check_no_input`` takes it.
        kind: of the file, if ``overwrite`` is given.
        overwrite: whether what is there is replaced, which must then be of that kind.

    Raises:
        LandscapeWriteError: it is one of the inputs, or would replace a file of another kind.
        TypeError: it is no path.
        ValueError: it is no usable path, or named like a picture.
        OSError: it is a folder, or its folder does not exist.
        LandscapeError: the server of a URL cannot be reached.
    """
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
    """Writes a landscape file and returns its path.

    Raises:
        ValueError: it is named like a picture.
        NotADirectoryError: the file's directory does not exist.
        LandscapeLockedError: a survey is writing that file.
        LandscapeWriteError: a file is there and ``overwrite`` is false, or is no landscape file; or it cannot be
            written.
    """
    return save_whole(path, lambda: landscape_bytes(data), LANDSCAPE, overwrite=overwrite)


def save_whole(
    path: str | os.PathLike[str], encode: Callable[[], bytes], kind: FileKind, *, overwrite: bool = False
) -> Path:
    """Writes a file of any of our kinds as ``save_landscape`` does.

    Args:
        path: of the file.
        encode: makes its bytes.
        kind: of the file.
        overwrite: whether a file of that name is replaced.
    """
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
