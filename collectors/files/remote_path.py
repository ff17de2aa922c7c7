"""Files and folders behind fsspec URLs, written whole and read in ranges of bytes; every error becomes an OSError."""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, reporting

_SUSPICIOUS = re.compile(r"[%?#/\\]")
_PATTERN = re.compile(r"[*?\[]")
_PROBE = ".landscape-write-check"
# Kinds of file systems whose ``mv`` replaces a file at once; object stores need none.
_RENAMING = frozenset({"sftp", "ssh", "file", "local"})
_UNFINISHED = ".landscape-unfinished"
_READ_AHEAD = 16 * 2**20
# More than the longest header of a checkpoint, so that a header comes in one request.
_PIECE = 128 * 2**20


class RemotePath:
    """A file or a folder of a run directory behind a URL; as much of ``pathlib.Path`` as a run needs."""

    def __init__(self, file_system: Any, path: str, folder: RemotePath | None = None) -> None:
        self._file_system = file_system
        self._path = path
        self._folder = folder
        self.name = path.rstrip("/").rsplit("/", 1)[-1]
        self.stem, self.suffix = Path(self.name).stem, Path(self.name).suffix

    def __truediv__(self, name: str) -> RemotePath:
        # A server may take %2e%2e%2f for ../ and what follows a question mark for a query.
        if _SUSPICIOUS.search(name):
            raise CheckpointError(f"{name!r} cannot be the name of a file behind {self}; rename the file.")
        return self._child(name)

    def __reduce__(self) -> tuple[type[RemotePath], tuple[Any, ...]]:
        # Without the listing of a folder: another process looks by itself.
        return RemotePath, (self._file_system, self._path, self._folder)

    def __str__(self) -> str:
        return str(self._file_system.unstrip_protocol(self._path))

    @property
    def parent(self) -> RemotePath:
        return self._folder or RemotePath(self._file_system, self._file_system._parent(self._path))

    def is_dir(self) -> bool:
        with os_errors(self):
            return bool(self._file_system.isdir(self._path))

    def is_file(self) -> bool:
        """Returns whether it is a file; a folder is listed once for all its files."""
        return self.name in self.parent._files

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def open(self, mode: str = "rb") -> io.BufferedReader:
        return io.BufferedReader(self.open_raw(), _READ_AHEAD)

    def open_raw(self) -> io.RawIOBase:
        """Opens the file for reading at any position; exactly what is asked for is transferred."""
        return _RemoteFile(self)

    def size(self) -> int:
        size = self.parent._files.get(self.name)
        if size is None:
            with os_errors(self):
                size = int(self._file_system.info(self._path)["size"])
        return size

    def files(self) -> list[RemotePath]:
        """Returns the files of the folder, by name; none if the folder does not exist."""
        return [self._child(name) for name in sorted(self._files)]

    def folders(self) -> list[RemotePath]:
        """Returns the folders in the folder, by name; none if it does not exist."""
        return [self._child(name) for name in sorted({*self._listed("directory")} - {""})]

    def glob(self) -> list[RemotePath]:
        """Returns what matches the path as a pattern, by name; folders that are there are meant as they are written."""
        folder = self.parent
        while folder._path != folder.parent._path and not folder.is_dir():
            folder = folder.parent
        pattern = glob.escape(folder._path) + self._path.removeprefix(folder._path)
        with os_errors(self):
            found = self._file_system.glob(pattern)
        return [RemotePath(self._file_system, path) for path in sorted(found)]

    def make_folder(self) -> None:
        """Makes the folder and its parent, where the file system has folders; buckets are never made."""
        # A bucket may forbid looking at it and still take files; the first file shows whether it does.
        with contextlib.suppress(PermissionError), os_errors(self):
            for folder in (self.parent, self):
                # S3's and Google's file systems would make a bucket of a name alone.
                if "/" in folder._path.strip("/") and not self._file_system.isdir(folder._path):
                    with contextlib.suppress(FileExistsError):
                        self._file_system.mkdir(folder._path, create_parents=False)

    def check_writable(self, name: str) -> None:
        """Makes the folder, and checks that a file can be written there."""
        probe = self / _PROBE
        remedy = "Check the address, that its bucket or server is there, your credentials and your right to write."
        with reporting(f"{name} {self} cannot be written", remedy):
            self.make_folder()
            probe.write_bytes(b"")
            if not probe.is_file():
                raise OSError(errno.EIO, "a file that was written there is not there")
            # The right to write need not include the right to remove.
            with contextlib.suppress(PermissionError):
                probe.unlink(missing_ok=True)

    def read_bytes(self, start: int, stop: int) -> bytes:
        """Returns the bytes in a range, as they are now; fewer where the file ends."""
        with os_errors(self):
            return bytes(self._file_system.cat_file(self._path, start=start, end=stop))

    def write_bytes(self, content: bytes) -> None:
        """Replaces the file's content; whole or not at all on object stores and on file systems that rename."""
        self._put(lambda path: self._file_system.pipe_file(path, content))

    def upload(self, source: Path) -> None:
        """Replaces this file by one of this machine; whole or not at all, as ``write_bytes``."""
        self._put(lambda path: self._file_system.put_file(str(source), path))

    def unlink(self, missing_ok: bool = False) -> None:
        with os_errors(self), contextlib.suppress(*([FileNotFoundError] if missing_ok else [])):
            self._file_system.rm_file(self._path)
        self.parent._forget()

    def remove_folder(self) -> None:
        with os_errors(self):
            if not self._file_system.exists(self._path):
                return
            if not _PATTERN.search(self._path):
                self._file_system.rm(self._path, recursive=True)
                return
            # rm would take the name for a pattern, and remove what matches it instead.
            inside = self._file_system.find(self._path, withdirs=True, detail=True)
            for path, entry in sorted(inside.items(), reverse=True):
                if entry["type"] == "file":
                    self._file_system.rm_file(path)
                else:
                    self._remove_empty(path)
            self._remove_empty(self._path)

    def _remove_empty(self, path: str) -> None:
        # Object stores have no folders but those of their files.
        with contextlib.suppress(OSError, NotImplementedError):
            self._file_system.rmdir(path)

    def copy_to(self, target: Path) -> None:
        with os_errors(self):
            self._file_system.get_file(self._path, str(target))

    def remove_unfinished(self) -> None:
        """Removes what ``write_bytes`` and ``upload`` of killed processes left in the folder."""
        for file in self.files():
            if file.name.startswith(".") and file.suffix == _UNFINISHED:
                file.unlink(missing_ok=True)

    def _child(self, name: str) -> RemotePath:
        return RemotePath(self._file_system, f"{self._path.rstrip('/')}/{name}", self)

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
        return self._listed("file")

    def _listed(self, kind: str) -> dict[str, int | None]:
        """Returns the sizes of what is in the folder, by name; none if it does not exist."""
        with os_errors(self):
            try:
                entries = self._file_system.ls(self._path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return {}
        return {
            entry["name"].rstrip("/").rsplit("/", 1)[-1]: entry.get("size")
            for entry in entries
            if entry["type"] == kind
        }


class _RemoteFile(io.RawIOBase):
    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._size = path.size()
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
        content = self._path.read_bytes(self._position, stop)
        view[: len(content)] = content
        self._position += len(content)
        return len(content)


@contextlib.contextmanager
def os_errors(place: object) -> Iterator[None]:
    """Turns a file system's own kinds of errors into OSErrors that say what is wrong, and where."""
    try:
        yield
    except Exception as error:
        missing, forbidden = isinstance(error, FileNotFoundError), isinstance(error, PermissionError)
        number = errno.ENOENT if missing else errno.EACCES if forbidden else errno.EIO
        raise OSError(number, f"{type(error).__name__}: {error}", str(place)) from error
