"""The commands on files: ``merge``, ``convert`` and ``import-checkpoints``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from collectors.validation import check_choice

from ..record.option import Option
from .arguments import check_left_out, integers, load_function, needed, options_named
from .options import choice, with_options

_TRACKERS = ("tensorboard", "wandb", "mlflow")
_OF_FORMATS: Mapping[str, Option] = {
    "format": Option(None, words=("csv", "glb", "gltf", "landscaper", "li", "mindinsight", "netcdf", "npz", "vtk"),
        help="The other program's format; not needed for .csv, .glb, .gltf, .nc, .npz and .vts.", typed=str | None),
    "metric": Option(None, help="Which measured value, where the format holds one only; by default the loss.",
        typed=str | None),
}  # fmt: skip
_OF_TRACKERS: Mapping[str, Option] = {
    "to": Option(None, words=_TRACKERS, help="Show it in an experiment tracker: its picture and, but for TensorBoard, "
        "page and file as well.", typed=str | None, panel="Tracker"),
    "run": Option(None, help="The id of a run of Weights & Biases or MLflow; by default a new one is made for it.",
        typed=str | None, panel="Tracker"),
    "project": Option(None, help="The run's project (wandb) or experiment (mlflow).", typed=str | None,
        panel="Tracker"),
    "directory": Option(None, help="Of tensorboard: where its event file goes; by default beside the landscape.",
        typed=Path | None, panel="Tracker"),
    "name": Option(None, help="What it is called there; by default as the file.", typed=str | None, panel="Tracker"),
}  # fmt: skip
_OF_IMPORTS: Mapping[str, Option] = {
    "source": Option(None, words=("auto", "li", "landscaper"), help="FILE is another program's: a surface file of Li "
        "et al.'s scripts or an archive of Landscaper; auto finds out which. --output is the landscape file to write.",
        flags=("--from",), typed=str | None, panel="Import"),
    "loss": Option(None, help="Of li: which data set is the loss; by default train_loss.", typed=str | None,
        panel="Import"),
    "axis_order": Option(None, words=("xy", "yx"), help="Of landscaper: xy is as it computes, yx as it draws; by "
        "default xy.", typed=str | None, panel="Import"),
}  # fmt: skip
_CONVERTED = {**_OF_FORMATS, **_OF_IMPORTS, **_OF_TRACKERS}


@with_options(
    "output", "format", "metric", "overwrite", *_OF_IMPORTS, *_OF_TRACKERS, table=_CONVERTED,
    called={"path": "--output", "place": "--directory"},
)  # fmt: skip
def convert(
    file: Annotated[str, typer.Argument(help="A landscape file, or its URL; with --from another program's file.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file to write; for mindinsight the run's summary directory."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    **options: Any,
) -> None:
    """Takes a landscape to another program or an experiment tracker, or from another program into a landscape file.

    landscape convert grid.h5 -o grid.vts
    landscape convert grid.h5 --to wandb
    landscape convert surface.h5 --from li -o grid.h5
    """
    source, tracker = options["source"], options["to"]
    if source is not None and tracker is not None:
        raise ValueError("--from and --to must not be given together: convert the file first, then show the result.")
    used = _OF_IMPORTS if source is not None else _OF_TRACKERS if tracker is not None else _OF_FORMATS
    where = f"with --{'from' if source is not None else 'to'}" if used is not _OF_FORMATS else "without --from or --to"
    unused = {name: options.pop(name) for name in _CONVERTED if name not in used}
    check_left_out(f"{where}, where it means nothing", unused)
    if tracker is not None:
        check_left_out(where, {"output": output, "overwrite": overwrite})
        return _log(file, tracker, options)
    typed = None if output is None else str(output)
    target = Path(needed("--output", typed, "give a file such as -o NAME.csv, or --to a tracker"))
    return _export(file, target, overwrite, options) if source is None else _import(file, target, overwrite, options)


def _export(file: str, output: Path, overwrite: bool, options: Mapping[str, Any]) -> None:
    from ..landscape import Landscape

    for path in Landscape.load(file).export(output, options["format"], metric=options["metric"], overwrite=overwrite):
        typer.echo(str(path))


def _log(file: str, tracker: str, options: Mapping[str, Any]) -> None:
    from .. import trackers
    from ..landscape import Landscape

    check_choice("--to", tracker, _TRACKERS)
    run, project, directory, name = (options[name] for name in ("run", "project", "directory", "name"))
    for option, value, places in (
        ("--run", run, ("wandb", "mlflow")),
        ("--project", project, ("wandb", "mlflow")),
        ("--directory", directory, ("tensorboard",)),
    ):
        if value is not None and tracker not in places:
            raise ValueError(f"{option} is for --to {' and --to '.join(places)}; leave it out.")
    landscape = Landscape.load(file)
    if tracker == "tensorboard":
        trackers.log_to_tensorboard(landscape, directory, name=name)
    elif tracker == "wandb":
        with trackers.wandb_run(run, project) as active:
            trackers.log_to_wandb(landscape, active, name=name)
    else:
        with trackers.mlflow_run(run, project) as run_id:
            trackers.log_to_mlflow(landscape, run_id, name=name)
    typer.echo(f"{file}: logged to {tracker}")


def _import(file: str, output: Path, overwrite: bool, options: Mapping[str, Any]) -> None:
    from ..landscape import Landscape
    from ..replacing import check_no_input

    check_no_input("output", output, [file])
    check_choice("--from", options["source"], _OF_IMPORTS["source"].words)
    form = None if options["source"] == "auto" else options["source"]
    with options_named({"path": "FILE"}):
        landscape = Landscape.import_file(file, form, loss=options["loss"], axis_order=options["axis_order"])
    saved = landscape.save(output, overwrite=overwrite)
    typer.echo(f"{saved}\n  {landscape!r}")


@with_options(called={"path": "--output"})
def merge(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files of one landscape, at least two, or their URLs.")
    ],
    output: Annotated[str, typer.Option("-o", "--output", help="The landscape file to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a landscape file that is there.")] = False,
) -> None:
    """Joins the files of one landscape that several jobs measured with --share.

    landscape merge run/landscape_0-20_pca_?of4.h5 -o run/landscape_0-20_pca.h5
    """
    from ..functions import merge as merge_files

    merged = merge_files(files, output, overwrite=overwrite)
    typer.echo(f"{merged.path}\n  {merged!r}")


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
