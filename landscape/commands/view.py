"""``landscape view``."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def view(
    files: Annotated[
        list[str], typer.Argument(help="Landscape files, or their URLs; several are compared in one page.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="The page; without it, it is written beside the first file (for a URL, here) and opened.",
        ),
    ] = None,
    size: Annotated[
        str, typer.Option(help="full (one file) or small (the plotly script lies beside the page).")
    ] = "full",
    show: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the page in the browser.", show_default=False)
    ] = None,
) -> None:
    """Makes an interactive page of landscape files, which needs no network."""
    from collectors.run_files import is_url
    from collectors.validation import check_choice

    from ..interactive import save_page
    from ..interactive.page import SIZES
    from ..surface import Landscape

    check_choice("--size", size, SIZES)
    target = Path(files[0]).with_suffix(".html") if output is None else output
    if output is None and is_url(files[0]):
        target = Path(target.name)
    page = save_page([Landscape.load(file) for file in files], target, size=size)
    typer.echo(str(target))
    if (output is None if show is None else show) and not webbrowser.open(page.resolve().as_uri()):
        typer.echo("No browser could be opened here; open that file in one.", err=True)
