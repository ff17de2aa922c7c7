"""Processes and ports of a test, apart from those of everybody else on the machine."""

import contextlib
import socket

import psutil


def processes_of(home):
    """Returns the processes whose home this is."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def free_ports(count):
    """Returns ports that nobody listens at, outside of the range that Ray takes for its workers."""
    sockets = []
    while len(sockets) < count:
        candidate = socket.socket()
        candidate.bind(("", 0))
        if candidate.getsockname()[1] > 20000:
            sockets.append(candidate)
        else:
            candidate.close()
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports
