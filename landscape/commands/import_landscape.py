"""``landscape import-landscape``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_landscape(
    file: Annotated[Path, typer.Argument(help="A surface file of Li et al.'s scripts or an archive of Landscaper.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The landscape file to write.")],
    format: Annotated[str | None, typer.Option(help="li or landscaper; by default what the file is.")] = None,
    loss: Annotated[str | None, typer.Option(help="Of li: which data set is the loss; by default train_loss.")] = None,
    axis_order: Annotated[
        str | None, typer.Option(help="Of landscaper: xy (as it computes) or yx (as it draws); by default xy.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Turns the landscape that another program measured into a landscape file."""
    from ..surface import Landscape

    landscape = Landscape.import_file(file, format, loss=loss, axis_order=axis_order)
    typer.echo(f"{landscape.save(output, overwrite=overwrite)}\n  {landscape!r}")
