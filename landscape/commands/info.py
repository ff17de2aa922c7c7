"""The command that says what a file of ours holds: ``info``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .options import with_options


@with_options()
def info(
    file: Annotated[
        str,
        typer.Argument(help="A landscape, curvature or comparison file, or its URL such as s3://bucket/landscape.h5."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Says what a landscape, curvature or comparison file holds."""
    from ..comparison.comparison import Comparison
    from ..comparison.facts import comparison_json, comparison_text
    from ..curvature.curvature import Curvature
    from ..curvature.facts import curvature_json, curvature_text
    from ..facts import summary_text
    from ..landscape import Landscape
    from ..record.kind import COMPARISON, CURVATURE
    from ..record.whole_file import kind_of
    from ..summary_json import summary_json

    kind = kind_of(file)
    if kind == CURVATURE:
        curvature = Curvature.load(file)
        found, text = curvature_json(curvature), curvature_text(curvature)
    elif kind == COMPARISON:
        comparison = Comparison.load(file)
        found, text = comparison_json(comparison), comparison_text(comparison)
    else:
        landscape = Landscape.load(file)
        found, text = summary_json(landscape), summary_text(landscape)
    typer.echo(json.dumps(found, indent=2, allow_nan=False) if as_json else text)
