"""The console command ``landscape``."""

from __future__ import annotations

import atexit
import functools
import gc
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Annotated, NoReturn

try:
    import typer

    from collectors.errors import LandscapeError
    from workers.errors import IN_THE_WORKER

    from .commands.arguments import as_typed
    from .commands.evaluate import evaluate
    from .commands.exchange import convert, info, merge
    from .commands.measure import check, compare, curvature, demo, report, run
    from .commands.options import Command
    from .commands.paths import connect
    from .commands.plot import plot
except KeyboardInterrupt:
    # While all this is loaded, nothing else ends the command as Ctrl-C does later: without a traceback.
    raise SystemExit(128 + signal.SIGINT) from None

_EPILOG = (
    "Exit codes: 0 done; 1 an error, explained with its remedy; 2 unknown or missing options; 3 a bug of this program; "
    "130 interrupted by Ctrl-C; 143 terminated. What was measured until then is in the file."
)
_DEBUG_VARIABLE = "LANDSCAPE_DEBUG"

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, epilog=_EPILOG)

for panel, commands in (
    ("Measure", (check, run, report, curvature, compare, evaluate, connect, merge, demo)),
    ("Look", (info, plot)),
    ("Other tools", (convert,)),
):
    for command in commands:
        app.command(command.__name__.replace("_", "-"), cls=Command, rich_help_panel=panel)(command)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"summary-landscape {version('summary-landscape')}")
        raise typer.Exit


@app.callback()
def settings(
    *,
    debug: Annotated[
        bool, typer.Option("--debug", envvar=_DEBUG_VARIABLE, help="Show an error's traceback as well.")
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """See the loss surface your optimizer walked on: measure landscapes of a collected run, look at them.

    landscape run DIRECTORY --function my_training:callback_fn measures them, and continues after an interruption;
    landscape plot FILE shows one in the browser.
    """
    if debug:
        os.environ[_DEBUG_VARIABLE] = "1"


def main() -> None:
    """Runs the command line; errors end it with one clear text instead of a traceback."""
    warnings.showwarning = _warnings_shown_once()
    # What was measured for hours must not end as an error because a console has no λ, or no letter of a path.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    # At its end, Python looks through all objects for rings; with a framework's that takes half a second.
    atexit.register(gc.freeze)
    try:
        app()
    except (LandscapeError, TypeError, ValueError, ImportError, OSError) as error:
        # Tracebacks of workers are like all others: they come with --debug.
        notes = (note for note in getattr(error, "__notes__", ()) if not note.startswith(IN_THE_WORKER))
        _end(error, "\n".join([str(error), *notes]), 1)
    except Exception as error:
        _end(error, f"unexpected {type(error).__name__}: {error}\nThis is a bug; --debug shows where it is.", 3)


def _end(error: Exception, text: str, code: int) -> NoReturn:
    if os.environ.get(_DEBUG_VARIABLE):
        traceback.print_exception(error)
    typer.secho(f"error: {text}", fg="red", err=True)
    sys.exit(code)


def _warnings_shown_once() -> Callable[..., None]:
    """Returns what shows a warning, each text once: a command that finds a plane and measures it opens two pools."""

    @functools.cache
    def show(text: str) -> None:
        typer.secho(f"warning: {as_typed(text)}", fg="yellow", err=True)

    return lambda message, *_details, **_more: show(str(message))
