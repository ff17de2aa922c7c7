"""Who may write a landscape file, and what killed writers left beside it."""

from __future__ import annotations

import errno
import fcntl
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
    behind a URL lies in the temporary folder, and keeps off writers on this machine alone.

    Raises:
        LandscapeLockedError: another writer, in this process or another, holds it; the text has its process id.
        LandscapeWriteError: the lock file cannot be made, or its file system has no locks.
    """
    lock = _lock_of(path)
    descriptor = _acquire(lock, path)
    try:
        # The id only tells others who holds the lock; on a full disk that is no reason to stop.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        # Removed while it is still held: whoever opened it meanwhile sees that the name is gone and tries again.
        with suppress(OSError):
            lock.unlink(missing_ok=True)
        # A child that was forked meanwhile shares the lock; unlocking frees it there too, closing would not.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def is_being_written(path: str | os.PathLike[str]) -> bool:
    """Returns whether a living process of this machine holds the lock, as far as the lock file says."""
    try:
        holder = _lock_of(path).read_text()
    except OSError:
        return False
    # Trying to take the lock could keep the writer from it.
    return not holder.strip().isdigit() or process_is_alive(int(holder))


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


def _acquire(lock: Path, path: str | os.PathLike[str] | RemotePath) -> int:
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise _impossible(lock, path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(descriptor, lock):
                return descriptor
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace")
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise _impossible(lock, path, error) from error
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise LandscapeLockedError(
                f"landscape file {path} is being written by {who}. Wait for it, end it, "
                "or pass name= to write another file."
            ) from error
        except BaseException:
            os.close(descriptor)
            raise
        # The holder removed the name between our opening and our locking.
        os.close(descriptor)


def _impossible(lock: Path, path: str | os.PathLike[str] | RemotePath, error: OSError) -> LandscapeWriteError:
    return LandscapeWriteError(
        f"landscape file {path} cannot be locked for writing ({lock}: {error.strerror}). The file on the disk is "
        "untouched. Choose an output directory that is writable and on a file system with locks."
    )


def _is_same_file(descriptor: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        there, here = path.stat(), os.fstat(descriptor)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
    return False
