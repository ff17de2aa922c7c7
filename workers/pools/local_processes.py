"""Processes of this machine in which actors live: how they are started, what they are sent, and what they do."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import pickle
import queue
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NoReturn

from collectors.files import system

from ..errors import PoolError, SampleMemoryError
from ..forked import begin_anew
from ..samples.store import SampleFile
from .actors import python_path

_HEAD = struct.Struct("<Q")
_ALIGNMENT = 64  # vector instructions read arrays fastest from such addresses
_MOST_DESCRIPTORS = 64
_END_SECONDS, _STATUS_SECONDS = 10.0, 1.0


class StoredValue:
    """A value in a file that others map and nobody may change; spans are (start, bytes) of its pickle and arrays."""

    def __init__(self, value: Any, folder: str | None = None) -> None:
        # Where it is read, arrays are not copied again.
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(pickled), *(buffer.raw() for buffer in buffers)]
        try:
            self._file: SampleFile | None = SampleFile(folder)  # None in a process that it is out of reach of
            self._spans = [(self._file.append(part, _ALIGNMENT), part.nbytes) for part in parts]
        except (SampleMemoryError, OSError) as error:
            size = sum(part.nbytes for part in parts)
            raise PoolError(f"there is no room for {size / 1e9:.2g} GB that the workers share: {error}") from error

    def load(self) -> Any:
        """Returns the value; its arrays are read-only and lie in the file."""
        if self._file is None:
            raise RuntimeError("a value that the driver stored is out of this process's reach.")
        memory = memoryview(self._file.map(writable=False))  # type: ignore[arg-type]
        pickled, *buffers = (memory[start : start + size] for start, size in self._spans)
        return pickle.loads(pickled, buffers=buffers)


def framed(content: Any) -> bytes:
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

    def messages(self) -> Iterator[bytes]:
        """Yields the contents of the messages that are whole, still pickled."""
        while len(self._bytes) >= _HEAD.size:
            (size,) = _HEAD.unpack_from(self._bytes)
            end = _HEAD.size + size
            if len(self._bytes) < end:
                break
            body = bytes(self._bytes[_HEAD.size : end])
            del self._bytes[:end]
            yield body


class Spawned:
    """A process that is started from nothing, on every system, takes a connection and calls a function of this file."""

    def __init__(self, function: str, connection: socket.socket, stderr: BinaryIO, **further: str) -> None:
        # The driver's script is not imported: it may have no `if __name__ == "__main__":`, and would start workers
        # again. PYTHONHASHSEED and OMP_NUM_THREADS are as Ray sets them, so that both give the same numbers.
        environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONHASHSEED": "0", **python_path(), **further}
        code = f"from {__name__} import {function}; {function}()"
        try:
            self._process = system.start_python(["-P", "-c", code], connection, stderr=stderr, environment=environment)
        except OSError as error:
            raise PoolError(f"the workers' processes could not be started: {error}") from error

    def ended(self, seconds: float = 0.0) -> int | None:
        """Returns its exit code, negative for a signal; None while it runs, or nobody says."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self.ended(_END_SECONDS)


class Forked:
    """A worker that the template knows."""

    def __init__(self, template: Template, number: int) -> None:
        self._template, self._number = template, number
        self.status: int | None = None

    def ended(self, seconds: float = 0.0) -> int | None:
        end = time.monotonic() + seconds
        while self.status is None and not self._template.death() and (left := end - time.monotonic()) > 0:
            self._template.take_news(left)
        return self.status

    def kill(self) -> None:
        self._template.order("kill", self._number)


class Template:
    """Forks workers from a process that has imported what they need, which is faster and takes less memory."""

    def __init__(self, modules: Sequence[str], stderr: BinaryIO) -> None:
        # News of the processes come through ``control``.
        self.control, theirs = socket.socketpair()
        self._inbox = Inbox(self.control.recv)
        self._numbers = itertools.count()
        self._running: dict[int, Forked] = {}
        with theirs:
            self._process = Spawned("serve", theirs, stderr)
        # Modules that start threads when they are imported must not be among them.
        self.order("import", tuple(modules))

    def fork(self, connection: socket.socket) -> Forked:
        number = next(self._numbers)
        found = self._running[number] = Forked(self, number)
        self.order("fork", number, [connection.fileno()])
        return found

    def order(self, kind: str, value: object, descriptors: Sequence[int] = ()) -> None:
        """Asks the template for something, and sends it open files."""
        with contextlib.suppress(ConnectionError):  # ``death`` says so
            socket.send_fds(self.control, [framed((kind, value))], descriptors)

    def take_news(self, seconds: float = 0.0) -> None:
        """Takes what the template says: the number and the status of each process that has ended."""
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
            number, status = pickle.loads(body)
            self._running.pop(number).status = status

    def death(self) -> str:
        """Returns how the template ended; "" while it lives."""
        status = self._process.ended()
        return "" if status is None else f"the process from which workers are started {how_it_ended(status)}"

    def close(self) -> None:
        self.control.close()
        self._end(_END_SECONDS)

    def _end(self, seconds: float) -> None:
        if self._process.ended(seconds) is None:
            self._process.kill()


def how_it_ended(status: int | None) -> str:
    """Returns what an exit code means, as the end of a sentence about a process."""
    if status is None:
        return "ended"
    if status >= 0:
        return f"ended with exit code {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"was ended by signal {-status}"


def work_alone() -> None:
    """Is a worker until the driver is gone; this process was started for it."""
    connection = system.connection_of_parent()
    system.end_first_where_memory_runs_out()
    came: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for body in _received(connection):
            came.put(body)
        os._exit(0)  # also where it computes, as nobody waits for that

    threading.Thread(target=read, name="driver's calls", daemon=True).start()
    _work(connection, iter(came.get, None))


def serve() -> None:
    """Forks workers until the driver is gone, and ends them then."""
    # This process has one thread, and imports what workers need before it is forked: they start at once.
    control = system.connection_of_parent()
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    connections: list[int] = []

    def read(size: int) -> bytes:
        data, descriptors, _, _ = socket.recv_fds(control, size, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        connections.extend(descriptors)
        return data

    inbox = Inbox(read)
    children: dict[int, int] = {}  # the processes that run, by the driver's numbers
    try:
        while True:
            readable = select.select([control.fileno(), woken], [], [])[0]
            if woken in readable:
                os.read(woken, 4096)
                for ended in _ended(children):
                    control.sendall(framed(ended))
            if control.fileno() in readable:
                if not inbox.receive():
                    return
                for body in inbox.messages():
                    _obey(pickle.loads(body), connections, control, children)
    except (BrokenPipeError, ConnectionResetError):
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        for child in children.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)
        os._exit(0)  # taking down what was imported would take a second


def _obey(order: tuple[str, Any], connections: list[int], control: socket.socket, children: dict[int, int]) -> None:
    kind, value = order
    if kind == "import":
        for name in value:
            with contextlib.suppress(Exception):  # a worker that needs it says what is wrong
                importlib.import_module(name)
    elif kind == "kill":
        if value in children:
            os.kill(children[value], signal.SIGKILL)
    else:
        connection = connections.pop(0)
        child = os.fork()
        if child == 0:
            _become_worker(connection, control)
        os.close(connection)
        children[value] = child


def _ended(children: dict[int, int]) -> Iterator[tuple[int, int]]:
    for number, child in list(children.items()):
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            del children[number]
            yield number, os.waitstatus_to_exitcode(status)


def _become_worker(connection: int, control: socket.socket) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        begin_anew()
        system.end_with_parent()
        system.end_first_where_memory_runs_out()
        if "numpy" in sys.modules:
            # Otherwise all workers would draw the same numbers, and agree where callback_fn sets no seed.
            sys.modules["numpy"].random.seed()
        own = socket.socket(fileno=connection)
        _work(own, _received(own))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _received(connection: socket.socket) -> Iterator[bytes]:
    inbox = Inbox(connection.recv)
    while inbox.receive():
        yield from inbox.messages()


def _work(connection: socket.socket, bodies: Iterable[bytes]) -> None:
    """Makes an object and calls its methods, one after another, as they are asked for."""
    made: Any = None
    for body in bodies:
        number, method, arguments = pickle.loads(body)
        try:
            values = [item.load() if isinstance(item, StoredValue) else item for item in arguments]
            if method is None:
                kind, *values = values
                made, answer = kind(*values), None
            else:
                answer = getattr(made, method)(*values)
            del values, arguments
            connection.sendall(framed((number, True, answer)))
        except Exception:
            with contextlib.suppress(ConnectionError):  # the driver is gone
                connection.sendall(framed((number, False, traceback.format_exc())))
