"""The command that says, before hours are spent on measuring, whether a run and its callback_fn belong together."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any

import typer

from ..diagnosis.options import CheckOptions
from ..record.options import OPTIONS
from .arguments import as_typed, load_function
from .options import RunDirectory, with_options


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
