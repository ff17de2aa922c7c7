"""The commands for files of other tools: ``export``, ``import-landscape`` and ``import-checkpoints``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import integers, options_named

_CHECKPOINT_OPTIONS = {
    "run_directory": "RUN_DIRECTORY",
    "paths": "CHECKPOINTS",
    "numbers": "--numbers",
    "import_checkpoints['unit']": "--unit",
    "existing": "--overwrite",
}


def export(
    file: Annotated[str, typer.Argument(help="A landscape file, or its URL.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write; for mindinsight the run's summary directory.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            help="csv, landscaper, li, mindinsight, netcdf, npz or vtk; not needed for .csv, .nc, .npz and .vts."
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Which measured value, where the format holds one only; by default the loss.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """Writes a landscape file in another program's format."""
    from ..landscape import Landscape

    with options_named({"path": "--output", "format": "--format", "metric": "--metric"}):
        landscape = Landscape.load(file)
        paths = landscape.export(output, format, metric=metric, overwrite=overwrite)
    for path in paths:
        typer.echo(str(path))


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
    from ..landscape import Landscape

    with options_named({"format": "--format", "loss": "--loss", "axis_order": "--axis-order"}):
        landscape = Landscape.import_file(file, format, loss=loss, axis_order=axis_order)
    with options_named({"path": "--output"}):
        saved = landscape.save(output, overwrite=overwrite)
    typer.echo(f"{saved}\n  {landscape!r}")


def import_checkpoints(
    run_directory: Annotated[str, typer.Argument(help="The run directory to build, or its URL.")],
    checkpoints: Annotated[list[Path], typer.Argument(help="Checkpoints in the order of training.")],
    numbers: Annotated[str | None, typer.Option(help="The step or epoch of each, such as 1,2,3.")] = None,
    unit: Annotated[str, typer.Option(help="What the numbers count: step or epoch.")] = "epoch",
    network_name: Annotated[str, typer.Option(help="What to call the network.")] = "network",
    overwrite: Annotated[bool, typer.Option(help="Replace the run that is already there.")] = False,
) -> None:
    """Builds a run directory from checkpoints, which stay as they are: files, or the folders of FSDP and DeepSpeed."""
    from collectors.run_directory import importing

    with options_named(_CHECKPOINT_OPTIONS):
        run = importing.import_checkpoints(
            run_directory,
            checkpoints,
            numbers=integers("--numbers", numbers),
            unit=unit,
            network_name=network_name,
            existing="overwrite" if overwrite else "error",
        )
    typer.echo(f"{run.path}: {run.settings.unit}s {sorted(run.metadata.files)}")
