"""What a private Ray leaves behind when its driver is killed, and who removes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from collectors.files.local_files import folders_of_dead_processes

FOLDER_PREFIX = "landscape-ray-"
SESSION_VARIABLE = "LANDSCAPE_RAY_SESSION"
"""In the environment of every process of a private Ray; its value is the name of the session's folder."""

_OWNER = "owner"
_END_SECONDS = 10.0


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Marks a session's folder as in use, by a lock that the system frees when its holder dies."""
    descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_dead_sessions(parent: str | os.PathLike[str]) -> None:
    """Ends the processes and removes the folders of private Rays whose owner was killed.

    Ray's processes notice by themselves that their driver is gone, but only after about a minute.

    Args:
        parent: the folder that holds theirs.
    """
    for folder in folders_of_dead_processes(parent, FOLDER_PREFIX):
        # The lock also shows owners whose process id means nothing here, as in another container with the same /tmp.
        if not _is_owned(folder):
            end_session(folder)


def end_session(folder: Path) -> None:
    """Ends what still runs of a private Ray, and removes its folder."""
    end_processes(folder.name)
    shutil.rmtree(folder, ignore_errors=True)


def end_processes(session: str) -> None:
    """Kills every process of a private Ray, and waits until they are gone.

    Args:
        session: the name of its folder.
    """
    deadline = time.monotonic() + _END_SECONDS
    # A raylet may start one more worker while its processes are being listed.
    while processes := session_processes(session):
        for process in processes:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def session_processes(session: str) -> list[int]:
    """Returns the ids of a private Ray's living processes; a process that has ended has no environment any more."""
    mark = f"{SESSION_VARIABLE}={session}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(path.name) == os.getpid():
                continue
            if mark in (path / "environ").read_bytes().split(b"\0") or _has_lost_mark(path, session):
                found.append(int(path.name))
    return found


def _has_lost_mark(process: Path, session: str) -> bool:
    # The title that Ray gives its processes may overwrite a part of their environment, but their logs are open.
    if not (process / "cmdline").read_bytes().startswith(b"ray::"):
        return False
    return any(f"/{session}/" in str(item.readlink()) for item in (process / "fd").iterdir())


def _is_owned(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _OWNER, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # another user's
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
