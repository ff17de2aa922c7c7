"""The commands on a collected run: ``check``, ``run`` and ``report``; and ``demo``, which trains one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..record.option import Option
from ..record.options import OPTIONS, CheckOptions, ReportOptions
from ..record.writer import make_output_folder
from .arguments import as_typed, interruptible, load_function, numbers_of, options_named
from .curvature import recipe_spelling, recipes_of
from .next_steps import has_values
from .options import OUTPUT, RUN_OPTIONS, WORKER_OPTIONS, RunDirectory, with_options
from .page import print_facts, print_result
from .plot import draw_beside

if TYPE_CHECKING:
    from ..report.report import Report


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
    table={
        "size": Option(None, help="Grid points per axis (3 to 256).", typed=int | None, panel="Grid"),
        "train": Option(None, help="Measure the intervals' PCA landscapes.", typed=bool | None, panel="Grid"),
        "result": Option(None, help="Measure the landscape of the result, around the last checkpoint.",
            typed=bool | None, panel="Grid"),
        "interval": Option(None, help="Checkpoints of a PCA landscape: 0,5,10, or 0-10 for all from 0 to 10; repeat it "
            "for more landscapes.", typed=list[str] | None, panel="Grid"),
        "output": replace(OUTPUT, help="Directory of the landscape files."),
        "plot": Option(False, help="Draw each landscape too, into a PNG beside its file (for a URL, here).",
            flags=("--plot/--no-plot",), panel="Output"),
    },
)  # fmt: skip
def run(
    run_directory: RunDirectory,
    *,
    function: str,
    device_ids: Any,
    num_samples: Any,
    size: int | None,
    train: bool | None,
    result: bool | None,
    interval: list[str] | None,
    output: str | None,
    plot: bool,
    **options: Any,
) -> Sequence[Any]:
    """Measures the landscapes of a collected run; after an interruption the same command continues."""
    from ..summary_landscape import SummaryLandscape

    if train is False and result is False:
        raise ValueError("--no-train and --no-result leave no landscape to measure; leave one of them out.")
    wanted = {name: value for name, value in (("train", train), ("result", result)) if value is not None}
    asked = {
        "landscape_size": size,
        "num_samples": num_samples,
        "create_landscape": wanted or None,
        "intervals": [numbers_of("--interval", text, run_directory) for text in interval or ()] or None,
    }
    replaced = {name: value for name, value in asked.items() if value is not None}
    landscapes = SummaryLandscape(run_directory).gen_landscapes_with_multi_process(
        load_function(function), replaced or None, device_ids, output, **options
    )
    for landscape in landscapes:
        typer.echo(f"{landscape.path}\n  {landscape!r}")
    for landscape in landscapes if plot else ():
        if has_values(landscape):
            typer.echo(str(draw_beside(landscape)))
    return landscapes


@with_options(
    "function", "num_samples", "device_ids", "samples", "seed", "buffers", "seed_each_point", "sample_memory",
    "as_json", kind=CheckOptions, called={"summary_dir": "RUN_DIRECTORY"},
    table={
        "device_ids": replace(OPTIONS["device_ids"], help="Device id such as 0; the first of all when absent."),
        "seed": replace(OPTIONS["seed"], help="Seed of a random choice of samples."),
    },
)  # fmt: skip
def check(run_directory: RunDirectory, *, function: str, as_json: bool, **options: Any) -> None:
    """Says in seconds whether a callback_fn measures what a run trained; exit code 1 if something is wrong.

    It measures a few checkpoints and compares them with the losses that training logged. It writes nothing.
    """
    from ..summary_landscape import SummaryLandscape

    found = SummaryLandscape(run_directory).check(load_function(function), **options)
    print_facts(found.to_json, lambda: as_typed(str(found)), as_json=as_json)
    if not found:
        raise typer.Exit(1)


@with_options(
    "function", "recipe", "device_ids", "num_samples", "budget", "output", "name", "as_json", "overwrite",
    *WORKER_OPTIONS, "seed", "samples", "seed_each_point", "progress", "plan", "sample_memory", "dry_run",
    kind=ReportOptions,
    table={
        "name": replace(OPTIONS["name"], help='Beginning of the file names, instead of "report".'),
        "recipe": Option(None, help="Compare recipes too, as landscape compare does; once for each of them.",
            metavar="RECIPE=NETWORK,NETWORK", typed=list[str] | None),
        "output": replace(OUTPUT, help="Directory of the page and its files.", panel=""),
    },
    called={"summary_dir": "RUN_DIRECTORY", "name=": "--name"},
)  # fmt: skip
def report(
    run_directory: RunDirectory, *, function: str, recipe: list[str] | None, as_json: bool, **options: Any
) -> None:
    """Says what a run can tell: measures it, and writes one page with the answers in words.

    landscape report run --function my_training:callback_fn --budget 10min

    Where the training went; whether its end is a minimum, a saddle, or still falling; how flat it is; how far test
    samples are from the training's; what is not known. The same command continues.
    """
    from ..summary_landscape import SummaryLandscape

    recipes = recipes_of(recipe) if recipe else None

    def measure() -> Report | None:
        run = SummaryLandscape(run_directory)
        return run.report(load_function(function), recipes, **options)

    with options_named(recipe_spelling(recipes or {})):
        if as_json:
            print_result(measure, lambda found: None if found is None else found.to_json(), dry_run=options["dry_run"])
        elif (found := measure()) is not None:
            typer.echo(str(found))


@with_options("output", table={"output": replace(OUTPUT, default=Path("demo_output"), typed=Path, panel="",
    help="Where the run and its pictures go.")})  # fmt: skip
def demo(output: Path) -> Sequence[Any]:
    """Trains a small network on handwritten digits, measures its two landscapes, draws them."""
    from ..demo import run_demo

    make_output_folder("--output", output.absolute())
    with interruptible():
        return run_demo(output)
