"""The commands that measure: ``run``, ``devices`` and ``demo``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .arguments import given, integers, interruptible, load_function, options_named, sample_counts
from .survey_options import SURVEY_OPTIONS, WORKER_OPTIONS, option_names, with_options

Devices = Annotated[str | None, typer.Option(help="Device ids such as 0,1; all when absent.")]
Function = Annotated[
    str, typer.Option(help="module:function of the callback_fn; the working directory is searched first.")
]
Samples = Annotated[
    str | None,
    typer.Option(
        "--samples", help="How many samples the loss is averaged over: 1000, or by data set: train=1000,test=500."
    ),
]

_RUN_OPTIONS = (
    *SURVEY_OPTIONS, "also", "plane_of", "normalization", "perturb_one_dimensional", "centering", "directions",
    "which", "rise", "name", "dry_run",
)  # fmt: skip

OPTIONS = {
    "summary_dir": "RUN_DIRECTORY",
    "num_samples": "--samples",
    "collect_landscape['landscape_size']": "--size",
    "collect_landscape['num_samples']": "--samples",
    "collect_landscape['intervals']": "--interval",
    "collect_landscape={'intervals': [[...]]}": "--interval",
    "collect_landscape={'create_landscape': {'train': True}}": "--train",
    "collect_landscape={'create_landscape': {'result': True}}": "--result",
    "device_ids": "--devices",
    "output": "--output",
    **option_names(*_RUN_OPTIONS),
}


@with_options(*_RUN_OPTIONS)
def run(
    run_directory: Annotated[
        str, typer.Argument(help="The directory that a SummaryCollector wrote, or its URL such as s3://bucket/run.")
    ],
    *,
    function: Function,
    devices: Devices = None,
    size: Annotated[int | None, typer.Option(help="Grid points per axis (3 to 256).")] = None,
    num_samples: Samples = None,
    train: Annotated[bool | None, typer.Option(help="Measure the intervals' PCA landscapes.")] = None,
    result: Annotated[
        bool | None, typer.Option(help="Measure the landscape of the result, around the last checkpoint.")
    ] = None,
    interval: Annotated[
        list[str] | None,
        typer.Option(
            help="Checkpoints of a PCA landscape: 0,5,10, or 0-10 for all from 0 to 10; repeat it for more landscapes."
        ),
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Directory of the landscape files.")] = None,
    **options: Any,
) -> None:
    """Measures the landscapes of a collected run; after an interruption the same command continues."""
    from ..summary_landscape import SummaryLandscape

    if train is False and result is False:
        raise ValueError("--no-train and --no-result leave no landscape to measure; leave one of them out.")
    drawn = given(train=train, result=result) or None
    with interruptible(overwrite=options["overwrite"]), options_named(OPTIONS):
        intervals = [numbers_of("--interval", text, run_directory) for text in interval or ()] or None
        replaced = given(
            landscape_size=size,
            num_samples=sample_counts(num_samples),
            create_landscape=drawn,
            intervals=intervals,
        )
        landscapes = SummaryLandscape(run_directory).gen_landscapes_with_multi_process(
            load_function(function), replaced or None, integers("--devices", devices), output, **options
        )
    for landscape in landscapes:
        typer.echo(f"{landscape.path}\n  {landscape!r}")


def numbers_of(option: str, text: str, run_directory: str) -> list[int]:
    """Returns the numbers of checkpoints such as ``0,5,20``; of a range such as ``0-20``, those that the run has."""
    ends = [part.strip() for part in text.split("-")]
    if len(ends) != 2 or not all(end.isdecimal() for end in ends):
        return integers(option, text) or []
    from collectors.run_directory.directory import RunDirectory, find_run

    first, last = map(int, ends)
    there = sorted(RunDirectory(find_run(run_directory)).metadata.files)
    found = [number for number in there if first <= number <= last]
    if not found:
        raise ValueError(f"{option} {text} holds no checkpoint of {run_directory}, which has {there}.")
    return found


@with_options(*WORKER_OPTIONS)
def devices(
    devices: Devices = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    **options: Any,
) -> None:
    """Says what a run with the same options would compute on; starts nothing."""
    from workers.pools.open_pool import report_devices

    with options_named(OPTIONS):
        report = report_devices(integers("--devices", devices), **options)
    typer.echo(json.dumps(report.to_json(), indent=2) if as_json else str(report))


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the run and its pictures go.")] = Path(
        "demo_output"
    ),
) -> None:
    """Trains a small network on handwritten digits, measures its two landscapes, draws them."""
    from ..demo import run_demo
    from ..record.writer import make_output_folder

    make_output_folder("--output", output.absolute())
    with interruptible():
        run_demo(output)
