"""Where a run directory lies: in a folder of this machine, or behind an fsspec URL such as ``s3://bucket/run``.

What is remote is read in ranges of bytes. A checkpoint is first copied to the temporary folder where there is room,
because a plane reads each of its checkpoints several times.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from .atomic_files import folders_of_dead_processes
from .errors import CheckpointError
from .validation import check_path, wrong_value

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
_SUSPICIOUS = re.compile(r"[%?#/\\]")
_COPY_PREFIX = "landscape-copy-"
_COPIES_AT_MOST = 64 * 2**30
# More than the longest header of a checkpoint, so that a header comes in one request.
_PIECE = 128 * 2**20
_READ_AHEAD = 16 * 2**20


class RemotePath:
    """A file or a folder of a run directory behind a URL; as much of ``pathlib.Path`` as a run needs.

    Args:
        file_system: of fsspec.
        path: in its own notation.
        folder: in which it lies, if that is known.

    Raises:
        OSError: from every method that looks: it cannot be reached or read.
    """

    def __init__(self, file_system: Any, path: str, folder: RemotePath | None = None) -> None:
        self._file_system = file_system
        self._path = path
        self._folder = folder
        self.name = path.rstrip("/").rsplit("/", 1)[-1]
        self.suffix = Path(self.name).suffix

    def __truediv__(self, name: str) -> RemotePath:
        # A server may take %2e%2e%2f for ../ and what follows a question mark for something else than a name.
        if _SUSPICIOUS.search(name):
            raise CheckpointError(f"{name!r} cannot be the name of a file behind {self}; rename the file.")
        return RemotePath(self._file_system, f"{self._path.rstrip('/')}/{name}", self)

    def __str__(self) -> str:
        return str(self._file_system.unstrip_protocol(self._path))

    @property
    def parent(self) -> RemotePath:
        """The folder in which it lies."""
        return self._folder or RemotePath(self._file_system, self._file_system._parent(self._path))

    def is_dir(self) -> bool:
        """Returns whether it is a folder."""
        with _os_errors():
            return bool(self._file_system.isdir(self._path))

    def is_file(self) -> bool:
        """Returns whether it is a file; a folder is listed once for all that lie in it."""
        return self.name in self.parent._files

    def exists(self) -> bool:
        """Returns whether it is a file or a folder."""
        return self.is_file() or self.is_dir()

    def open(self, mode: str = "rb") -> io.BufferedReader:
        """Opens the file to be read from its beginning to its end."""
        return io.BufferedReader(self.open_raw(), _READ_AHEAD)

    def open_raw(self) -> io.RawIOBase:
        """Opens the file to be read here and there; exactly what is asked for is transferred."""
        return _RemoteFile(self._file_system, self._path, self.size())

    def size(self) -> int:
        """Returns the bytes of the file."""
        size = self.parent._files.get(self.name)
        if size is None:
            with _os_errors():
                size = int(self._file_system.info(self._path)["size"])
        return size

    def make_folder(self) -> None:
        """Makes a folder and the one it lies in, where the file system has any; buckets are never made."""
        with _os_errors():
            for folder in (self.parent, self):
                if not self._file_system.isdir(folder._path):
                    with contextlib.suppress(FileExistsError):
                        self._file_system.mkdir(folder._path, create_parents=False)

    def upload(self, source: Path) -> None:
        """Puts a file of this machine in this one's place; object stores take it whole or not at all."""
        with _os_errors():
            self._file_system.put_file(str(source), self._path)
        self.parent._forget()

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the file."""
        with _os_errors(), contextlib.suppress(*([FileNotFoundError] if missing_ok else [])):
            self._file_system.rm_file(self._path)
        self.parent._forget()

    def remove_folder(self) -> None:
        """Removes the folder and all that lies in it."""
        with _os_errors():
            if self._file_system.exists(self._path):
                self._file_system.rm(self._path, recursive=True)

    def copy_to(self, target: Path) -> None:
        """Copies the file to this machine."""
        with _os_errors():
            self._file_system.get_file(self._path, str(target))

    def _forget(self) -> None:
        self.__dict__.pop("_files", None)

    @functools.cached_property
    def _files(self) -> dict[str, int | None]:
        with _os_errors():
            self._file_system.invalidate_cache(self._path)
            try:
                entries = self._file_system.ls(self._path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return {}
        return {
            entry["name"].rstrip("/").rsplit("/", 1)[-1]: entry.get("size")
            for entry in entries
            if entry["type"] == "file"
        }


AnyPath: TypeAlias = Path | RemotePath


class LocalCopies:
    """Copies of remote checkpoints in the temporary folder, at most half of what is free there and 64 GiB.

    They go when this object does; those of a process that was killed, when the next one is made.
    """

    def __init__(self) -> None:
        _remove_dead_copies()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_COPY_PREFIX}{os.getpid()}-"))
        self._left = min(shutil.disk_usage(self._folder).free // 2, _COPIES_AT_MOST)
        self._copies: dict[str, Path] = {}
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def copy_of(self, file: RemotePath) -> Path | None:
        """Returns a file's copy; None where there is no room for it.

        Raises:
            OSError: the file cannot be read, or the copy not be written.
        """
        name, size = str(file), file.size()
        if name not in self._copies:
            if size > self._left:
                return None
            self._left -= size
            target = self._folder / f"{len(self._copies)}{file.suffix}"
            file.copy_to(target)
            self._copies[name] = target
        return self._copies[name]


def is_url(path: object) -> bool:
    """Returns whether a path is an fsspec URL rather than a path of this machine."""
    return isinstance(path, str) and _URL.match(path) is not None


def check_directory(name: str, path: object) -> AnyPath:
    """Returns where a directory lies; ``file://`` is a folder of this machine like any other.

    Raises:
        TypeError: it is no path.
        ValueError: it is no usable path, or a URL of a kind that fsspec does not know.
        ImportError: it is a URL, and a package that reads its kind is missing.
    """
    if isinstance(path, RemotePath):
        return path
    if not isinstance(path, str) or not is_url(path):
        return check_path(name, path)
    address = urlsplit(path)
    if address.scheme in ("file", "local") and "::" not in path:
        return check_path(name, unquote(address.netloc + address.path))
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(
            f"{name} {path!r} is a URL, which needs the package fsspec: pip install 'summary-landscape[remote]'."
        ) from error
    try:
        return RemotePath(*url_to_fs(path))
    except ImportError as error:
        raise ImportError(
            f"{name} {path!r} needs another package ({error}); for s3:// that is pip install 'summary-landscape[s3]'."
        ) from error
    except ValueError as error:
        raise wrong_value(name, f"a path or a URL that fsspec knows ({error})", path) from error


def check_local(name: str, path: object) -> None:
    """Refuses a URL where only a folder of this machine will do.

    Raises:
        ValueError: it is a URL.
    """
    if is_url(path):
        raise ValueError(
            f"{name} must be a folder of this machine, but got the URL {path!r}. Collect into a folder and copy that "
            f"when training has ended, for instance with `fsspec` or `aws s3 cp --recursive`; SummaryLandscape then "
            f"reads it at the URL."
        )


class _RemoteFile(io.RawIOBase):
    """A remote file of which each read is one request."""

    def __init__(self, file_system: Any, path: str, size: int) -> None:
        self._file_system = file_system
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._size, self._position + _PIECE)
        if stop <= self._position:
            return 0
        with _os_errors():
            content = self._file_system.cat_file(self._path, start=self._position, end=stop)
        view[: len(content)] = content
        self._position += len(content)
        return len(content)


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Each file system raises its own kinds of errors; they become OSErrors that say what is wrong."""
    try:
        yield
    except Exception as error:
        kinds = ((FileNotFoundError, errno.ENOENT), (PermissionError, errno.EACCES))
        number = next((number for kind, number in kinds if isinstance(error, kind)), errno.EIO)
        raise OSError(number, f"{type(error).__name__}: {error}") from error


def _remove_dead_copies() -> None:
    for folder in folders_of_dead_processes(tempfile.gettempdir(), _COPY_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
