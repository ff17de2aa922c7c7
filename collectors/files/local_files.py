"""Files that are whole or absent: every one that is replaced gets its name once it is on the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import FileWriteError, NotReplacedError
from . import system
from .file_kinds import ENOUGH_BYTES
from .system import process_is_alive

if TYPE_CHECKING:
    from typing_extensions import Buffer

# One write takes at most 2 GiB.
_BLOCK_BYTES = 64 * 2**20
_TEMPORARY = re.compile(r"\.(.+)\.(\d{1,10})\.[0-9a-f]{8}\.tmp", re.DOTALL)
_HDF5 = rb"\x89|CDF"
_PAGE = rb'<!doctype html>\s*<html lang="en">.{0,400}"Content-Security-Policy".{0,2000}<link rel="icon" href="data:,">'
_XML = rb"\s*<(\?xml|svg|VTKFile)"
_EVENTS = rb".{12}\t"
# How files begin that have these endings; of others nobody knows.
_BEGINNINGS = {
    ".csv": rb"[^\n]*\bloss\b", ".gif": rb"GIF8", ".glb": rb"glTF", ".gltf": rb"\s*\{", ".h5": _HDF5,
    ".htm": _PAGE, ".html": _PAGE, ".js": rb"/\*+\s*\* plotly\.js", ".mp4": rb".{4}ftyp", ".nc": _HDF5,
    ".npz": rb"PK", ".pdf": rb"%PDF-", ".png": rb"\x89PNG",
    ".safetensors": rb".{0,8}\Z|.{8}\{", ".svg": _XML, ".txt": rb"Caption: ", ".vtp": _XML, ".vts": _XML,
}  # fmt: skip


class WholeFile:
    """A temporary sibling, until ``replace`` gives it the name of the file; what fails is a FileWriteError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._target = Path(path)
        check_replaceable(self._target)
        self._temporary = temporary_sibling(self._target)
        self._size = 0
        self._descriptor: int | None = None
        with naming(self._target):
            # Without a buffer, so that no failure comes after the last call that could report it.
            self._descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.OPEN_FLAGS, 0o666)

    def write(self, content: Buffer) -> int:
        """Writes all of the content, however little the system takes at once; returns the number of bytes."""
        assert self._descriptor is not None
        rest = memoryview(content).cast("B")
        count = len(rest)
        with naming(self._target):
            while rest:
                written = os.write(self._descriptor, rest[:_BLOCK_BYTES])
                self._size += written
                rest = rest[written:]
        return count

    def finish(self) -> None:
        """Returns when everything is on the disk, under the temporary name."""
        assert self._descriptor is not None
        with naming(self._target):
            system.sync(self._descriptor)
            size = os.fstat(self._descriptor).st_size
            if size != self._size:
                raise OSError(errno.EIO, f"{self._size} bytes were written, but it has {size}")
            descriptor, self._descriptor = self._descriptor, None
            # Network file systems report some failures only now.
            os.close(descriptor)

    def replace(self) -> None:
        """Takes the place of the file of its name; call it after ``finish``."""
        with naming(self._target):
            system.replace(self._temporary, self._target)

    def discard(self) -> None:
        """Removes the temporary file, unless it has the name of the file already."""
        with contextlib.suppress(OSError):
            if self._descriptor is not None:
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns what the operating system refuses into an error that names a path, the reason and the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise FileWriteError(path, error) from error


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[WholeFile]:
    """Gives a file to write; it replaces the one of that name when the block ends without an error."""
    file = WholeFile(path)
    try:
        yield file
        file.finish()
        file.replace()
    finally:
        file.discard()


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Writes files that belong together: none takes its place before all of them are on the disk."""
    files: list[WholeFile] = []
    try:
        for path, content in contents.items():
            files.append(file := WholeFile(path))
            file.write(content)
            file.finish()
        for file in files:
            file.replace()
    finally:
        for file in files:
            file.discard()


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    write_files({Path(path): content})


def append_bytes(path: Path, content: bytes) -> None:
    """Returns when the content is on the disk behind what a file holds; a failure may leave a part of it there."""
    with naming(path), path.open("ab") as file:
        file.write(content)
        file.flush()
        system.sync(file.fileno())


def write_text(path: str | os.PathLike[str], text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def check_replaceable(path: Path) -> None:
    """Checks that a file of this machine may take the place of what has its name."""
    found = first_bytes(path, ENOUGH_BYTES if _beginning(path.name) else 0)
    if not begins_as_ours(path.name, found):
        raise NotReplacedError(path, f"is no {path.suffix} file that this program writes")


def begins_as_ours(name: str, found: bytes) -> bool:
    """Returns whether a file of that name that begins so may be one that this program wrote, perhaps not to its end."""
    beginning = _beginning(name)
    return beginning is None or not found or re.match(beginning, found, re.DOTALL | re.IGNORECASE) is not None


def _beginning(name: str) -> bytes | None:
    return _EVENTS if "summary." in name else _BEGINNINGS.get(Path(name).suffix.lower())


def first_bytes(path: Path, count: int) -> bytes:
    """Returns how the file begins that is to be replaced; nothing where there is none, or a folder."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return b""
        # Opening a named pipe would wait for a writer.
        if not stat.S_ISREG(mode):
            raise NotReplacedError(path, "is no regular file")
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise NotReplacedError(path, "is read-only")
        if not count:
            return b""
        with system.open_for_reading(path) as file:
            return file.read(count)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except NotReplacedError:
        raise
    except OSError as error:
        raise NotReplacedError(path, f"is there, but cannot be read ({error.strerror}),") from error


def bytes_written(write: Callable[[Path], object]) -> bytes:
    """Returns what a library writes into a path, in memory: some say nothing, or crash, when a disk is full."""
    with system.path_for_bytes("landscape") as path:
        write(path)
        return path.read_bytes()


def temporary_sibling(path: Path) -> Path:
    """Returns an unused name beside a file; the process id in it tells later runs whether its writer still lives."""
    return path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")


def remove_stale_temporaries(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """Removes temporary files of that name whose writers were killed, and returns them; the folder need not exist."""
    removed = []
    # What cannot be listed now is removed by a later run.
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            match = _TEMPORARY.fullmatch(path.name)
            if match and name.fullmatch(match[1]) and not process_is_alive(int(match[2])):
                with contextlib.suppress(OSError):
                    path.unlink()
                    removed.append(path)
    return removed


def folders_of_dead_processes(parent: str | os.PathLike[str], prefix: str) -> Iterator[Path]:
    """Yields the folders ``<prefix><process id>-...`` in a folder whose processes have ended."""
    for folder in Path(parent).glob(f"{prefix}*-*"):
        owner = folder.name.removeprefix(prefix).split("-")[0]
        if owner.isdigit() and not process_is_alive(int(owner)):
            yield folder


def unsent_folder() -> Path:
    """Returns a new folder for what could not be sent to a server; it stays until the user has fetched it."""
    return Path(tempfile.mkdtemp(prefix="landscape-unsent-"))


class TemporaryFolder:
    """A private folder ``path``, removed with this object; those of killed processes, when the next one is made."""

    def __init__(self, prefix: str) -> None:
        for folder in folders_of_dead_processes(tempfile.gettempdir(), prefix):
            shutil.rmtree(folder, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
        self._remove = weakref.finalize(self, _remove, self.path, os.getpid())

    def remove(self) -> None:
        self._remove()


def _remove(folder: Path, process: int) -> None:
    # A forked process has a copy of the object, but the folder is not its own.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
