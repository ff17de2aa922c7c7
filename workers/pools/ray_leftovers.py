"""What a private Ray leaves behind when its driver is killed, and who removes it."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from collectors.files.local_files import folders_of_dead_processes
from collectors.files.system import KILL, holding, processes_with

FOLDER_PREFIX = "landscape-ray-"
SESSION_VARIABLE = "LANDSCAPE_RAY_SESSION"
"""In the environment of every process of a private Ray; its value is the name of the session's folder."""

_OWNER = "owner"
_END_SECONDS = 10.0


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Marks a session's folder as in use, by a lock that the system frees when its holder dies, and removes it."""
    try:
        with holding(folder / _OWNER):
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # not before: Windows removes no open file, such as that of the lock


def remove_dead_sessions(parent: str | os.PathLike[str]) -> None:
    """Ends private Rays whose owner was killed, and removes their folders in ``parent``."""
    # Ray's processes notice by themselves that their driver is gone, but only after about a minute.
    for folder in folders_of_dead_processes(parent, FOLDER_PREFIX):
        # The lock also shows owners whose process id means nothing here, as in another container with the same /tmp.
        if not _is_owned(folder):
            end_session(folder)


def end_session(folder: Path) -> None:
    """Ends what still runs of a private Ray, and removes its folder."""
    end_processes(folder.name)
    shutil.rmtree(folder, ignore_errors=True)


def end_processes(session: str) -> None:
    """Kills every process of the private Ray with a folder of that name, and waits until they are gone."""
    deadline = time.monotonic() + _END_SECONDS
    # A raylet may start one more worker while its processes are being listed.
    while processes := session_processes(session):
        for process in processes:
            with contextlib.suppress(OSError):
                os.kill(process, KILL)
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def session_processes(session: str) -> list[int]:
    """Returns the ids of a private Ray's living processes; a process that has ended has no environment any more."""
    return processes_with(SESSION_VARIABLE, session, title=b"ray::")


def _is_owned(folder: Path) -> bool:
    if not (folder / _OWNER).is_file():
        return False
    try:
        with holding(folder / _OWNER, wait=False):
            return False
    except (OSError, TimeoutError):
        return True  # somebody's, perhaps another user's
