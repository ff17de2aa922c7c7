"""The command that says which recipe is flatter: ``compare``; and the picture of its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..record.options import CompareOptions
from .arguments import load_function, options_named
from .options import WORKER_OPTIONS, with_options


@with_options(
    "function", "output", "directions", "points", "radius", "normalization", "seed", "confidence", "paired", "rise",
    "trace_lines", "buffers", "num_samples", "device_ids", "overwrite", *WORKER_OPTIONS, "samples",
    "recalibration_batch_size", "precision", "seed_each_point", "budget", "progress", "plan", "sample_memory",
    "compile", "dry_run",
    kind=CompareOptions,
    called={"recipes": "RECIPE=NETWORK,NETWORK"},
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
    output: Annotated[str | None, typer.Option("-o", "--output", help="The comparison file, such as compare.h5.")] = (
        None
    ),
    paired: Annotated[
        bool, typer.Option("--paired", help="Compare the first networks of two recipes, the second ones, and so on.")
    ] = False,
    **options: Any,
) -> None:
    """Says which recipe ends in the flatter minimum; after an interruption the same command continues."""
    from ..comparison.measuring import compare as measure

    asked = _recipes(recipes, paired=paired)
    with options_named(_typed(asked)):
        comparison = measure(asked, load_function(function), output=output, **options)
    if comparison is not None:
        typer.echo(comparison.summary())


def _recipes(texts: Sequence[str], *, paired: bool) -> dict[str, Any]:
    """Returns recipes from texts such as ``sgd=run_1,run_2``."""
    from collectors.run_directory.directory import CHECKPOINT_FOLDER

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


def _typed(recipes: Mapping[str, Any]) -> dict[str, str]:
    """Returns how each network was typed, by what errors call it in Python."""
    return {
        f"recipes[{recipe!r}][{key!r}]": repr(f"{recipe}={network}")
        for recipe, networks in recipes.items()
        for key, network in (networks.items() if isinstance(networks, Mapping) else enumerate(networks))
    }
