"""``landscape info``."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def info(
    file: Annotated[str, typer.Argument(help="A landscape file, or its URL such as s3://bucket/landscape.h5.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Says what a landscape file holds."""
    from ..summary_json import summary_json
    from ..summary_text import summary_text
    from ..surface import Landscape

    landscape = Landscape.load(file)
    if as_json:
        typer.echo(json.dumps(summary_json(landscape), indent=2, allow_nan=False))
    else:
        typer.echo(summary_text(landscape))
