"""The commands that measure: ``run``, ``devices`` and ``demo``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from .arguments import given, interruptible, load_function, numbers_of
from .next_steps import has_values
from .options import RUN_OPTIONS, WORKER_OPTIONS, RunDirectory, with_options
from .plot import draw_beside


@with_options(
    "function", "device_ids", "size", "num_samples", "train", "result", "interval", "output", "plot", *RUN_OPTIONS,
    called={
        "summary_dir": "RUN_DIRECTORY",
        "collect_landscape['landscape_size']": "--size",
        "collect_landscape['num_samples']": "--samples",
        "collect_landscape['intervals']": "--interval",
        "collect_landscape={'intervals': [[...]]}": "--interval",
        "collect_landscape={'create_landscape': {'train': True}}": "--train",
        "collect_landscape={'create_landscape': {'result': True}}": "--result",
    },
)  # fmt: skip
def run(
    run_directory: RunDirectory,
    *,
    function: str,
    device_ids: Any,
    num_samples: Any,
    size: Annotated[int | None, typer.Option(help="Grid points per axis (3 to 256).", rich_help_panel="Grid")] = None,
    train: Annotated[
        bool | None, typer.Option(help="Measure the intervals' PCA landscapes.", rich_help_panel="Grid")
    ] = None,
    result: Annotated[
        bool | None,
        typer.Option(help="Measure the landscape of the result, around the last checkpoint.", rich_help_panel="Grid"),
    ] = None,
    interval: Annotated[
        list[str] | None,
        typer.Option(
            help="Checkpoints of a PCA landscape: 0,5,10, or 0-10 for all from 0 to 10; repeat it for more landscapes.",
            rich_help_panel="Grid",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="Directory of the landscape files.", rich_help_panel="Output"),
    ] = None,
    plot: Annotated[
        bool,
        typer.Option(
            "--plot/--no-plot",
            help="Draw each landscape too, into a PNG beside its file (for a URL, here).",
            rich_help_panel="Output",
        ),
    ] = False,
    **options: Any,
) -> Sequence[Any]:
    """Measures the landscapes of a collected run; after an interruption the same command continues."""
    from ..summary_landscape import SummaryLandscape

    if train is False and result is False:
        raise ValueError("--no-train and --no-result leave no landscape to measure; leave one of them out.")
    replaced = given(
        landscape_size=size,
        num_samples=num_samples,
        create_landscape=given(train=train, result=result) or None,
        intervals=[numbers_of("--interval", text, run_directory) for text in interval or ()] or None,
    )
    landscapes = SummaryLandscape(run_directory).gen_landscapes_with_multi_process(
        load_function(function), replaced or None, device_ids, output, **options
    )
    for landscape in landscapes:
        typer.echo(f"{landscape.path}\n  {landscape!r}")
    for landscape in landscapes if plot else ():
        if has_values(landscape):
            typer.echo(str(draw_beside(landscape)))
    return landscapes


@with_options("device_ids", "as_json", *WORKER_OPTIONS)
def devices(
    device_ids: Any,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    **options: Any,
) -> None:
    """Says what a run with the same options would compute on; starts nothing."""
    from workers.pools.open_pool import report_devices

    report = report_devices(device_ids, **options)
    typer.echo(json.dumps(report.to_json(), indent=2) if as_json else str(report))


@with_options()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the run and its pictures go.")] = Path(
        "demo_output"
    ),
) -> Sequence[Any]:
    """Trains a small network on handwritten digits, measures its two landscapes, draws them."""
    from ..demo import run_demo
    from ..record.writer import make_output_folder

    make_output_folder("--output", output.absolute())
    with interruptible():
        return run_demo(output)
