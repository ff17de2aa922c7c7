"""Stores that runs lie in: an empty one in memory, and a real S3 server of this machine."""

import contextlib
import functools
import http.server
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from unittest import mock

import fsspec
from waiting import PATIENCE


@contextlib.contextmanager
def empty_memory():
    """An in-memory file system without anything in it, which fsspec finds at ``memory://``."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    # What lies at a URL is locked in the temporary folder, for all processes; but each has a memory of its own.
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(tempfile, "tempdir", folder):
        yield system
    system.store.clear()


@contextlib.contextmanager
def web_server(folder):
    """A web server with a folder's files: gives its address and the names of the files that were fetched."""
    fetched = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            fetched.append(self.path.removeprefix("/"))
            super().do_GET()

        def log_message(self, *_):
            """Nothing is printed."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", fetched
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def s3_server(home):
    """An S3 server without anything in it: gives the environment in which s3fs finds it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # All servers of a process have the same buckets.
    urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", b"").close()
    yield {
        **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "OMP_NUM_THREADS": "1",
        "HOME": str(home),
    }
    server.stop()


def run_script(script, environment, *arguments, warnings=()):
    """Runs a script in a process of its own, because s3fs keeps a thread; returns how that ended and what it said."""
    return subprocess.run(
        python(script, *arguments, warnings=warnings),
        env=environment,
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def python(script, *arguments, warnings=()):
    """Returns the command that runs a script."""
    options = [option for warning in warnings for option in ("-W", warning)]
    return [sys.executable, *options, "-c", script, *arguments]


def temporary(pattern):
    return sorted(Path(tempfile.gettempdir()).glob(pattern))
