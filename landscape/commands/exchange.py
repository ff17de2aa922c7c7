"""``landscape import-checkpoints``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import integers, options_named

_OPTIONS = {
    "run_directory": "RUN_DIRECTORY",
    "paths": "CHECKPOINTS",
    "numbers": "--numbers",
    "import_checkpoints['unit']": "--unit",
}


def import_checkpoints(
    run_directory: Annotated[str, typer.Argument(help="The run directory to build, or its URL.")],
    checkpoints: Annotated[list[Path], typer.Argument(help="Checkpoint files in the order of training.")],
    numbers: Annotated[str | None, typer.Option(help="The step or epoch of each, such as 1,2,3.")] = None,
    unit: Annotated[str, typer.Option(help="What the numbers count: step or epoch.")] = "epoch",
    network_name: Annotated[str, typer.Option(help="What to call the network.")] = "network",
    overwrite: Annotated[bool, typer.Option(help="Replace the run that is already there.")] = False,
) -> None:
    """Builds a run directory from checkpoint files, which stay as they are."""
    from collectors import checkpoint_import

    with options_named(_OPTIONS):
        run = checkpoint_import.import_checkpoints(
            run_directory,
            checkpoints,
            numbers=None if numbers is None else integers("--numbers", numbers),
            unit=unit,
            network_name=network_name,
            existing="overwrite" if overwrite else "error",
        )
    typer.echo(f"{run.path}: {run.settings.unit}s {sorted(run.metadata.files)}")
