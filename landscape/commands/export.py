"""``landscape export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import options_named


def export(
    file: Annotated[str, typer.Argument(help="A landscape file, or its URL.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write; for mindinsight the run's summary directory.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            help="csv, landscaper, li, mindinsight, netcdf, npz or vtk; .csv, .nc, .npz and .vts say it themselves."
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Which measured value, where the format holds one only; by default the loss.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """Writes a landscape file in another program's format."""
    from ..surface import Landscape

    landscape = Landscape.load(file)
    with options_named({"path": "--output", "format": "--format", "metric": "--metric"}):
        paths = landscape.export(output, format, metric=metric, overwrite=overwrite)
    for path in paths:
        typer.echo(str(path))
