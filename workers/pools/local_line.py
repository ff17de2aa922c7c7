"""What the driver and an actor's process on this machine send each other: calls, answers, and stored values."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..errors import PoolError, SampleMemoryError
from ..samples.sample_file import FileHandle, SampleFile
from .actors import ActorError, ActorTaskError

_HEAD = struct.Struct("<Q")
# Vector instructions read arrays fastest from such addresses.
_ALIGNMENT = 64


class StoredValue:
    """A value in a file that others map and nobody may change; spans are (start, bytes) of its pickle and arrays."""

    def __init__(
        self, handle: FileHandle | None, spans: Sequence[tuple[int, int]], file: SampleFile | None = None
    ) -> None:
        self._handle, self._spans, self._file = handle, spans, file

    @classmethod
    def of(cls, value: Any, folder: str | None = None) -> StoredValue:
        """Returns a copy of a value, whose arrays are not copied again where it is read."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(pickled), *(buffer.raw() for buffer in buffers)]
        try:
            file = SampleFile(folder)
            spans = [(file.append(part, _ALIGNMENT), part.nbytes) for part in parts]
        except (SampleMemoryError, OSError) as error:
            size = sum(part.nbytes for part in parts)
            raise PoolError(f"there is no room for {size / 1e9:.2g} GB that the workers share: {error}") from error
        return cls(file.handle(), spans, file)

    def load(self) -> Any:
        """Returns the value; its arrays are read-only and lie in the file."""
        file = self._file if self._handle is None else SampleFile.open(self._handle)
        if file is None:
            raise RuntimeError("a value that the driver stored is out of this process's reach.")
        memory = memoryview(file.map(writable=False))  # type: ignore[arg-type]
        pickled, *buffers = (memory[start : start + size] for start, size in self._spans)
        return pickle.loads(pickled, buffers=buffers)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredValue, (self._handle, self._spans)


def framed(content: Any) -> bytes:
    """Returns a message as it is sent."""
    body = pickle.dumps(content, protocol=5)
    return _HEAD.pack(len(body)) + body


class Inbox:
    """Puts together the messages that come through a connection; ``read`` gives no bytes once the other end is gone."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._bytes = bytearray()

    def receive(self) -> bool:
        """Takes what comes; False where the other end is gone, BlockingIOError or TimeoutError where nothing came."""
        try:
            data = self._read(2**20)
        except ConnectionError:
            return False
        self._bytes += data
        return bool(data)

    def messages(self) -> list[Any]:
        """Returns the contents of the messages that are whole, still pickled."""
        found = []
        while len(self._bytes) >= _HEAD.size:
            (size,) = _HEAD.unpack_from(self._bytes)
            end = _HEAD.size + size
            if len(self._bytes) < end:
                break
            found.append(bytes(self._bytes[_HEAD.size : end]))
            del self._bytes[:end]
        return found


class Call:
    """A method's call, and its answer once that has come; until then it keeps stored values in its arguments alive."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self._arguments: Sequence[Any] = arguments
        self.answer: Any = None
        self.error: ActorError | None = None
        self.is_done = False

    def end(self, answer: Any = None, error: ActorError | None = None) -> None:
        """Sets the answer, or why there is none."""
        self.answer, self.error, self.is_done, self._arguments = answer, error, True, ()

    def get(self) -> Any:
        """Returns the answer."""
        if self.error is not None:
            raise self.error
        return self.answer


class Process(Protocol):
    """A worker's process."""

    def ended(self, seconds: float = 0.0) -> int | None:
        """Returns its exit code, negative for a signal; None if it runs, or nobody says, after so many seconds."""

    def kill(self) -> None:
        """Ends it at once."""


class Line:
    """An actor of this machine as its driver sees it: the connection with its process."""

    def __init__(self, process: Process, connection: socket.socket, changed: Callable[[Line], None]) -> None:
        connection.setblocking(False)
        self.process, self.connection, self._changed = process, connection, changed
        self._inbox = Inbox(connection.recv)
        # ``changed`` is called when there begins or ends to be something unsent.
        self._unsent: deque[memoryview] = deque()
        self._numbers = itertools.count()
        self._waiting: dict[int, Call] = {}
        # Why nothing comes any more; None while it lives.
        self.death: ActorError | None = None

    def call(self, method: str | None, arguments: Sequence[Any]) -> Call:
        """Asks for a method's call; None makes the object, of a class and its arguments."""
        call = Call(arguments)
        if self.death is not None:
            call.end(error=self.death)
            return call
        number = next(self._numbers)
        self._unsent.append(memoryview(framed((number, method, arguments))))
        self._waiting[number] = call
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
                sent = self.connection.send(self._unsent[0])
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    self._unsent.popleft()
        self._changed(self)

    def receive(self) -> bool:
        """Takes the answers that have come; returns False where the process is gone."""
        alive = True
        with contextlib.suppress(BlockingIOError):
            while alive:
                alive = self._inbox.receive()
        for body in self._inbox.messages():
            number, succeeded, content = pickle.loads(body)
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
