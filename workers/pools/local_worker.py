"""What a worker of this machine does, and the process from which workers are forked."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import queue
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from collectors.files import system

from ..forked import begin_anew
from .local_line import Inbox, StoredValue, framed

_MOST_DESCRIPTORS = 64


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
    children: set[int] = set()
    try:
        while True:
            readable = select.select([control.fileno(), woken], [], [])[0]
            if woken in readable:
                os.read(woken, 4096)
                for child, status in _ended(children):
                    control.sendall(framed((child, status)))
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
        _end_all(children)


def _end_all(children: set[int]) -> NoReturn:
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    for child in children:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    os._exit(0)  # taking down what was imported would take a second


def _obey(order: tuple[str, Any], connections: list[int], control: socket.socket, children: set[int]) -> None:
    kind, value = order
    if kind == "import":
        for name in value:
            with contextlib.suppress(Exception):  # a worker that needs it says what is wrong
                importlib.import_module(name)
    elif kind == "kill":
        if value in children:
            os.kill(value, signal.SIGKILL)
    else:
        connection = connections.pop(0)
        child = os.fork()
        if child == 0:
            _become_worker(connection, control)
        os.close(connection)
        children.add(child)
        control.sendall(framed((-value, child)))


def _ended(children: set[int]) -> list[tuple[int, int]]:
    found = []
    for child in list(children):
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            children.remove(child)
            found.append((child, os.waitstatus_to_exitcode(status)))
    return found


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
        except Exception as error:
            _answer_error(connection, number, error)


def _answer_error(connection: socket.socket, number: int, error: Exception) -> None:
    text = "".join(traceback.format_exception(error))
    attempts: tuple[Callable[[], Any], ...] = (lambda: (error, text), lambda: (RuntimeError(str(error)), text))
    for attempt in attempts:
        with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
            content = attempt()
            pickle.loads(pickle.dumps(content))  # some can be written and not read
            connection.sendall(framed((number, False, content)))
            return
