"""``landscape watch``."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def watch(
    file: Annotated[str, typer.Argument(help="A landscape file that a run is writing, or will write.")],
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 0,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Shows a landscape in the browser while it is measured; Ctrl-C ends it, and never the run."""
    from collectors.run_files import is_url

    from ..interactive.server import WatchServer

    if is_url(file):
        raise ValueError(
            f"FILE must be a file of this machine, but got the URL {file!r}. Use `landscape view` for a page of what "
            "is there now, or have the run write to a folder."
        )
    path = Path(file)
    with WatchServer(path, port) as server:
        try:
            if not path.exists():
                typer.echo(f"There is no file {file} yet; the page fills when a run writes it.", err=True)
            typer.echo(f"Watching {file} at {server.address}")
            typer.echo("Only this machine can open that address. Ctrl-C ends watching; the run goes on.", err=True)
            if show:
                webbrowser.open(server.address)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("\nStopped watching.", err=True)
