"""The commands that answer in words: ``check``, whether callback_fn suits a run, and ``report``, what the run tells."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

import typer

from ..diagnosis.options import CheckOptions
from ..record.options import OPTIONS
from ..report.options import ReportOptions
from .arguments import as_typed, load_function, options_named
from .curvature import recipe_spelling, recipes_of
from .options import WORKER_OPTIONS, RunDirectory, with_options


@with_options(
    "function", "num_samples", "device_ids", "samples", "seed", "buffers", "seed_each_point", "sample_memory",
    "as_json", kind=CheckOptions, called={"summary_dir": "RUN_DIRECTORY"},
    table={
        "device_ids": replace(OPTIONS["device_ids"], help="Device id such as 0; the first of all when absent."),
        "seed": replace(OPTIONS["seed"], help="Seed of a random choice of samples."),
    },
)  # fmt: skip
def check(
    run_directory: RunDirectory,
    *,
    function: str,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    **options: Any,
) -> None:
    """Says in seconds whether a callback_fn measures what a run trained; exit code 1 if something is wrong.

    It measures a few checkpoints and compares them with the losses that training logged. It writes nothing.
    """
    from ..summary_landscape import SummaryLandscape

    found = SummaryLandscape(run_directory).check(load_function(function), **options)
    typer.echo(json.dumps(found.to_json(), indent=2) if as_json else as_typed(str(found)))
    if not found:
        raise typer.Exit(1)


@with_options(
    "function", "recipe", "device_ids", "num_samples", "budget", "output", "name", "as_json", "overwrite",
    *WORKER_OPTIONS, "seed", "samples", "seed_each_point", "progress", "plan", "sample_memory", "dry_run",
    kind=ReportOptions,
    table={"name": replace(OPTIONS["name"], help='Beginning of the file names, instead of "report".')},
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
