"""The commands that measure how losses bend: ``curvature`` along a run, and ``compare``, which recipe is flatter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from collectors.run_directory.directory import CHECKPOINT_FOLDER

from ..record.option import Option
from ..record.options import CompareOptions, RunCurvatureOptions
from .arguments import load_function, numbers_between, numbers_of, options_named
from .options import OUTPUT, WORKER_OPTIONS, RunDirectory, with_options


@with_options(
    "function", "numbers", "top", "bottom", "matrix", "trace_probes", "density", "tolerance", "max_products",
    "keep_vectors", "seed", "num_samples", "device_ids", "output", "name", "overwrite", *WORKER_OPTIONS, "samples",
    "seed_each_point", "budget", "progress", "plan", "sample_memory", "dry_run",
    kind=RunCurvatureOptions,
    called={
        "summary_dir": "RUN_DIRECTORY",
        "density_probes": "--density (random starts)",
        "density_steps": "--density (products of each)",
    },
    table={
        "numbers": Option(None, help="Checkpoints such as 0,5,20, or 0-20 for all from 0 to 20; all when absent."),
        "density": Option(None, help="Measure the density of all eigenvalues: random starts x products of each, such "
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
        expected = "random starts x products of each, such as 4x40"
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
    from ..functions import compare as measure

    asked = recipes_of(recipes, paired=paired)
    with options_named(recipe_spelling(asked)):
        comparison = measure(asked, load_function(function), **options)
    if comparison is None:
        return []
    typer.echo(comparison.summary())
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
