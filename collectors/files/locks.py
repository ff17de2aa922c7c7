"""Locks of this machine: who has one keeps all other processes from writing what it stands for."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Protocol

from . import system
from .system import process_is_alive

# What file systems without locks answer.
WITHOUT_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK})
# More than any process id.
_MOST_DIGITS = 10


class LockHeldError(Exception):
    """Somebody else holds the lock; the text says who."""


class WriteLock(Protocol):
    """The right to write something, until it is released."""

    def check(self) -> None:
        """Raises LockHeldError if somebody else has taken the right meanwhile."""

    def release(self) -> None:
        """Gives the right back; a second call does nothing, nor does one in a forked process."""


class ProcessLock:
    """A right that the system takes back when its process dies, however it dies; it begins with this object."""

    def __init__(self, file: Path) -> None:
        from filelock import FileLock, Timeout

        # Not zero: who opened the file just before its holder removed it has to try again.
        self._lock = FileLock(file, timeout=0.1, poll_interval=0.01, thread_local=False, fallback_to_soft=False)
        self._file, self._process = file, os.getpid()
        try:
            self._lock.acquire()
        except Timeout as error:
            if not os.path.lexists(file):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file)) from error
            process = holder(file)
            raise LockHeldError("another process" if process is None else f"process {process}") from error
        # The id only tells others who holds the lock; on a full disk that is no reason to stop.
        with contextlib.suppress(OSError):
            file.write_text(str(self._process))

    def check(self) -> None:
        """Does nothing: nobody can take the right from a process that lives."""

    def release(self) -> None:
        """Removes the file and frees the lock; a second call does nothing, nor does one in a forked process."""
        if not self._lock.is_locked or os.getpid() != self._process:
            return
        # Removed while it is still held: who has opened it meanwhile sees that the name is gone and tries again.
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._lock.release()
        if system.WINDOWS:  # no open file can be removed there, so this one was not, and one that others hold stays
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)


class NoLock:
    """Stands for a lock where the file system has none."""

    def check(self) -> None:
        """Does nothing."""

    def release(self) -> None:
        """Does nothing."""


def holder(file: Path) -> int | None:
    """Returns the process id in a lock file; None where there is no such file, or no process id in it."""
    with contextlib.suppress(OSError):
        # A file of that name may be anything: neither a pipe nor a link nor its length may hold us up.
        descriptor = os.open(file, os.O_RDONLY | system.WITHOUT_WAITING | system.NO_LINK | system.OPEN_FLAGS)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                text = os.read(descriptor, _MOST_DIGITS + 2).strip()
                return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None
        finally:
            os.close(descriptor)
    return None


def is_held(file: Path) -> bool:
    """Returns whether a lock file is there and does not name a dead process."""
    process = holder(file)
    if process is not None or not os.path.lexists(file):
        return process is not None and process_is_alive(process)
    if not system.WINDOWS:
        return True  # it only looks: trying to take the lock could keep its holder from it
    # Nobody writes an id into a locked file there; who wants the lock tries for longer than this takes.
    try:
        with system.holding(file, wait=False):
            return False
    except OSError:
        return True


def private_lock_folder() -> Path:
    """Returns a folder, inside the temporary one, for locks of what lies elsewhere; only this user writes into it."""
    # In the temporary folder itself other users could make a file or a link of the same name first.
    folder = Path(tempfile.gettempdir()) / f"landscape-locks-{system.user_name()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or not system.is_private(found):
        raise PermissionError(errno.EPERM, "it is not a folder that only you can write; set TMPDIR", str(folder))
    return folder
