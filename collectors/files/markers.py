"""Markers: files behind a URL that say who writes there, because servers know no locks that die with their holder."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import time
import uuid
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from .background import NewestState
from .locks import LockHeldError
from .remote_path import RemotePath
from .system import machine_identity, process_is_alive, user_name

# How often a holder shows that it lives, and how long others wait for such a sign. No clocks are compared.
BEAT_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
# How long two who begin at the same moment give each other to show.
SETTLING_SECONDS = 0.5
_LARGEST = 4096
_LONGEST_TEXT = 200
_held: set[str] = set()


class Marker:
    """The right to write a folder behind a URL, from here to ``release``: a file there that a thread renews."""

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
        self._renewal = NewestState("writer-marker", self._renew, BEAT_SECONDS, last=self._remove)
        self._renewal.touch()

    def check(self) -> None:
        """Raises LockHeldError if the marker names somebody else, as far as was seen when it was last renewed."""
        self._renewal.check()

    def release(self) -> None:
        """Removes the marker if it is ours; a second call does nothing, nor does one in a forked process."""
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
