"""The landscape file: HDF5, rewritten as a whole and moved into place, so that the name never holds half a file.

Nothing in the bytes depends on when, where or by whom they were written: equal data give equal files. Every
grid array carries the HDF5 dimension scales ``x`` and ``y``, so that
``xarray.open_dataset(path, engine="h5netcdf")`` opens the file as it is.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
from pathlib import Path
from typing import Any

from collectors.errors import FileWriteError, LandscapeError
from collectors.files.local_files import write_bytes
from collectors.files.places import AnyPath, check_directory, is_url, lost_slashes_hint
from collectors.files.remote_path import RemotePath

from .. import errors
from .data import LandscapeData
from .encoding import FORMAT, FORMAT_VERSION, landscape_bytes
from .reading import read_attribute, read_root, reason

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Far more than the largest grid with many metrics.
_LARGEST_DOWNLOAD = 2**30


def write_landscape(path: str | os.PathLike[str], data: LandscapeData) -> None:
    """Writes a landscape, replacing the file of that name once the new one is whole and on the disk.

    Raises:
        LandscapeWriteError: the file cannot be written; what was on the disk is untouched.
        TypeError: an attribute is no JSON value.
        ValueError: names, shapes, types or status values do not fit together.
    """
    write_image(path, landscape_bytes(data))


def write_image(path: str | os.PathLike[str], image: bytes) -> None:
    """Puts the bytes of a landscape file in place.

    Raises:
        LandscapeWriteError: they cannot be written; what was on the disk is untouched.
    """
    target = Path(path).resolve()
    try:
        write_bytes(target, image)
    except FileWriteError as error:
        kept = "The file on the disk is untouched" if os.path.lexists(target) else "No file was there, and none is now"
        raise errors.LandscapeWriteError(
            f"landscape file {path} cannot be written: {error.reason}. {kept}. "
            "Free some space or choose another output directory, then run again: it continues from the file."
        ) from error


def read_landscape(path: str | os.PathLike[str] | RemotePath) -> LandscapeData:
    """Reads a landscape into memory and closes the file; nothing on the disk changes.

    Args:
        path: of the file, or its fsspec URL such as ``s3://bucket/run/landscape.h5``.

    Raises:
        LandscapeNotFoundError: there is no such file.
        LandscapeLockedError: another program has the file open for writing.
        LandscapeDamagedError: it is truncated, no HDF5 file, or its contents do not fit together.
        LandscapeFormatError: it is another program's, or another version's with another format.
        LandscapeError: the operating system refuses to open it.
    """
    path = path_of(path)
    if isinstance(path, RemotePath):
        return _read(path, image := _download(path), len(image))
    _check_openable(path)
    return _read(path, path, path.stat().st_size)


def path_of(path: str | os.PathLike[str] | RemotePath) -> AnyPath:
    """Returns where a landscape file lies, on this machine or behind a URL.

    Raises:
        LandscapeError: the server of a URL cannot be reached.
        ImportError: a package that reads that kind of URL is missing.
    """
    if isinstance(path, RemotePath) or is_url(path):
        return check_directory("path", path)
    return Path(path)


def _read(path: AnyPath, source: Path | bytes, size: int) -> LandscapeData:
    import h5py

    options = {"locking": "best-effort"} if isinstance(source, Path) else {}
    try:
        with h5py.File(io.BytesIO(source) if isinstance(source, bytes) else source, "r", **options) as file:
            _check_format(file, path)
            data = read_root(file, size)
    except LandscapeError:
        raise
    except BlockingIOError as error:
        raise _locked(path) from error
    except Exception as error:  # the library reports damage by nearly every kind of exception
        raise _damaged(path, f"{type(error).__name__}: {reason(error)}") from error
    data.path = path
    return data


def _download(path: RemotePath) -> bytes:
    try:
        image = path.read_bytes(0, _LARGEST_DOWNLOAD)
    except FileNotFoundError as error:
        raise _not_found(path) from error
    except OSError as error:
        raise LandscapeError(
            f"landscape file {path} cannot be read: {error.strerror}. Check the address and your right to read there."
        ) from error
    if len(image) == _LARGEST_DOWNLOAD:
        raise errors.LandscapeFormatError(
            f"{path} has {_LARGEST_DOWNLOAD} bytes or more and can be no landscape file. Correct the address."
        )
    if not image.startswith(_SIGNATURE):
        raise _no_signature(path)
    return image


def _check_openable(path: Path) -> None:
    try:
        # Opening a named pipe would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            signature = file.read(len(_SIGNATURE)) if regular else b""
            locked = regular and _is_locked(file.fileno())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _not_found(path) from error
    except IsADirectoryError as error:
        raise errors.LandscapeFormatError(f"{path} is a directory; give the path of a landscape file in it.") from error
    except OSError as error:
        raise LandscapeError(
            f"landscape file {path} cannot be opened: {error.strerror}. Correct its permissions or copy it."
        ) from error
    if not regular:
        raise errors.LandscapeFormatError(f"{path} is no regular file; give the path of a landscape file.")
    if locked:
        raise _locked(path)
    if signature != _SIGNATURE:
        raise _no_signature(path)


def _is_locked(descriptor: int) -> bool:
    # HDF5 takes this lock while a file is open for writing; a writer in this process it would not report as one.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _locked(path: AnyPath) -> errors.LandscapeLockedError:
    return errors.LandscapeLockedError(
        f"landscape file {path} is locked: another program has it open for writing. Close it there, or read a copy."
    )


def _not_found(path: AnyPath) -> errors.LandscapeNotFoundError:
    return errors.LandscapeNotFoundError(
        f"there is no landscape file {path}. Measure the landscape first, or correct the path.{lost_slashes_hint(path)}"
    )


def _no_signature(path: AnyPath) -> errors.LandscapeDamagedError:
    return _damaged(path, "it does not begin as an HDF5 file does, so it may be no landscape file at all")


def _check_format(file: Any, path: AnyPath) -> None:
    if read_attribute(file, "format") != FORMAT:
        raise errors.LandscapeFormatError(
            f"{path} is an HDF5 file of another program (its attribute 'format' is not {FORMAT!r}). "
            "Give the path of a landscape file, or, for one that is to be written, another place."
        )
    version = int(read_attribute(file, "format_version"))
    if version != FORMAT_VERSION:
        remedy = "Install a newer summary-landscape."
        if version < FORMAT_VERSION:
            remedy = "Measure it again with overwrite=True, or read it with the version that wrote it."
        raise errors.LandscapeFormatError(
            f"landscape file {path} has format_version {version}, this program reads {FORMAT_VERSION}. {remedy}"
        )


def _damaged(path: AnyPath, why: str) -> errors.LandscapeDamagedError:
    return errors.LandscapeDamagedError(
        f"landscape file {path} is damaged ({why}). It was left as it is: copy it again from where it came, "
        "or measure it again with overwrite=True."
    )
