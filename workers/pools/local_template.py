"""The process from which the workers of one machine are forked, and what each of them does."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from collectors.files import system

from ..forked import begin_anew
from .local_messages import Inbox, Message, StoredValue, read_message


def serve(descriptor: int) -> None:
    """Forks workers until the driver is gone, and ends them then.

    This process has one thread, and imports what workers need before it is forked: they start at once.

    Args:
        descriptor: of the connection with the driver.
    """
    control = socket.socket(fileno=descriptor)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    inbox = Inbox(control)
    children: set[int] = set()
    try:
        while True:
            readable = select.select([control.fileno(), woken], [], [])[0]
            if woken in readable:
                os.read(woken, 4096)
                for child, status in _ended(children):
                    Message((child, status)).send(control)
            if control.fileno() in readable:
                if not inbox.receive():
                    return
                for body, descriptors in inbox.messages():
                    _obey(pickle.loads(body), descriptors, control, children)
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


def _obey(order: tuple[str, Any], descriptors: Sequence[int], control: socket.socket, children: set[int]) -> None:
    kind, value = order
    if kind == "import":
        for name in value:
            with contextlib.suppress(Exception):  # a worker that needs it says what is wrong
                importlib.import_module(name)
    elif kind == "kill":
        if value in children:
            os.kill(value, signal.SIGKILL)
    else:
        (connection,) = descriptors
        child = os.fork()
        if child == 0:
            _become_worker(connection, control)
        os.close(connection)
        children.add(child)
        Message((value, child)).send(control)


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
        _work(socket.socket(fileno=connection))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _work(connection: socket.socket) -> None:
    """Makes an object and calls its methods, one after another, as they are asked for."""
    inbox = Inbox(connection)
    made: Any = None
    while inbox.receive():
        for body, descriptors in inbox.messages():
            number, method, arguments = read_message(body, descriptors)
            try:
                values = [item.load() if isinstance(item, StoredValue) else item for item in arguments]
                if method is None:
                    kind, *values = values
                    made, answer = kind(*values), None
                else:
                    answer = getattr(made, method)(*values)
                    del values, arguments
                Message((number, True, answer)).send(connection)
            except Exception as error:
                _answer_error(connection, number, error)


def _answer_error(connection: socket.socket, number: int, error: Exception) -> None:
    text = "".join(traceback.format_exception(error))
    attempts: tuple[Callable[[], Any], ...] = (lambda: (error, text), lambda: (RuntimeError(str(error)), text))
    for attempt in attempts:
        with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
            content = attempt()
            pickle.loads(pickle.dumps(content))  # some can be written and not read
            Message((number, False, content)).send(connection)
            return
