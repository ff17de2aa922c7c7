"""Locks: who has one keeps all others from writing what it stands for, on this machine or behind a URL."""

from __future__ import annotations

import contextlib
import errno
import getpass
import json
import os
import socket
import stat
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import system
from .background import WritingThread
from .remote_path import RemotePath
from .system import machine_identity, process_is_alive, user_name

# What file systems without locks answer.
WITHOUT_LOCKS = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK})
# More than any process id.
_MOST_DIGITS = 10
# How often a holder shows that it lives, and how long others wait for such a sign. No clocks are compared.
BEAT_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
# How long two who begin at the same moment give each other to show.
SETTLING_SECONDS = 0.5
_LARGEST = 4096
_LONGEST_TEXT = 200
_held: set[str] = set()


class LockHeldError(Exception):
    """Somebody else holds the lock; the text says who."""


class WriteLock:
    """The right to write something, until it is released; by itself, where the file system has no locks."""

    def check(self) -> None:
        """Raises LockHeldError if somebody else has taken the right meanwhile."""

    def release(self) -> None:
        """Gives the right back; a second call does nothing, nor does one in a forked process."""


class ProcessLock(WriteLock):
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

    def release(self) -> None:
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


class Marker(WriteLock):
    """The right to write a folder behind a URL, where no lock dies with its holder: a file that a thread renews."""

    def __init__(
        self,
        file: RemotePath,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._file, self._identity, self._beats = file, uuid.uuid4().hex, 0
        self._clock, self._pause = clock, pause
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self._process = os.getpid()
        found = self._read()
        if found and self._lives(found):
            raise LockHeldError(_who(found))
        self._write()
        self._pause(SETTLING_SECONDS)
        self._check_ours()
        _held.add(self._identity)
        self._renewal = WritingThread("writer-marker", save=self._renew, interval=BEAT_SECONDS, last=self._remove)
        self._renewal.touch()

    def check(self) -> None:
        """Raises LockHeldError if the marker names somebody else, as far as was seen when it was last renewed."""
        self._renewal.check()

    def release(self) -> None:
        if os.getpid() == self._process:
            with contextlib.suppress(LockHeldError):
                self._renewal.close()
            _held.discard(self._identity)

    def _lives(self, found: bytes) -> bool:
        facts = _facts(found)
        # After a minute without change, or its process's death, a marker is taken over: training goes on after a kill.
        # Servers have no locks: two may begin within a second; the marker names one, the other stops at its next look.
        if facts.get("machine") == machine_identity() != "" and type(facts.get("process")) is int:
            if facts["process"] == os.getpid():
                return facts.get("identity") in _held
            if not process_is_alive(facts["process"]):
                return False
        end = self._clock() + PATIENCE_SECONDS
        while self._clock() < end:
            self._pause(min(BEAT_SECONDS / 2, PATIENCE_SECONDS))
            now = self._read()
            if now != found:
                return bool(now)
        warnings.warn(
            f"{self._file} names {_who(found)}, but has not changed for {PATIENCE_SECONDS:g} s; that process is taken "
            "for dead.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False

    def _renew(self) -> None:
        # While the server is away nobody else can take the marker either.
        with contextlib.suppress(OSError):
            self._check_ours()
            self._write()
        self._renewal.touch()

    def _check_ours(self) -> None:
        found = self._read()
        if found and _facts(found).get("identity") != self._identity:
            raise LockHeldError(_who(found))

    def _remove(self) -> None:
        with contextlib.suppress(OSError, LockHeldError):
            self._check_ours()
            try:
                self._file.unlink(missing_ok=True)
            except OSError:
                # The right to write need not include the right to remove.
                self._file.write_bytes(b"{}")

    def _read(self) -> bytes | None:
        """Returns the marker; None if there is none, or it was given back."""
        try:
            content = self._file.read_bytes(0, _LARGEST)
        except (FileNotFoundError, PermissionError):
            # The right to write need not include the right to read.
            return None
        return None if content == b"{}" else content

    def _write(self) -> None:
        self._beats += 1
        facts = {
            "owner": f"process {self._process} of {_user()} on {socket.gethostname()}",
            "since": self._since,
            "identity": self._identity,
            "machine": machine_identity(),
            "process": self._process,
            "renewed": self._beats,
        }
        self._file.write_bytes(json.dumps(facts, indent=1).encode())


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
    folder = Path(tempfile.gettempdir()) / f"landscape-locks-{user_name()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or not system.is_private(found):
        raise PermissionError(errno.EPERM, "it is not a folder that only you can write; set TMPDIR", str(folder))
    return folder


def _facts(content: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _who(content: bytes) -> str:
    """Returns who holds a marker, and since when, whatever somebody may have written there."""
    facts = _facts(content)
    owner, since = (facts.get(key) for key in ("owner", "since"))
    if not isinstance(owner, str) or not isinstance(since, str):
        return "another process"
    return "".join(character for character in f"{owner} since {since}" if character.isprintable())[:_LONGEST_TEXT]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"user {user_name()}"
