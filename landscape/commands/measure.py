"""The commands on collected runs: ``check``, ``run``, ``curvature``, ``compare``, ``report``; ``demo`` trains one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collectors.run_directory.directory import CHECKPOINT_FOLDER

from ..record.option import Option
from ..record.option_kinds import CheckOptions, CompareOptions, ReportOptions, RunCurvatureOptions
from ..record.options import OPTIONS, options_of
from ..record.writer import make_output_folder
from .arguments import as_typed, interruptible, load_function, numbers_between, numbers_of, options_named
from .next_steps import has_values
from .options import OUTPUT, RUN_OPTIONS, WORKER_OPTIONS, RunDirectory, with_options
from .plot import draw_beside
from .run_facts import print_result

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
        "size": Option(None, help="Grid points per axis (3 to 256); when absent, as many as the training asked for.",
            typed=int | None, panel="Grid"),
        "num_samples": options_of(ReportOptions)["num_samples"],
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
    table={"seed": replace(OPTIONS["seed"], help="Seed of a random choice of samples.")},
)  # fmt: skip
def check(run_directory: RunDirectory, *, function: str, as_json: bool, **options: Any) -> None:
    """Says in seconds whether a callback_fn measures what a run trained; exit code 1 if something is wrong.

    It measures a few checkpoints and compares them with the losses that training logged. It writes nothing.
    """
    from ..diagnosis.diagnosis import Diagnosis, QuotedFinding
    from ..summary_landscape import SummaryLandscape

    def measure() -> Diagnosis:
        return SummaryLandscape(run_directory).check(load_function(function), **options)

    def typed(item: Any) -> Any:
        quoted = ("seen",) if isinstance(item, QuotedFinding) else ()
        return replace(item, **{name: as_typed(text) for name, text in vars(item).items() if name not in quoted})

    if as_json:
        found = print_result(measure, Diagnosis.to_json, dry_run=False)
    else:
        found = measure()
        findings, facts = (tuple(map(typed, items)) for items in (found.findings, found.facts))
        typer.echo(str(replace(found, findings=findings, facts=facts)))
    if not found:
        raise typer.Exit(1)


@with_options(
    "function", "numbers", "top", "bottom", "matrix", "trace_probes", "density", "tolerance", "max_products",
    "keep_vectors", "seed", "num_samples", "device_ids", "output", "name", "overwrite", *WORKER_OPTIONS, "samples",
    "seed_each_point", "budget", "progress", "plan", "sample_memory", "dry_run",
    kind=RunCurvatureOptions,
    called={
        "summary_dir": "RUN_DIRECTORY",
        "density_probes": "--density (probes)",
        "density_steps": "--density (products of each)",
    },
    table={
        "numbers": Option(None, help="Checkpoints such as 0,5,20, or 0-20 for all from 0 to 20; all when absent."),
        "density": Option(None, help="Measure the density of all eigenvalues: probes x products of each, such "
            "as 4x40."),
        "output": replace(OUTPUT, help="Directory of the curvature file."),
    },
)  # fmt: skip
def curvature(
    run_directory: RunDirectory,
    *,
    function: str,
    numbers: str | None,
    density: str | None,
    **options: Any,
) -> Sequence[Any]:
    """Measures how sharp the loss is at a run's checkpoints; after an interruption the same command continues."""
    from ..curvature.facts import curvature_text
    from ..summary_landscape import SummaryLandscape

    run, called = SummaryLandscape(run_directory), load_function(function)
    chosen = None if numbers is None else numbers_of("--numbers", numbers, run_directory)
    if density is not None:
        expected = "probes x products of each, such as 4x40"
        starts = numbers_between("x", "--density", density, expected, int, (2,))
        options["density_probes"], options["density_steps"] = starts
    found = run.gen_curvature(called, chosen, **options)
    if found is None:
        return []
    typer.echo(curvature_text(found))
    return [found]


@with_options(
    "function", "output", "directions", "points", "radius", "normalization", "seed", "confidence", "paired", "rise",
    "trace_lines", "buffers", "num_samples", "device_ids", "overwrite", *WORKER_OPTIONS, "samples",
    "recalibration_batch_size", "precision", "seed_each_point", "budget", "progress", "plan", "sample_memory",
    "compile", "dry_run",
    kind=CompareOptions,
    called={"recipes": "RECIPE=NETWORK,NETWORK"},
    table={
        "output": replace(OUTPUT, help="The comparison file, such as compare.h5."),
        "paired": Option(False, help="Compare the first networks of two recipes, the second ones, and so on.",
            flags=("--paired",)),
    },
)  # fmt: skip
def compare(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE=NETWORK,NETWORK...",
            help="A recipe's name and its networks, with commas between: run directories (the last checkpoint of each "
            "is taken), or files of weights. Two recipes at least, and three networks of each for an interval.",
        ),
    ],
    *,
    function: str,
    paired: bool,
    **options: Any,
) -> Sequence[Any]:
    """Says which recipe ends in the flatter minimum; after an interruption the same command continues."""
    from ..comparison.comparison import summaries_text
    from ..functions import compare as measure

    asked = recipes_of(recipes, paired=paired)
    with options_named(recipe_spelling(asked)):
        comparison = measure(asked, load_function(function), **options)
    if comparison is None:
        return []
    typer.echo(summaries_text(comparison))
    return [comparison]


def recipes_of(texts: Sequence[str], *, paired: bool = False) -> dict[str, Any]:
    """Returns recipes from texts such as ``sgd=run_1,run_2``."""
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, listed = text.partition("=")
        networks = [item.strip() for item in listed.split(",") if item.strip()]
        if not separator or not name or not networks:
            raise ValueError(
                f"RECIPE=NETWORK,NETWORK must be a name and its networks, such as sgd=run_1,run_2, but got {text!r}."
            )
        for network in networks:
            folder = Path(network.rpartition("@")[0], CHECKPOINT_FOLDER)
            if "@" in network and folder.is_dir() and not Path(network).exists():
                raise ValueError(
                    "RECIPE=NETWORK,NETWORK must have run directories, of which the last checkpoint is compared, or "
                    f"files of weights, but got {network!r}. Give the checkpoint's file, which is in {folder}."
                )
        if name in found:
            raise ValueError(f"RECIPE=NETWORK,NETWORK must have different names, but got {name!r} twice.")
        found[name] = {str(place + 1): item for place, item in enumerate(networks)} if paired else networks
    return found


def recipe_spelling(recipes: Mapping[str, Any]) -> dict[str, str]:
    """Returns how each network was typed, by what errors call it in Python."""
    return {
        f"recipes[{recipe!r}][{key!r}]": repr(f"{recipe}={network}")
        for recipe, networks in recipes.items()
        for key, network in (networks.items() if isinstance(networks, Mapping) else enumerate(networks))
    }


@with_options(
    "function", "recipe", "device_ids", "num_samples", "budget", "output", "name", "as_json", "overwrite",
    *WORKER_OPTIONS, "seed", "samples", "seed_each_point", "progress", "plan", "sample_memory", "dry_run",
    kind=ReportOptions,
    table={
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
