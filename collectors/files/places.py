"""Where a run directory lies: in a folder of this machine, or behind an fsspec URL such as ``s3://bucket/run``.

What is remote is written in whole files and read in ranges of bytes. A checkpoint is first copied to the temporary
folder where there is room, because a plane reads each of its checkpoints several times.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from .errors import CheckpointError, RunDirectoryError
from .remote_file import RemoteFile, os_errors
from .temporary_folder import TemporaryFolder
from .validation import check_path, wrong_value

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
_LOST_SLASHES = re.compile(r"[a-z][a-z0-9+.-]*:/[^/]")
_SUSPICIOUS = re.compile(r"[%?#/\\]")
_COPY_PREFIX = "landscape-copy-"
_COPIES_AT_MOST = 64 * 2**30
_PROBE = ".landscape-write-check"
# Kinds of file systems whose ``mv`` replaces a file at once; object stores need none.
_RENAMING = frozenset({"sftp", "ssh", "file", "local"})
_UNFINISHED = ".landscape-unfinished"
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
        self.stem, self.suffix = Path(self.name).stem, Path(self.name).suffix

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
        with os_errors(self):
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
        return RemoteFile(self._file_system, self._path, self.size())

    def size(self) -> int:
        """Returns the bytes of the file."""
        size = self.parent._files.get(self.name)
        if size is None:
            with os_errors(self):
                size = int(self._file_system.info(self._path)["size"])
        return size

    def files(self) -> list[RemotePath]:
        """Returns the files of the folder, by name; of a folder that is not there, none."""
        return [RemotePath(self._file_system, f"{self._path.rstrip('/')}/{name}", self) for name in sorted(self._files)]

    def make_folder(self) -> None:
        """Makes a folder and the one it lies in, where the file system has any; buckets are never made."""
        # A bucket may forbid to look at it and take files all the same; whether it does, the first file tells.
        with contextlib.suppress(PermissionError), os_errors(self):
            for folder in (self.parent, self):
                # S3's and Google's file systems would make a bucket of a name alone.
                if "/" in folder._path.strip("/") and not self._file_system.isdir(folder._path):
                    with contextlib.suppress(FileExistsError):
                        self._file_system.mkdir(folder._path, create_parents=False)

    def check_writable(self, name: str) -> None:
        """Makes the folder, and tries whether a file that is written there is there.

        Args:
            name: of the argument that gave the folder, for an error's text.

        Raises:
            RunDirectoryError: it is not.
        """
        probe = self / _PROBE
        try:
            self.make_folder()
            probe.write_bytes(b"")
            if not probe.is_file():
                raise OSError(errno.EIO, "a file that was written there is not there")
            # Who may write need not be allowed to remove.
            with contextlib.suppress(PermissionError):
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise RunDirectoryError(
                f"{name} {self} cannot be written: {error.strerror}. Check the address, that its bucket or server is "
                "there, your credentials and your right to write."
            ) from error

    def read_bytes(self, limit: int) -> bytes:
        """Returns the file's bytes as they are now, at most so many of them."""
        with os_errors(self):
            return bytes(self._file_system.cat_file(self._path, start=0, end=limit))

    def write_bytes(self, content: bytes) -> None:
        """Puts bytes in the file's place; object stores and those that rename take them whole or not at all."""
        self._put(lambda path: self._file_system.pipe_file(path, content))

    def upload(self, source: Path) -> None:
        """Puts a file of this machine in this one's place; whole or not at all, as ``write_bytes``."""
        self._put(lambda path: self._file_system.put_file(str(source), path))

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the file."""
        with os_errors(self), contextlib.suppress(*([FileNotFoundError] if missing_ok else [])):
            self._file_system.rm_file(self._path)
        self.parent._forget()

    def remove_folder(self) -> None:
        """Removes the folder and all that lies in it."""
        with os_errors(self):
            if self._file_system.exists(self._path):
                self._file_system.rm(self._path, recursive=True)

    def copy_to(self, target: Path) -> None:
        """Copies the file to this machine."""
        with os_errors(self):
            self._file_system.get_file(self._path, str(target))

    def remove_unfinished(self) -> None:
        """Removes from the folder what ``write_bytes`` and ``upload`` left of other processes that were killed."""
        for file in self.files():
            if file.name.startswith(".") and file.suffix == _UNFINISHED:
                file.unlink(missing_ok=True)

    def _put(self, put: Callable[[str], None]) -> None:
        with os_errors(self):
            kinds = self._file_system.protocol
            if _RENAMING.isdisjoint([kinds] if isinstance(kinds, str) else kinds):
                put(self._path)
            else:
                temporary = f"{self._path.removesuffix(self.name)}.{self.name}{_UNFINISHED}"
                put(temporary)
                self._file_system.mv(temporary, self._path)
        self.parent._forget()

    def _forget(self) -> None:
        self.__dict__.pop("_files", None)

    @functools.cached_property
    def _files(self) -> dict[str, int | None]:
        with os_errors(self):
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
        self._folder = TemporaryFolder(_COPY_PREFIX)
        self._left = min(shutil.disk_usage(self._folder.path).free // 2, _COPIES_AT_MOST)
        self._copies: dict[str, Path] = {}

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
            target = self._folder.path / f"{len(self._copies)}{file.suffix}"
            file.copy_to(target)
            self._copies[name] = target
        return self._copies[name]


def has_lost_slashes(path: object) -> bool:
    """Returns whether a path was a URL until ``pathlib`` took one of its slashes."""
    return _LOST_SLASHES.match(str(path)) is not None


def is_url(path: object) -> bool:
    """Returns whether a path is an fsspec URL rather than a path of this machine."""
    return isinstance(path, str) and _URL.match(path) is not None


def check_directory(name: str, path: object) -> AnyPath:
    """Returns where a directory lies; ``file://`` is a folder of this machine like any other.

    Raises:
        TypeError: it is no path.
        ValueError: it is no usable path, or a URL of a kind that fsspec does not know.
        ImportError: it is a URL, and a package that reads its kind is missing.
        RunDirectoryError: it is a URL of a kind that is connected to at once, and that fails.
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
    except Exception as error:
        raise RunDirectoryError(
            f"{name} {path!r} cannot be reached: {type(error).__name__}: {error}. Check the address, that its server "
            "is there, and your credentials."
        ) from error
