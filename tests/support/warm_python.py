"""Python processes that begin with the libraries loaded: a server loads them once, and each program is a fork of it.

What belongs to the project is loaded by each program anew: the product notes when a process that may have computed is
forked. A program has its arguments, environment, folder and output as any other process, ends as Python ends, and is
killed when who asked for it is gone.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import psutil
from waiting import wait_until

_LIBRARIES = (
    "numpy",
    "h5py",
    "torch",
    "ml_dtypes",
    "sklearn.datasets",
    "matplotlib.pyplot",
    "matplotlib.animation",
    "matplotlib.backends.backend_agg",
    "contourpy",
    "mpl_toolkits.mplot3d",
    "plotly.offline",
    "typer",
    "rich",
    "pydantic.type_adapter",
    "pydantic.json_schema",
    "pyvista",
    "sympy",
    "tensorboard.backend.event_processing.event_file_loader",
    "tensorboard.plugins.hparams.summary_v2",
    "torch._dynamo",
)
# Asks the server, with as little Python as can be; the arguments are the program's.
_CLIENT = """#!{python} -ISE
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
argv = [{program!r}, *sys.argv[1:]]
asked = json.dumps({{"argv": argv, "environment": dict(os.environ), "folder": os.getcwd()}})
socket.send_fds(connection, [len(asked).to_bytes(4, "big")], [0, 1, 2])
connection.sendall(asked.encode())
answer = connection.recv(16).decode()
if not answer:
    sys.exit("the server of warm processes is gone")
status = int(answer)
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@contextmanager
def warm_programs():
    """Starts a server; yields a folder for the front of ``PATH``, with ``python`` and ``landscape`` in it."""
    with tempfile.TemporaryDirectory(prefix="warm-", dir="/tmp") as place:  # sockets have room for a short name only
        folder, address = Path(place), f"{place}/server"
        console = Path(sys.executable).with_name("landscape")
        for program in ("python", str(console)):
            client = folder / Path(program).name
            client.write_text(_CLIENT.format(python=sys.executable, address=address, program=program))
            client.chmod(0o755)
        environment = {**os.environ, "MPLBACKEND": "Agg"}
        server = subprocess.Popen([sys.executable, __file__, address], env=environment)
        try:
            wait_until(
                lambda: Path(address).exists() or server.poll() is not None,
                what="the server of warm processes",
                progress=psutil.Process(server.pid).cpu_times,
            )
            yield folder
        finally:
            server.terminate()
            server.wait()


def _serve(address):
    """Forks for each request; returns in the fork that is to become the program, with what was asked for."""
    for name in _LIBRARIES:
        __import__(name)
    gc.freeze()  # else each program looks through all of it for rings at its end, and copies its pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{address}.new")
    server.listen(64)
    Path(f"{address}.new").rename(address)
    while True:
        connection, _ = server.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        server.close()
        size, streams, _, _ = socket.recv_fds(connection, 4, 3)
        asked = json.loads(_all_of(connection, int.from_bytes(size, "big")))
        process = os.fork()
        if not process:
            connection.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return asked
        for stream in streams:
            os.close(stream)
        os._exit(_watch(connection, process))


def _watch(connection, process):
    """Tells how a program ended; kills it where nobody waits for it."""
    ended = os.pidfd_open(process)
    readable, _, _ = select.select([ended, connection], [], [])
    if ended not in readable:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if ended in readable:
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    return 0


def _all_of(connection, size):
    parts = []
    while size:
        parts.append(connection.recv(size))
        size -= len(parts[-1])
    return b"".join(parts)


def _run(asked):
    """Becomes a program: ``python [-W ACTION]... SCRIPT ...``, or a console script."""
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    script, *arguments = asked["argv"]
    if script == "python":
        while arguments[0] == "-W":
            sys.warnoptions.append(arguments[1])
            arguments = arguments[2:]
        warnings._processoptions(sys.warnoptions)
        script, *arguments = arguments
    path = Path(script).absolute()
    sys.argv = [script, *arguments]
    sys.path[0] = str(path.parent)  # and not the folder of this file
    runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    _run(_serve(sys.argv[1]))
