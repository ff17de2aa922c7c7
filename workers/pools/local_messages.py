"""Messages between processes of one machine, and values that lie once in memory for all of them."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

_HEAD = struct.Struct("<QI")
_COUNT = struct.Struct("<Q")
_SPAN = struct.Struct("<QQ")
# Vector instructions read arrays fastest from such addresses.
_ALIGNMENT = 64
_MOST_DESCRIPTORS = 64
_CLOSED_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class StoredValue:
    """A value in memory that other processes map; nobody may change it, and nothing is left when all have ended.

    Args:
        descriptor: of the memory; closed with this object.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def of(cls, value: Any) -> StoredValue:
        """Returns a copy of a value, whose arrays are not copied again where it is read."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        raw = [buffer.raw() for buffer in buffers]
        at = _COUNT.size + _SPAN.size * (1 + len(raw))
        spans = []
        for part in (memoryview(pickled), *raw):
            at = -(-at // _ALIGNMENT) * _ALIGNMENT
            spans.append((at, part.nbytes))
            at += part.nbytes
        stored = cls(_new_memory(at))
        with mmap.mmap(stored.descriptor, at) as memory:
            memory[: _COUNT.size] = _COUNT.pack(len(spans))
            for index, (part, span) in enumerate(zip((memoryview(pickled), *raw), spans, strict=True)):
                _SPAN.pack_into(memory, _COUNT.size + index * _SPAN.size, *span)
                memory[span[0] : sum(span)] = part
        return stored

    def load(self) -> Any:
        """Returns the value; its arrays are read-only and lie in the shared memory."""
        memory = memoryview(mmap.mmap(self.descriptor, 0, prot=mmap.PROT_READ))
        (count,) = _COUNT.unpack_from(memory)
        spans = [_SPAN.unpack_from(memory, _COUNT.size + index * _SPAN.size) for index in range(count)]
        pickled, *buffers = (memory[start : start + size] for start, size in spans)
        return pickle.loads(pickled, buffers=buffers)

    def __del__(self) -> None:
        os.close(self.descriptor)


def _new_memory(size: int) -> int:
    descriptor = os.memfd_create("landscape", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.values: list[StoredValue] = []

    def persistent_id(self, found: Any) -> int | None:
        if not isinstance(found, StoredValue):
            return None
        self.values.append(found)
        return len(self.values) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, descriptors: Sequence[int]) -> None:
        super().__init__(file)
        self._values = [StoredValue(descriptor) for descriptor in descriptors]

    def persistent_load(self, index: int) -> StoredValue:
        return self._values[index]


class Message:
    """A message that is being sent.

    Args:
        content: can be pickled; stored values in it travel as their memory.
        descriptors: open files that travel as well, before those of stored values.
    """

    def __init__(self, content: Any, descriptors: Sequence[int] = ()) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(content)
        self._values = pickler.values  # which must live until their descriptors are sent
        self._descriptors = [*descriptors, *(value.descriptor for value in self._values)]
        if len(self._descriptors) > _MOST_DESCRIPTORS:
            raise ValueError(f"a message can hold {_MOST_DESCRIPTORS} stored values, not {len(self._descriptors)}.")
        body = file.getbuffer()
        self._left = memoryview(_HEAD.pack(body.nbytes, len(self._descriptors)) + bytes(body))

    def send(self, connection: socket.socket) -> None:
        """Sends what is left of it.

        Raises:
            BlockingIOError: the connection does not block, and takes nothing now.
            OSError: the other end is gone.
        """
        while self._left:
            if self._descriptors:
                sent = socket.send_fds(connection, [self._left], self._descriptors)
                self._descriptors, self._values = [], []
            else:
                sent = connection.send(self._left)
            self._left = self._left[sent:]


class Inbox:
    """Puts together the messages that come through a connection.

    Args:
        connection: may block or not.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._bytes = bytearray()
        self._descriptors: list[int] = []

    def receive(self) -> bool:
        """Takes what has come, or waits for something; returns False where the other end is gone.

        Raises:
            BlockingIOError: the connection does not block, and nothing has come.
        """
        try:
            data, descriptors, _, _ = socket.recv_fds(self._connection, 2**20, _MOST_DESCRIPTORS, _CLOSED_ON_EXEC)
        except ConnectionError:
            return False
        self._bytes += data
        self._descriptors += descriptors
        return bool(data)

    def messages(self) -> list[tuple[bytes, list[int]]]:
        """Returns the messages that are whole, each with the open files that came with it."""
        found: list[tuple[bytes, list[int]]] = []
        while len(self._bytes) >= _HEAD.size:
            size, count = _HEAD.unpack_from(self._bytes)
            end = _HEAD.size + size
            if len(self._bytes) < end:
                break
            body = bytes(self._bytes[_HEAD.size : end])
            del self._bytes[:end]
            descriptors, self._descriptors = self._descriptors[:count], self._descriptors[count:]
            found.append((body, descriptors))
        return found


def read_message(body: bytes, descriptors: Sequence[int]) -> Any:
    """Returns a message's content.

    Args:
        body: as it came.
        descriptors: of the stored values in it.
    """
    return _Unpickler(io.BytesIO(body), descriptors).load()
