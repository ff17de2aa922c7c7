"""The console command ``landscape``."""

from __future__ import annotations

import sys
import warnings

import typer

from collectors.errors import LandscapeError

from .commands.demo import demo
from .commands.import_checkpoints import import_checkpoints
from .commands.info import info
from .commands.plot import plot
from .commands.run import run

app = typer.Typer(
    help="Collect checkpoints while training, measure loss landscapes, look at them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

for command in (demo, run, info, plot):
    app.command()(command)
app.command("import-checkpoints")(import_checkpoints)


def main() -> None:
    """Runs the command line; errors end it with one clear text instead of a traceback."""
    warnings.showwarning = _show_warning
    try:
        app()
    except (LandscapeError, TypeError, ValueError, ImportError, OSError) as error:
        for text in (str(error), *getattr(error, "__notes__", ())):
            typer.secho(f"error: {text}", fg="red", err=True)
        sys.exit(1)


def _show_warning(message: Warning | str, *_details: object, **_more: object) -> None:
    typer.secho(f"warning: {message}", fg="yellow", err=True)
