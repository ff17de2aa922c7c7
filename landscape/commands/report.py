"""The command that answers in words: ``report``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from ..report.options import ReportOptions
from .arguments import load_function, options_named
from .curvature import recipe_spelling, recipes_of
from .options import WORKER_OPTIONS, RunDirectory, with_options


@with_options(
    "function", "recipe", "device_ids", "num_samples", "budget", "output", "name", "as_json", "overwrite",
    *WORKER_OPTIONS, "seed", "samples", "seed_each_point", "progress", "plan", "sample_memory", "dry_run",
    kind=ReportOptions,
    called={"summary_dir": "RUN_DIRECTORY", "name=": "--name"},
)  # fmt: skip
def report(
    run_directory: RunDirectory,
    *,
    function: str,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RECIPE=NETWORK,NETWORK",
            help="Compare recipes too, as landscape compare does; once for each of them.",
        ),
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Directory of the page and its files.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    **options: Any,
) -> None:
    """Says what a run can tell: measures it, and writes one page with the answers in words.

    landscape report run --function my_training:callback_fn --budget 10min

    Where the training went; whether its end is a minimum, a saddle, or still falling; how flat it is; how far test
    samples are from the training's; what is not known. The same command continues.
    """
    from ..summary_landscape import SummaryLandscape

    recipes = recipes_of(recipe) if recipe else None
    with options_named(recipe_spelling(recipes or {})):
        found = SummaryLandscape(run_directory).report(load_function(function), recipes, output=output, **options)
    if found is not None:
        typer.echo(json.dumps(found.to_json(), indent=2, allow_nan=False) if as_json else str(found))
