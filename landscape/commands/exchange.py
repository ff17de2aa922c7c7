"""The commands on files: ``merge``, ``convert`` and ``info``, which also says what this machine would compute on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from collectors.validation import check_choice

from ..record.option import Option
from ..record.options import OPTIONS
from ..record.whole_file import fetched_once, kind_of, path_of
from ..replacing import check_no_input
from .arguments import as_typed, check_left_out, integers, load_function, needed, options_named
from .measure import curvature
from .next_steps import steps_of, steps_text
from .options import OUTPUT, WORKER_OPTIONS, with_options
from .run_facts import facts_of, print_facts, read_contents, run_json, run_text

# The trackers, and which of the options each of them has.
_TRACKERS = {"tensorboard": ("directory",), "wandb": ("run", "project"), "mlflow": ("run", "project")}


def _under(panel: str, **options: Option) -> dict[str, Option]:
    return {name: replace(option, panel=panel) for name, option in options.items()}


_OF_FORMATS = {
    "format": Option(None, words=("csv", "glb", "gltf", "landscaper", "li", "mindinsight", "netcdf", "npz", "vtk"),
        help="The other program's format; not needed for .csv, .glb, .gltf, .nc, .npz and .vts."),
    "metric": Option(None, help="Which measured value, where the format holds one only; by default the loss."),
}  # fmt: skip
_OF_TRACKERS = _under(
    "Tracker",
    to=Option(None, words=tuple(_TRACKERS), help="Show it in an experiment tracker: its picture and, but for "
        "TensorBoard, page and file as well."),
    run=Option(None, help="The id of a run of Weights & Biases or MLflow; by default a new one is made for it."),
    project=Option(None, help="The run's project (wandb) or experiment (mlflow)."),
    directory=Option(None, help="Of tensorboard: where its event file goes; by default beside the landscape.",
        typed=Path | None),
    name=Option(None, help="What it is called there; by default as the file."),
)  # fmt: skip
_OF_IMPORTS = _under(
    "Import",
    source=Option(None, words=("auto", "li", "landscaper", "checkpoints"), help="What FILE is: another program's "
        "(a surface file of Li et al.'s scripts, an archive of Landscaper; auto finds out which), or checkpoints of "
        "one training. --output is the landscape file to write, of checkpoints the run directory.", flags=("--from",)),
    loss=Option(None, help="Of li: which data set is the loss; by default train_loss."),
    axis_order=Option(None, words=("xy", "yx"), help="Of landscaper: xy is as it computes, yx as it draws; by default "
        "xy."),
)  # fmt: skip
_OF_CHECKPOINTS = _under(
    "Checkpoints",
    numbers=Option(None, help="The step or epoch of each, such as 1,2,3; else what their names or the files say."),
    unit=Option(None, words=("step", "epoch"), help="What the numbers count; else what the names or the files say."),
    strip_prefix=Option(None, help="What the names of the wanted tensors begin with, such as model.; it is removed."),
    function=Option(None, help="module:function of the callback_fn, whose network reads Keras' files; others need "
        "none."),
    network_name=Option(None, help="What to call the network; by default network."),
)  # fmt: skip
_CONVERTED = {**_OF_FORMATS, **_OF_IMPORTS, **_OF_CHECKPOINTS, **_OF_TRACKERS}


@with_options(
    "output", "format", "metric", "overwrite", *_OF_IMPORTS, *_OF_CHECKPOINTS, *_OF_TRACKERS,
    table={
        **_CONVERTED,
        "output": replace(OUTPUT, help="The file to write; for mindinsight and checkpoints a directory (or its URL).",
            panel=""),
        "overwrite": Option(False, help="Replace what is there.", flags=("--overwrite",)),
    },
    called={"path": "--output", "place": "--directory"},
)  # fmt: skip
def convert(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="A landscape file, or its URL; with --from what is named there: one file of another program, or "
            "checkpoints, a folder of them, a pattern in quotes.",
        ),
    ],
    *,
    output: str | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Takes a landscape to another program or an experiment tracker, or what others wrote into a file or run of ours.

    landscape convert grid.h5 -o grid.vts
    landscape convert grid.h5 --to wandb
    landscape convert surface.h5 --from li -o grid.h5
    landscape convert checkpoints/ --from checkpoints -o run
    """
    source, tracker = options["source"], options["to"]
    if source is not None and tracker is not None:
        raise ValueError("--from and --to must not be given together: convert the file first, then show the result.")
    used, where = _OF_FORMATS, "without --from or --to"
    if tracker is not None:
        used, where = _OF_TRACKERS, "with --to"
    elif source == "checkpoints":
        used, where = {"source": _OF_IMPORTS["source"], **_OF_CHECKPOINTS}, "with --from checkpoints"
    elif source is not None:
        used, where = _OF_IMPORTS, "with --from"
    unused = {name: options.pop(name) for name in _CONVERTED if name not in used}
    check_left_out(f"{where}, where it means nothing", unused, _CONVERTED)
    if source != "checkpoints" and len(files) > 1:
        raise ValueError(
            f"{where}, FILE must be one file, but got {len(files)}. Only --from checkpoints takes several."
        )
    if tracker is not None:
        check_left_out(where, {"output": output, "overwrite": overwrite}, {})
        _log(files[0], tracker, options)
    elif source == "checkpoints":
        _import_checkpoints(files, needed("--output", output, "give the run directory"), overwrite, options)
    else:
        target = Path(needed("--output", output, "give a file such as -o NAME.csv, or --to a tracker"))
        if source is None:
            from ..landscape import Landscape

            for path in Landscape.load(files[0]).export(target, overwrite=overwrite, **options):
                typer.echo(str(path))
        else:
            _import(files[0], target, overwrite, options)


def _log(file: str, tracker: str, options: Mapping[str, Any]) -> None:
    from .. import trackers
    from ..landscape import Landscape

    check_choice("--to", tracker, tuple(_TRACKERS))
    run, project, directory, name = (options[name] for name in ("run", "project", "directory", "name"))
    for option in ("run", "project", "directory"):
        if options[option] is not None and option not in _TRACKERS[tracker]:
            places = [place for place, known in _TRACKERS.items() if option in known]
            raise ValueError(f"--{option} is for --to {' and --to '.join(places)}; leave it out.")
    landscape = Landscape.load(file)
    if tracker == "tensorboard":
        trackers.log_to_tensorboard(landscape, directory, name=name)
    elif tracker == "wandb":
        with trackers.wandb_run(run, project) as active:
            trackers.log_to_wandb(landscape, active, name=name)
    else:
        if run is not None and project is not None:
            raise ValueError("--project must be left out with --run, whose experiment is known.")
        with trackers.mlflow_run(run, project) as run_id:
            trackers.log_to_mlflow(landscape, run_id, name=name)
    typer.echo(f"{file}: logged to {tracker}")


def _import(file: str, output: Path, overwrite: bool, options: Mapping[str, Any]) -> None:
    from ..landscape import Landscape

    check_no_input("output", output, [file])
    check_choice("--from", options["source"], _OF_IMPORTS["source"].words)
    form = None if options["source"] == "auto" else options["source"]
    with options_named({"path": "FILE"}):
        landscape = Landscape.import_file(file, form, loss=options["loss"], axis_order=options["axis_order"])
    saved = landscape.save(output, overwrite=overwrite)
    typer.echo(f"{saved}\n  {landscape!r}")


def _import_checkpoints(files: Sequence[str], output: str, overwrite: bool, options: Mapping[str, Any]) -> None:
    from collectors.run_directory.importing import import_checkpoints
    from workers.pools.first_call import FirstCall

    function, numbers, name = options["function"], options["numbers"], options["network_name"]
    arguments = {
        "run_directory": "--output",
        "paths": "FILE",
        "import_checkpoints['unit']": "--unit",
        "network": "--function",
        "existing": "--overwrite",
    }
    with options_named(arguments):
        run = import_checkpoints(
            output,
            files,
            numbers=None if numbers is None else integers("--numbers", numbers),
            unit=options["unit"],
            strip_prefix=options["strip_prefix"],
            network=None if function is None else FirstCall(load_function(function)).network(),
            network_name="network" if name is None else name,
            existing="overwrite" if overwrite else "error",
            report=lambda text: typer.echo(as_typed(text)),
        )
    typer.echo(f"{run.path}: {run.settings.unit}s {sorted(run.metadata.files)}")


@with_options("output", "overwrite", called={"path": "--output"}, table={
    "output": replace(OUTPUT, default=..., help="The landscape file to write.", typed=str, panel=""),
    "overwrite": Option(False, help="Replace a landscape file that is there.", flags=("--overwrite",)),
})  # fmt: skip
def merge(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files of one landscape, at least two, or their URLs.")
    ],
    *,
    output: str,
    overwrite: bool,
) -> None:
    """Joins the files of one landscape that several jobs measured with --share.

    landscape merge run/landscape_0-20_pca_?of4.h5 -o run/landscape_0-20_pca.h5
    """
    from ..functions import merge as merge_files

    merged = merge_files(files, output, overwrite=overwrite)
    typer.echo(f"{merged.path}\n  {merged!r}")


@with_options("device_ids", *WORKER_OPTIONS, "as_json", called={"summary_dir": "PATH"})
def info(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            help="A landscape, curvature or comparison file, a run directory, or the URL of either, such as "
            "s3://bucket/run. Without it: what a run with these options would compute on; nothing is started.",
        ),
    ] = None,
    *,
    as_json: bool,
    **options: Any,
) -> None:
    """Says what a file or a run directory holds and what to type next; without a PATH, what this machine has.

    landscape info run
    landscape info run/landscape_0-20_pca.h5 --json
    landscape info --devices 0,1
    """
    if file is None:
        from workers.pools.open_pool import report_devices

        report = report_devices(options.pop("device_ids"), **options)
        print_facts(report.to_json, lambda: str(report), as_json=as_json)
        return
    check_left_out("with PATH; it belongs to `landscape info` without one", options, OPTIONS)
    is_directory = False
    with contextlib.suppress(OSError):  # reading it says what is wrong
        is_directory = path_of(file).is_dir()
    if not is_directory:
        with fetched_once():
            load, text_of, values_of = facts_of(kind_of(file))
            found = load(file)
        print_facts(lambda: values_of(found), lambda: text_of(found), as_json=as_json)
        return
    contents = read_contents(file)
    steps = steps_of(contents, vars(curvature)["spelling"])
    print_facts(
        lambda: run_json(contents, steps),
        lambda: "\n\n".join(text for text in (run_text(contents), steps_text(contents, steps)) if text),
        as_json=as_json,
    )
