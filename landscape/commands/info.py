"""``landscape info``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def info(file: Annotated[Path, typer.Argument(help="A landscape file.")]) -> None:
    """Says what a landscape file holds."""
    from ..summary_text import summary_text
    from ..surface import Landscape

    typer.echo(summary_text(Landscape.load(file)))
