"""The commands for other tools: ``export``, ``log``, ``import-landscape`` and ``import-checkpoints``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collectors.validation import check_choice

from .arguments import integers, load_function, options_named
from .options import choice, with_options


@with_options(called={"path": "--output"})
def export(
    file: Annotated[str, typer.Argument(help="A landscape file, or its URL.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write; for mindinsight the run's summary directory.")
    ],
    format: Annotated[
        str | None,
        choice(
            ("csv", "glb", "gltf", "landscaper", "li", "mindinsight", "netcdf", "npz", "vtk"),
            help="Not needed for .csv, .glb, .gltf, .nc, .npz and .vts.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Which measured value, where the format holds one only; by default the loss.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """Writes a landscape file in another program's format."""
    from ..landscape import Landscape

    landscape = Landscape.load(file)
    paths = landscape.export(output, format, metric=metric, overwrite=overwrite)
    for path in paths:
        typer.echo(str(path))


@with_options(called={"place": "--directory"})
def log(
    file: Annotated[str, typer.Argument(help="A landscape file, or its URL.")],
    to: Annotated[str, choice(("tensorboard", "wandb", "mlflow"), help="The experiment tracker.")],
    run: Annotated[
        str | None,
        typer.Option(help="The id of a run of Weights & Biases or MLflow; by default a new one is made for it."),
    ] = None,
    project: Annotated[str | None, typer.Option(help="The run's project (wandb) or experiment (mlflow).")] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Of tensorboard: where its event file goes; by default beside the landscape.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What it is called there; by default as the file.")] = None,
) -> None:
    """Shows a landscape in an experiment tracker: its picture and, but for TensorBoard, page and file as well."""
    from .. import trackers
    from ..landscape import Landscape

    check_choice("--to", to, ("tensorboard", "wandb", "mlflow"))
    for option, value, places in (
        ("--run", run, ("wandb", "mlflow")),
        ("--project", project, ("wandb", "mlflow")),
        ("--directory", directory, ("tensorboard",)),
    ):
        if value is not None and to not in places:
            raise ValueError(f"{option} is for --to {' and --to '.join(places)}; leave it out.")
    landscape = Landscape.load(file)
    if to == "tensorboard":
        trackers.log_to_tensorboard(landscape, directory, name=name)
    elif to == "wandb":
        with trackers.wandb_run(run, project) as active:
            trackers.log_to_wandb(landscape, active, name=name)
    else:
        with trackers.mlflow_run(run, project) as run_id:
            trackers.log_to_mlflow(landscape, run_id, name=name)
    typer.echo(f"{file}: logged to {to}")


@with_options()
def import_landscape(
    file: Annotated[Path, typer.Argument(help="A surface file of Li et al.'s scripts or an archive of Landscaper.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The landscape file to write.")],
    format: Annotated[str | None, choice(("li", "landscaper"), help="By default what the file is.")] = None,
    loss: Annotated[str | None, typer.Option(help="Of li: which data set is the loss; by default train_loss.")] = None,
    axis_order: Annotated[
        str | None, choice(("xy", "yx"), help="Of landscaper: xy is as it computes, yx as it draws; by default xy.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")] = False,
) -> None:
    """Turns the landscape that another program measured into a landscape file."""
    from ..landscape import Landscape
    from ..replacing import check_no_input

    check_no_input("output", output, [file])
    landscape = Landscape.import_file(file, format, loss=loss, axis_order=axis_order)
    with options_named({"path": "--output"}):
        saved = landscape.save(output, overwrite=overwrite)
    typer.echo(f"{saved}\n  {landscape!r}")


@with_options(
    called={
        "run_directory": "RUN_DIRECTORY",
        "paths": "CHECKPOINTS",
        "import_checkpoints['unit']": "--unit",
        "network": "--function",
        "existing": "--overwrite",
    }
)
def import_checkpoints(
    run_directory: Annotated[str, typer.Argument(help="The run directory to build, or its URL.")],
    checkpoints: Annotated[
        list[str], typer.Argument(help="Checkpoints, a folder of them, a pattern in quotes, or URLs.")
    ],
    numbers: Annotated[
        str | None,
        typer.Option(help="The step or epoch of each, such as 1,2,3; else what their names or the files say."),
    ] = None,
    unit: Annotated[
        str | None,
        choice(("step", "epoch"), help="What the numbers count; else what the names or the files say."),
    ] = None,
    strip_prefix: Annotated[
        str | None,
        typer.Option(help="What the names of the wanted tensors begin with, such as model.; it is removed."),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(help="module:function of the callback_fn, whose network reads Keras' files; others need none."),
    ] = None,
    network_name: Annotated[str, typer.Option(help="What to call the network.")] = "network",
    overwrite: Annotated[bool, typer.Option(help="Replace the run that is already there.")] = False,
) -> None:
    """Builds a run directory from checkpoints, which stay as they are: files, or folders such as checkpoint-500."""
    from collectors.run_directory import importing

    run = importing.import_checkpoints(
        run_directory,
        checkpoints,
        numbers=integers("--numbers", numbers),
        unit=unit,
        strip_prefix=strip_prefix,
        network=None if function is None else _network_of(function),
        network_name=network_name,
        existing="overwrite" if overwrite else "error",
        report=typer.echo,
    )
    typer.echo(f"{run.path}: {run.settings.unit}s {sorted(run.metadata.files)}")


def _network_of(function: str) -> object:
    from workers.pools.first_call import FirstCall

    return FirstCall(load_function(function)).network()
