"""The lock of a file that is rewritten as a whole, and the temporary files that killed writers left beside it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collectors.files.local_files import remove_stale_temporaries
from collectors.files.locks import LockHeldError, ProcessLock, is_held, private_lock_folder
from collectors.files.remote_path import RemotePath

from ..errors import LandscapeLockedError, LandscapeWriteError
from .hdf5 import LANDSCAPE, FileKind
from .whole_file import GivenPath


@contextmanager
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
