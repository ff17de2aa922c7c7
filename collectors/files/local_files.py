"""Files that are whole or absent: written under a temporary name, renamed once they are on the disk."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path

_TEMPORARY = re.compile(r"\.(.+)\.(\d{1,10})\.[0-9a-f]{8}\.tmp", re.DOTALL)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives the path of a temporary sibling to write; it replaces the file when the block ends without an error.

    Raises:
        OSError: the file cannot be written; an existing file is untouched, and nothing else is left behind.
    """
    target = Path(path)
    temporary = temporary_sibling(target)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        if error.filename == str(temporary):
            # Nobody knows the temporary name.
            error.filename = str(target)
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_sibling(path: Path) -> Path:
    """Returns an unused name beside a file; the process id in it tells later runs whether its writer still lives."""
    return path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")


def remove_stale_temporaries(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """Removes temporary files whose writers were killed.

    Args:
        folder: where to look; it need not exist.
        name: which files' temporaries; all others stay.

    Returns:
        What was removed.
    """
    removed = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
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


def process_is_alive(process: int) -> bool:
    """Returns whether a process of that id exists on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def unsent_folder() -> Path:
    """Returns a new folder for what could not be sent to a server; it stays until the user has fetched it.

    Raises:
        OSError: it cannot be made.
    """
    return Path(tempfile.mkdtemp(prefix="landscape-unsent-"))


class TemporaryFolder:
    """A private folder, removed with this object; those of killed processes are removed when the next one is made.

    Args:
        prefix: what its name begins with; the process id follows.

    Attributes:
        path: the folder.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, prefix: str) -> None:
        for folder in folders_of_dead_processes(tempfile.gettempdir(), prefix):
            shutil.rmtree(folder, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
        self._remove = weakref.finalize(self, _remove, self.path, os.getpid())

    def remove(self) -> None:
        """Removes it with everything in it; a second call does nothing."""
        self._remove()


def _remove(folder: Path, process: int) -> None:
    # A forked process has a copy of the object, but the folder is not its own.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
