"""How workers' processes are started on this machine: spawned, or forked from one that has imported what they need."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from collectors.files import system

from ..errors import PoolError
from .local_line import Inbox, Process, framed
from .ray_session import python_path

_END_SECONDS = 10.0
_STATUS_SECONDS = 1.0
_WORKER = "local_worker"


def _environment() -> dict[str, str]:
    # As Ray sets them for its workers, so that both give the same numbers.
    ours = {"PYTHONHASHSEED": "0"} | ({} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"})
    return os.environ | ours | python_path()


def _start(function: str, connection: socket.socket, stderr: BinaryIO, **further: str) -> subprocess.Popen[bytes]:
    # The driver's script is not imported: it may have no `if __name__ == "__main__":`, and would start workers again.
    code = f"from {__package__}.{_WORKER} import {function}; {function}()"
    try:
        environment = _environment() | further
        return system.start_python(["-P", "-c", code], connection, stderr=stderr, environment=environment)
    except OSError as error:
        raise PoolError(f"the workers' processes could not be started: {error}") from error


class _Spawned:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ended(self, seconds: float = 0.0) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self.ended(_END_SECONDS)


class SpawnedProcesses:
    """Starts each worker from nothing, on every system."""

    # No news of the processes come: they are asked.
    control: socket.socket | None = None

    def __init__(self, stderr: BinaryIO, environment: Mapping[str, str] | None = None) -> None:
        self._stderr, self._environment = stderr, environment or {}

    def start(self, connection: socket.socket) -> Process:
        """Starts a worker, which takes the connection."""
        return _Spawned(_start("work_alone", connection, self._stderr, **self._environment))

    def take_news(self) -> None:
        """Does nothing: processes are asked one by one."""

    def death(self) -> str:
        """Returns why no process can be started any more; "" where it can."""
        return ""

    def close(self) -> None:
        """Does nothing: workers end with their connections."""


class _Forked:
    def __init__(self, template: ForkedProcesses) -> None:
        self._template = template
        self.number: int | None = None
        self.status: int | None = None
        self.is_unwanted = False

    def ended(self, seconds: float = 0.0) -> int | None:
        end = time.monotonic() + seconds
        while self.status is None and not self._template.death() and (left := end - time.monotonic()) > 0:
            self._template.take_news(left)
        return self.status

    def kill(self) -> None:
        self.is_unwanted = True  # it ends as soon as it is known which one it is
        if self.number is not None:
            self._template.order("kill", self.number)


class ForkedProcesses:
    """Forks workers from a process that has imported what they need, which is faster and takes less memory."""

    def __init__(self, modules: Sequence[str], stderr: BinaryIO) -> None:
        # News of the processes come through ``control``.
        self.control, theirs = socket.socketpair()
        self._inbox = Inbox(self.control.recv)
        self._tokens = itertools.count(1)
        self._unplaced: dict[int, _Forked] = {}
        self._by_number: dict[int, _Forked] = {}
        with theirs:
            self._template = _start("serve", theirs, stderr)
        # Modules that start threads when they are imported must not be among them.
        self.order("import", tuple(modules))

    def start(self, connection: socket.socket) -> Process:
        """Forks a worker, which takes the connection."""
        token = next(self._tokens)
        found = self._unplaced[token] = _Forked(self)
        self.order("fork", token, [connection.fileno()])
        return found

    def order(self, kind: str, value: object, descriptors: Sequence[int] = ()) -> None:
        """Asks the template for something, and sends it open files."""
        with contextlib.suppress(ConnectionError):  # ``death`` says so
            socket.send_fds(self.control, [framed((kind, value))], descriptors)

    def take_news(self, seconds: float = 0.0) -> None:
        """Takes what the template says: (-token, process) of a start, and (process, status) of an end."""
        self.control.settimeout(seconds)
        try:
            alive = self._inbox.receive()
        except (BlockingIOError, TimeoutError):  # somebody who waited for news of one worker has taken them already
            return
        finally:
            self.control.settimeout(None)
        if not alive:
            self._end(_STATUS_SECONDS)  # its connection closes before it has ended
        for body in self._inbox.messages():
            key, value = pickle.loads(body)
            if key > 0:
                self._by_number.pop(key).status = value
                continue
            process = self._by_number[value] = self._unplaced.pop(-key)
            process.number = value
            if process.is_unwanted:
                process.kill()

    def death(self) -> str:
        """Returns how the template ended; "" while it lives."""
        status = self._template.poll()
        return "" if status is None else f"the process from which workers are started {how_it_ended(status)}"

    def close(self) -> None:
        """Ends the template and its children."""
        self.control.close()
        self._end(_END_SECONDS)

    def _end(self, seconds: float) -> None:
        try:
            self._template.wait(seconds)
        except subprocess.TimeoutExpired:
            self._template.kill()
            self._template.wait()


def how_it_ended(status: int | None) -> str:
    """Returns what an exit code means, as the end of a sentence about a process."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"ended with exit code {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"was ended by signal {-status}"
