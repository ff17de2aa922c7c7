"""The console command in this process: what its user sees, without the seconds in which another Python starts."""

import atexit
import contextlib
import functools
import gc
import importlib
import io
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import typer.main
import typer.testing
from places import ROOT

from landscape.cli import app, main

# Typer reads the annotations of all commands anew for each one that is typed: a 50th of all tests' time.
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)


def command(*arguments, folder, check=True, environment=(), encoding="utf-8"):
    """Runs ``landscape`` with arguments in a folder; returns its status and what it wrote, as ``subprocess.run`` does.

    Afterwards this process is as it was, and the next command imports the modules of the folder anew.
    """
    typed = ["landscape", *map(str, arguments)]
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2))
    status = 0
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", typed),
        _as_it_was(Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    said, told = (stream.buffer.getvalue().decode(encoding) for stream in (out, errors))
    assert not check or status == 0, told
    return subprocess.CompletedProcess(typed, status, said, told)


def invoke(*arguments):
    """Returns what typer's own runner says of a command; what ended it is raised, as ``main`` gets it."""
    result = typer.testing.CliRunner().invoke(app, [*map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result


@contextlib.contextmanager
def _as_it_was(folder):
    """Takes back what a command changes in its process: warnings, what happens at its end, signals, modules."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Another test may have imported modules of the same names from elsewhere.
    others = {name: sys.modules.pop(name) for name in {path.stem for path in folder.glob("*.py")} & set(sys.modules)}
    modules = set(sys.modules)
    importlib.invalidate_caches()
    try:
        with warnings.catch_warnings(), mock.patch.object(sys, "path", list(sys.path)):
            yield
    finally:
        atexit.unregister(gc.freeze)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name in set(sys.modules) - modules:
            above = Path(getattr(sys.modules[name], "__file__", None) or "/").parents
            if folder in above and ROOT not in above:
                del sys.modules[name]
        sys.modules.update(others)
