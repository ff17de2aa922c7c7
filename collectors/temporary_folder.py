"""A folder of this process in the temporary folder of this machine, which nothing leaves behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

from .atomic_files import folders_of_dead_processes


def unsent_folder() -> Path:
    """Returns a new folder for what could not be sent to a server; it stays until the user has fetched it.

    Raises:
        OSError: it cannot be made.
    """
    return Path(tempfile.mkdtemp(prefix="landscape-unsent-"))


class TemporaryFolder:
    """A private folder, removed with this object; what killed processes left goes when the next one is made.

    Args:
        prefix: what its name begins with; the process id follows.

    Attributes:
        path: where it lies.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, prefix: str) -> None:
        for folder in folders_of_dead_processes(tempfile.gettempdir(), prefix):
            shutil.rmtree(folder, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
        self._remove = weakref.finalize(self, _remove, self.path, os.getpid())

    def remove(self) -> None:
        """Removes it with all that lies in it; a second call does nothing."""
        self._remove()


def _remove(folder: Path, process: int) -> None:
    # A forked process has a copy of the object, but the folder is not its own.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
