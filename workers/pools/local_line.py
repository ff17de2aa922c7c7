"""An actor on this machine as its driver sees it: its calls, their answers, and how it died."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from .local_messages import Inbox, Message, read_message


class ActorError(Exception):
    """An actor gives no answer."""


class ActorTaskError(ActorError):
    """A method raised.

    Args:
        cause: what it raised.
        text: its traceback in the worker.
    """

    def __init__(self, cause: Exception, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class Call:
    """A method's call, and its answer once that has come."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.error: ActorError | None = None
        self.is_done = False

    def end(self, answer: Any = None, error: ActorError | None = None) -> None:
        """Sets the answer, or why there is none."""
        self.answer, self.error, self.is_done = answer, error, True

    def get(self) -> Any:
        """Returns the answer.

        Raises:
            ActorError: there is none.
        """
        if self.error is not None:
            raise self.error
        return self.answer


class Actor:
    """An object in a process of its own, whose methods are called one after another: ``actor.method.remote(...)``."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(self._line, name)


class _Method:
    def __init__(self, line: Line, name: str) -> None:
        self._line, self._name = line, name

    def remote(self, *arguments: Any) -> Call:
        return self._line.call(self._name, arguments)


class Line:
    """The connection with an actor's process.

    Args:
        connection: the driver's end.
        changed: is called when there begins or ends to be something unsent.

    Attributes:
        process: its id; None until it is known.
        death: why nothing comes any more; None while it lives.
    """

    def __init__(self, connection: socket.socket, changed: Callable[[Line], None]) -> None:
        connection.setblocking(False)
        self.connection, self._changed = connection, changed
        self._inbox = Inbox(connection)
        self._unsent: deque[Message] = deque()
        self._numbers = itertools.count()
        self._waiting: dict[int, Call] = {}
        self.process: int | None = None
        self.death: ActorError | None = None

    def call(self, method: str | None, arguments: Sequence[Any]) -> Call:
        """Asks for a method's call; None makes the object, of a class and its arguments."""
        call = Call()
        if self.death is not None:
            call.end(error=self.death)
            return call
        number = next(self._numbers)
        self._waiting[number] = call
        self._unsent.append(Message((number, method, arguments)))
        self.send()
        return call

    @property
    def has_unsent(self) -> bool:
        """Whether something waits until the process reads."""
        return bool(self._unsent)

    def send(self) -> None:
        """Sends what the connection takes now."""
        with contextlib.suppress(BlockingIOError, ConnectionError):  # that it is gone is found out when reading
            while self._unsent:
                self._unsent[0].send(self.connection)
                self._unsent.popleft()
        self._changed(self)

    def receive(self) -> bool:
        """Takes the answers that have come; returns False where the process is gone."""
        alive = True
        with contextlib.suppress(BlockingIOError):
            while alive:
                alive = self._inbox.receive()
        for body, descriptors in self._inbox.messages():
            number, succeeded, content = read_message(body, descriptors)
            call = self._waiting.pop(number)
            if succeeded:
                call.end(content)
            else:
                call.end(error=ActorTaskError(*content))
        return alive

    def end(self, error: ActorError) -> None:
        """Notes that the process is gone; what it was asked for has no answer."""
        self.death = error
        self._unsent.clear()
        for call in self._waiting.values():
            call.end(error=error)
        self._waiting.clear()
        self.connection.close()
