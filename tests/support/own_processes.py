"""Processes and ports of a test, apart from those of everybody else on the machine."""

import contextlib
import random
import socket
import subprocess

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
    """Returns ports that nobody listens at.

    They lie above those that Ray takes for its workers and servers of clients, and below those that the system gives
    to connections, so that nobody gets one of them by chance before it is used.
    """
    found = set()
    while len(found) < count:
        port = random.SystemRandom().randrange(24000, 32768)
        with socket.socket() as candidate, contextlib.suppress(OSError):
            candidate.bind(("", port))
            found.add(port)
    return found


def ended_process():
    """Returns the number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid
