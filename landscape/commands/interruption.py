"""Ends a long command on Ctrl-C and SIGTERM with one clear text."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import typer

_CONTINUE = "What was measured is in the landscape file; the same command goes on from there."


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM, on its way through the same exits as Ctrl-C: no point that is being measured takes it for its own."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM end the work with one clear text, after everything was closed."""

    def stop(_number: int, _frame: object) -> None:
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _TerminatedError as error:
        typer.secho(f"\nTerminated. {_CONTINUE}", fg="yellow", err=True)
        raise typer.Exit(128 + signal.SIGTERM) from error
    except KeyboardInterrupt as error:
        typer.secho(f"\nInterrupted. {_CONTINUE}", fg="yellow", err=True)
        raise typer.Exit(128 + signal.SIGINT) from error
    finally:
        signal.signal(signal.SIGTERM, before)
