"""The lock of a landscape file, and the temporary files that killed writers left beside it."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collectors.files.local_files import process_is_alive, remove_stale_temporaries
from collectors.files.remote_path import RemotePath

from ..errors import LandscapeLockedError, LandscapeWriteError


@contextmanager
def lock_landscape(path: str | os.PathLike[str] | RemotePath) -> Iterator[None]:
    """Holds the right to write a landscape file, by a lock that the system frees when its holder dies.

    The lock is on ``.<name>.lock`` beside the file, because the file itself is replaced at every write. That of a file
    behind a URL is in the temporary folder, and keeps out only the writers on this machine.

    Raises:
        LandscapeLockedError: another writer, in this process or another, holds it; the text has its process id.
        LandscapeWriteError: the lock file cannot be made, or its file system has no locks.
    """
    from filelock import FileLock, Timeout

    file = _lock_of(path)
    # Not zero: a writer that opened the file just before its holder removed it has to try again.
    lock = FileLock(file, timeout=0.1, poll_interval=0.01, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        if not file.exists():
            raise _impossible(file, path, os.strerror(errno.ENOENT)) from error
        holder = _holder(file) or ""
        who = f"process {holder}" if holder.isdigit() else "another process"
        raise LandscapeLockedError(
            f"landscape file {path} is being written by {who}. Wait for it, end it, or write to another place."
        ) from error
    except OSError as error:
        raise _impossible(file, path, error.strerror) from error
    try:
        # The id only tells others who holds the lock; on a full disk that is no reason to stop.
        with suppress(OSError):
            file.write_text(str(os.getpid()))
        yield
    finally:
        # Removed while it is still held: who has opened it meanwhile sees that the name is gone and tries again.
        with suppress(OSError):
            file.unlink(missing_ok=True)
        lock.release()


def is_being_written(path: str | os.PathLike[str]) -> bool:
    """Returns whether a living process of this machine holds the lock, as far as the lock file says."""
    holder = _holder(_lock_of(path))
    # Trying to take the lock could keep the writer from it.
    return holder is not None and (not holder.isdigit() or process_is_alive(int(holder)))


def clean_temporaries(path: str | os.PathLike[str] | RemotePath) -> list[Path]:
    """Removes the temporary files that dead processes left beside a landscape file; call it with the lock held.

    Returns:
        What was removed.
    """
    if isinstance(path, RemotePath):
        return []
    target = Path(path).resolve()
    return remove_stale_temporaries(target.parent, re.compile(re.escape(target.name)))


def _lock_of(path: str | os.PathLike[str] | RemotePath) -> Path:
    if isinstance(path, RemotePath):
        name = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f".landscape-{os.getuid()}-{name}.lock"
    target = Path(path).resolve()
    return target.with_name(f".{target.name}.lock")


def _holder(file: Path) -> str | None:
    """Returns what a lock file says of its holder, a process id as a rule; None without a file that can be read."""
    try:
        return file.read_text("ascii", "replace").strip()
    except OSError:
        return None


def _impossible(file: Path, path: str | os.PathLike[str] | RemotePath, reason: str | None) -> LandscapeWriteError:
    return LandscapeWriteError(
        f"landscape file {path} cannot be locked for writing ({file}: {reason}). The file on the disk is untouched. "
        "Choose an output directory that is writable and on a file system with locks."
    )
