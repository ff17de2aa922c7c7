"""Actors in processes of this machine: the part of Ray's interface that a crew uses, without Ray."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any

from ..errors import PoolError
from .local_line import Actor, ActorError, ActorTaskError, Call, Line
from .local_messages import Inbox, Message, StoredValue
from .ray_session import python_path

_END_SECONDS = 10.0
_STATUS_SECONDS = 1.0
_LAST_LINES = 5
_LAST_BYTES = 4096


class _Exceptions:
    RayError = ActorError
    RayTaskError = ActorTaskError


class LocalActors:
    """Starts actors on this machine, forked from a process that has imported what they need.

    It stands where a crew has the module ``ray``, and has its functions' names and meanings.

    Args:
        modules: that actors need; those that start threads when they are imported must not be among them.

    Raises:
        PoolError: no process can be started.
    """

    exceptions = _Exceptions

    def __init__(self, modules: Sequence[str]) -> None:
        self._control, theirs = socket.socketpair()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._inbox = Inbox(self._control)
        self._selector = selectors.DefaultSelector()
        self._lines: set[Line] = set()
        self._unplaced: dict[int, Line] = {}
        self._by_process: dict[int, Line] = {}
        self._statuses: dict[int, int] = {}
        self._tokens = itertools.count()
        code = f"from {__package__}.local_template import serve; serve({theirs.fileno()})"
        try:
            self._template = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=os.environ | _environment(),
                start_new_session=True,  # Ctrl-C ends the driver, which ends the workers
            )
        except OSError as error:
            raise PoolError(f"the workers' processes could not be started: {error}") from error
        finally:
            theirs.close()
        self._selector.register(self._control, selectors.EVENT_READ, None)
        self._order(("import", tuple(modules)))

    def remote(self, kind: type) -> _ActorClass:
        """Returns what makes actors of a class, which the workers can import."""
        return _ActorClass(self, kind)

    def put(self, value: Any) -> StoredValue:
        """Copies a value into memory that all actors share; it is freed with the reference."""
        return StoredValue.of(value)

    def get(self, references: Any) -> Any:
        """Returns an answer or a stored value, or a list of those, when all of them are there.

        Raises:
            ActorError: one of them has no answer.
        """
        if isinstance(references, StoredValue):
            return references.load()
        if isinstance(references, Call):
            self.wait([references])
            return references.get()
        return [self.get(reference) for reference in references]

    def wait(
        self, references: Sequence[Call], *, num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Call], list[Call]]:
        """Waits until some calls are done.

        Args:
            references: of the calls.
            num_returns: for how many of them.
            timeout: for how many seconds; None waits as long as it takes.

        Returns:
            At most ``num_returns`` that are done, and all others.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self._take(0.0)
        while True:
            count = sum(call.is_done for call in references)
            left = None if end is None else end - time.monotonic()
            if count >= num_returns or (left is not None and left <= 0):
                break
            self._take(left)
        ready = [call for call in references if call.is_done][:num_returns]
        chosen = set(map(id, ready))
        return ready, [call for call in references if id(call) not in chosen]

    def kill(self, actor: Actor) -> None:
        """Ends an actor at once."""
        line = actor._line
        if line.death is None:
            self._bury(line, ActorError("its process was ended by its pool"))
            if line.process is not None:
                self._order(("kill", line.process))

    def check_alive(self) -> None:
        """Looks whether workers can still be started.

        Raises:
            PoolError: they cannot.
        """
        if self._template.poll() is not None:
            raise PoolError(
                f"the process from which workers are started {_how_it_ended(self._template.returncode)}"
                f"{self._last_words()}. What was measured is in the file; run the same call again to go on."
            )

    def cluster_resources(self) -> dict[str, float]:
        """Returns how many CPUs there are."""
        return {"CPU": float(os.cpu_count() or 1)}

    available_resources = cluster_resources

    def close(self) -> None:
        """Ends all actors and what started them."""
        for line in list(self._lines):
            self._bury(line, ActorError("its pool was closed"))
        self._selector.close()
        self._control.close()  # which ends the template and its children
        try:
            self._template.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._template.kill()
            self._template.wait()
        self._stderr.close()

    def make(self, kind: type, arguments: Sequence[Any]) -> Actor:
        """Starts an actor."""
        self.check_alive()
        ours, theirs = socket.socketpair()
        token = -1 - next(self._tokens)
        with theirs:
            self._order(("fork", token), [theirs.fileno()])
        line = Line(ours, self._watch)
        self._lines.add(line)
        self._unplaced[token] = line
        self._selector.register(ours, selectors.EVENT_READ, line)
        line.call(None, (kind, *arguments))
        return Actor(line)

    def _watch(self, line: Line) -> None:
        """Waits for an actor's connection to take more where something is unsent."""
        if line.death is None:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.has_unsent else 0)
            if self._selector.get_key(line.connection).events != events:
                self._selector.modify(line.connection, events, line)

    def _take(self, seconds: float | None) -> None:
        """Waits for something to come, or to become possible."""
        for key, events in self._selector.select(seconds):
            line = key.data
            if line is None:
                self._take_news()
            elif line.death is None:
                if events & selectors.EVENT_WRITE:
                    line.send()
                if events & selectors.EVENT_READ and not line.receive():
                    self._bury(line, self._death_of(line))

    def _take_news(self) -> None:
        """Takes what the template says: (token, process) of a start, and (process, status) of an end."""
        self._control.setblocking(False)
        try:
            alive = self._inbox.receive()
        except BlockingIOError:  # somebody who waited for news of one worker has taken them already
            return
        finally:
            self._control.setblocking(True)
        if not alive:
            self._selector.unregister(self._control)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._template.wait(_STATUS_SECONDS)  # its connection closes before it has ended
            for line in list(self._lines):
                line.receive()
                self._bury(line, ActorError("the process from which workers are started has ended"))
            return
        for body, _ in self._inbox.messages():
            key, value = pickle.loads(body)
            if key < 0:
                line = self._unplaced.pop(key)
                line.process = value
                self._by_process[value] = line
                if line.death is not None:  # before it was known which one to end
                    self._order(("kill", value))
            elif (ended := self._by_process.pop(key, None)) is not None:
                self._statuses[key] = value
                if ended.death is None:
                    ended.receive()
                    self._bury(ended, self._death_of(ended))

    def _death_of(self, line: Line) -> ActorError:
        end = time.monotonic() + _STATUS_SECONDS
        while line.process not in self._statuses and time.monotonic() < end and self._template.poll() is None:
            for key, _ in self._selector.select(_STATUS_SECONDS / 20):
                if key.data is None:
                    self._take_news()
        status = self._statuses.get(line.process or 0)
        how = "ended" if status is None else _how_it_ended(status)
        return ActorError(f"its process {how}{self._last_words()}")

    def _bury(self, line: Line, error: ActorError) -> None:
        if line.death is None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(line.connection)
            line.end(error)
        self._lines.discard(line)

    def _order(self, order: tuple[str, Any], descriptors: Sequence[int] = ()) -> None:
        with contextlib.suppress(ConnectionError):  # check_alive says so
            Message(order, descriptors).send(self._control)

    def _last_words(self) -> str:
        """Returns the last lines that workers wrote to their standard error."""
        descriptor = self._stderr.fileno()
        size = os.fstat(descriptor).st_size
        text = os.pread(descriptor, _LAST_BYTES, max(0, size - _LAST_BYTES)).decode(errors="replace").strip()
        lines = text.splitlines()[-_LAST_LINES:]
        return "; the workers' last lines:\n  " + "\n  ".join(lines) if lines else ""


class _ActorClass:
    def __init__(self, system: LocalActors, kind: type) -> None:
        self._system, self._kind = system, kind

    def options(self, **_: Any) -> _ActorClass:
        """Returns itself: each actor has the cores that its pool gives it."""
        return self

    def remote(self, *arguments: Any) -> Actor:
        """Starts an actor."""
        return self._system.make(self._kind, arguments)


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"was ended by signal {-status}"


def _environment() -> dict[str, str]:
    # As Ray sets them for its workers, so that both give the same numbers.
    ours = {"PYTHONHASHSEED": "0"} | ({} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"})
    return ours | python_path()
