"""Writes files of measurements, each by one process: a few seconds behind the measurement, or once; notes them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from collectors.errors import RunDirectoryError
from collectors.files.background import LAST_PAUSES_SECONDS, WritingThread, retry
from collectors.files.local_files import remove_stale_temporaries, unsent_folder
from collectors.files.locks import LockHeldError, ProcessLock, is_held, private_lock_folder
from collectors.files.places import AnyPath, check_can_be_directory, check_can_be_file, check_directory
from collectors.files.remote_path import RemotePath
from collectors.validation import check_bool, check_path
from workers.users_code import warn_user

from ..errors import LandscapeLockedError, LandscapeWriteError
from ..replacing import already_there, check_no_input
from .hdf5 import LANDSCAPE, FileKind
from .whole_file import GivenPath, Image, check_replaceable, explained, parts_of, write_image

D = TypeVar("D")
D_contra = TypeVar("D_contra", contravariant=True)
T = TypeVar("T")

# Endings of what other commands write, and of what nobody wants replaced by a measurement.
_WRITTEN = {
    "plot": (".png", ".jpg", ".jpeg", ".pdf", ".svg", ".pgf", ".gif", ".mp4", ".html"),
    "convert": (".csv", ".glb", ".gltf", ".nc", ".npz", ".vts"),
    "": (".json", ".md", ".toml", ".txt", ".yaml"),
}
_files: ContextVar[dict[str, None] | None] = ContextVar("kept_files", default=None)


class Unfinished(Protocol[D_contra]):
    """A file while it is measured, where that is less than the whole: what is large is only added to, beside it."""

    def image(self, data: D_contra) -> Image | None:
        """Returns the file as it is meanwhile, and notes what ``write`` is to add; None where it may be the whole."""

    def write(self) -> None:
        """Adds it, before the file is written."""

    def remove(self) -> None:
        """Removes what lies beside the file, which is whole."""


@dataclass(frozen=True)
class FileFormat(Generic[D]):
    kind: FileKind
    read: Callable[[AnyPath], D]  # reads a file whole
    encode: Callable[[D], Image]  # returns the bytes of a file
    flush_seconds: float = 5.0  # how much of the measuring a kill may cost
    # Raises a LandscapeWriteError where a file of another kind would be replaced.
    check: Callable[[AnyPath, FileKind], None] = check_replaceable
    unfinished: Callable[[Path], Unfinished[D]] | None = None  # what is written meanwhile, where that is less


class FileWriter(Generic[D]):
    """Writes a file whole when entered, left, and every ``flush_seconds`` of ``update`` calls; none without a path."""

    def __init__(self, path: AnyPath | None, data: D, format: FileFormat[D]) -> None:
        self._place = RemoteStore(path, format.kind) if isinstance(path, RemotePath) else path
        self._path, self._data, self._format = path, data, format
        self._unfinished = format.unfinished(path) if format.unfinished is not None and isinstance(path, Path) else None
        self._lock = threading.Lock()
        self._flushes = WritingThread("landscape-writer", save=self._write, interval=format.flush_seconds)

    def update(self, change: Callable[[], T]) -> T:
        """Changes the data while no write is under way, and returns what ``change`` does."""
        self._flushes.check()
        with self._lock:
            found = change()
        self._flushes.touch()
        return found

    def __enter__(self) -> FileWriter[D]:
        # The first write shows at once whether the place can be written to, before hours of measuring.
        self._write()
        if self._path is not None:
            note_file(self._path)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        with contextlib.suppress(Exception):
            self._flushes.close()
        if error is not None and error is self._flushes.error:
            # Once more, because there may be room again; the first failure has been reported already.
            with contextlib.suppress(Exception):
                self._write()
        else:
            self._write(last=True)

    def _write(self, *, last: bool = False) -> None:
        if self._place is None:
            return
        unfinished = self._unfinished
        with self._lock:
            part = None if last or unfinished is None else unfinished.image(self._data)
            image = self._format.encode(self._data) if part is None else part
        # The measurement must not wait for a slow disk or server.
        if isinstance(self._place, RemoteStore):
            write = self._place.write_last if last else self._place.write
            write(b"".join(parts_of(image)))
            return
        if unfinished is not None and part is not None:
            with explained(self._place, self._format.kind):
                unfinished.write()
        write_image(self._place, image, self._format.kind)
        if unfinished is not None and part is None:
            unfinished.remove()


class RemoteStore:
    # The first write fails at once, because it shows whether the place can be written at all. From then on a failure is
    # a warning, the newest bytes are kept on this machine, and the next write tries again.

    def __init__(self, path: RemotePath, kind: FileKind) -> None:
        self._path, self._kind = path, kind
        self._has_worked = False
        self._kept: Path | None = None

    def write(self, image: bytes) -> None:
        """Writes while the survey goes on; a LandscapeWriteError only where nothing could be written before."""
        try:
            self._path.write_bytes(image)
        except OSError as error:
            if not self._has_worked:
                raise LandscapeWriteError(
                    f"{self._kind.word} file {self._path} cannot be written: {error.strerror}. What was there is "
                    "untouched. Check the address and your right to write there, then run again."
                ) from error
            was_kept = self._kept is not None
            kept = self._keep(image)
            if not was_kept:
                warn_user(
                    f"{self._kind.word} file {self._path} cannot be written at the moment: {error.strerror}. What is "
                    f"measured is kept in {kept}, and the next write in a few seconds tries again."
                )
        else:
            self._has_worked = True
            self._forget()

    def write_last(self, image: bytes) -> None:
        """Writes the last bytes, trying several times; a LandscapeWriteError says where they are on this machine."""

        def write() -> None:
            try:
                self._path.write_bytes(image)
            except OSError:
                # Before the pause, in which a process that does not end may be killed.
                self._keep(image)
                raise

        try:
            retry(write, LAST_PAUSES_SECONDS)
        except LandscapeWriteError:
            raise  # it cannot even be kept on this machine
        except OSError as error:
            raise LandscapeWriteError(
                f"{self._kind.word} file {self._path} cannot be written: {error.strerror}. What was measured is in "
                f"{self._kept}: copy it there once that is possible, else the next run measures it again."
            ) from error
        self._forget()

    def _keep(self, image: bytes) -> Path:
        if self._kept is None:
            self._kept = unsent_folder() / self._path.name
        write_image(self._kept, image, self._kind)
        return self._kept

    def _forget(self) -> None:
        if self._kept is not None:
            with contextlib.suppress(OSError):
                self._kept.unlink()
                self._kept.parent.rmdir()
            self._kept = None


def output_folder(run: AnyPath, output: str | os.PathLike[str] | None, *, rehearsal: bool) -> AnyPath:
    """Returns where the landscapes of a run go: its own folder where none is given, made where it is missing."""
    folder = run if output is None else check_directory("output", output)
    if isinstance(folder, RemotePath):
        if rehearsal:
            return folder
        try:
            folder.check_writable("output")
        except RunDirectoryError as error:
            raise LandscapeWriteError(f'{error} Or keep the files on this machine: output="landscapes".') from error
        return folder
    return make_output_folder("output", folder, rehearsal=rehearsal)


def make_output_folder(name: str, folder: Path, *, rehearsal: bool = False) -> Path:
    """Makes the folder of landscape files, and those above it, where they are missing; a rehearsal only checks it."""
    check_can_be_directory(name, folder)
    if not folder.exists() and folder.suffix.lower() in (".h5", *(item for kind in _WRITTEN.values() for item in kind)):
        raise ValueError(f"{name} must be a directory for the files, such as landscapes, but got {folder.name!r}.")
    if rehearsal:
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LandscapeWriteError(
            f"{name} {folder} cannot be made: {error.strerror}. Give a directory in which you may write, such as "
            "landscapes."
        ) from error
    return folder


def output_file(
    output: object,
    inputs: Iterable[object] = (),
    kind: FileKind | None = None,
    *,
    overwrite: object = False,
    rehearsal: bool,
) -> AnyPath:
    """Returns the path of a file to write; raises where it is an input, named like a picture, or of another kind."""
    path = check_directory("output", output)
    if isinstance(path, Path):
        check_can_be_file("output", path)
    elif not rehearsal:
        path.parent.check_writable("output")
    _check_ending("output", path)
    check_no_input("output", path, inputs)
    if kind is not None and overwrite is True:
        check_replaceable(path, kind)
    return path


@contextlib.contextmanager
def lock_landscape(path: GivenPath, kind: FileKind = LANDSCAPE) -> Iterator[None]:
    """Holds the right to write a file, or raises LandscapeLockedError; the system frees it when its holder dies."""
    # The lock is on .<name>.lock beside the file, because the file itself is replaced at every write. That of a file
    # behind a URL is in a private folder of this machine, and keeps out only the writers on this machine.
    file = None
    try:
        file = _lock_of(path)
        lock = ProcessLock(file)
    except LockHeldError as error:
        raise LandscapeLockedError(
            f"{kind.word} file {path} is being written by {error}. Wait for it, end it, or write to another place."
        ) from error
    except OSError as error:
        raise LandscapeWriteError(
            f"{kind.word} file {path} cannot be locked for writing ({file or error.filename}: {error.strerror}). The "
            "file on the disk is untouched. Choose an output directory that is writable and on a file system with "
            "locks."
        ) from error
    try:
        yield
    finally:
        lock.release()


def is_being_written(path: str | os.PathLike[str]) -> bool:
    """Returns whether a living process of this machine holds the lock, as far as the lock file says."""
    return is_held(_lock_of(path))


def clean_temporaries(path: GivenPath) -> list[Path]:
    """Removes and returns what dead processes left beside a landscape file; call it with the lock held."""
    if isinstance(path, RemotePath):
        return []
    target = Path(path).resolve()
    return remove_stale_temporaries(target.parent, re.compile(re.escape(target.name)))


def _lock_of(path: GivenPath) -> Path:
    if isinstance(path, RemotePath):
        name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        return private_lock_folder() / f"{name}.lock"
    target = Path(path).resolve()
    return target.with_name(f".{target.name}.lock")


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
    for command, endings in _WRITTEN.items():
        if path.suffix.lower() in endings:
            data = f"{path.stem}.h5"
            later = f" `landscape {command} {data} -o {path.name}` writes it from that." if command else ""
            raise ValueError(
                f"{name} must be the file of what is measured, such as {data}, but got {path.name!r}, the name of "
                f"another kind of file.{later}"
            )


@contextlib.contextmanager
def noting_files() -> Iterator[dict[str, None]]:
    """Gives the names of the files that hold something measured, in the order in which they were begun."""
    found: dict[str, None] = {}
    token = _files.set(found)
    try:
        yield found
    finally:
        _files.reset(token)


def note_file(path: AnyPath) -> None:
    found = _files.get()
    if found is not None:
        found[str(path)] = None
