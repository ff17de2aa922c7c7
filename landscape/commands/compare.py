"""The command that says which recipe is flatter: ``compare``; and the picture of its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..comparison.options import COMPARISON_OPTIONS
from ..planes.directions import NORMALIZATIONS
from .arguments import given, load_function, options_named, usual_dpi
from .options import WORKER_OPTIONS, choice, with_options

if TYPE_CHECKING:
    from ..figures import CurvatureLook

KIND = "comparison"


@with_options(
    "function", "output", "directions", "points", "radius", "normalization", "seed", "confidence", "paired", "rise",
    "trace_lines", "buffers", "num_samples", "device_ids", "overwrite", *WORKER_OPTIONS, "samples",
    "recalibration_batch_size", "precision", "seed_each_point", "budget", "progress", "plan", "sample_memory",
    "compile", "dry_run",
    table=COMPARISON_OPTIONS,
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
    directions: Annotated[int, typer.Option(help="Random directions through each network.")] = 12,
    points: Annotated[int, typer.Option(help="Points along each of them, odd.")] = 9,
    radius: Annotated[float, typer.Option(help="How far a line goes each way, in lengths of its direction.")] = 0.5,
    normalization: Annotated[str, choice(NORMALIZATIONS, help="Scale of the directions.")] = "filter",
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    paired: Annotated[
        bool, typer.Option("--paired", help="Compare the first networks of two recipes, the second ones, and so on.")
    ] = False,
    **options: Any,
) -> None:
    """Says which recipe ends in the flatter minimum; after an interruption the same command continues."""
    from ..comparison.measuring import compare as measure

    asked = _recipes(recipes, paired=paired)
    with options_named(_typed(asked)):
        found = measure(
            asked,
            load_function(function),
            directions=directions,
            points=points,
            radius=radius,
            normalization=normalization,
            confidence=confidence,
            output=output,
            **options,
        )
    if found is not None:
        typer.echo(found.summary())


def is_comparison(kind: str, files: Sequence[str]) -> bool:
    """Returns whether the picture is one of a comparison: it was asked for, or the only file holds nothing else.

    Raises:
        LandscapeError: the file cannot be opened; the subclass says why.
    """
    from ..record.kind import COMPARISON
    from ..record.whole_file import kind_of

    return kind == KIND or (kind == "auto" and len(files) == 1 and kind_of(files[0]) is COMPARISON)


def draw_comparison(
    files: Sequence[str], output: Path, look: CurvatureLook, dpi: int | None, others: Mapping[str, bool]
) -> None:
    """Draws a comparison file as a picture.

    Args:
        files: of which there must be one.
        output: the picture's file.
        look: theme, style, title and size.
        dpi: dots per inch; None chooses.
        others: whether options were given that belong to other pictures, by what is typed.

    Raises:
        ValueError: an option does not belong here, or has a wrong value.
        LandscapeError: the file cannot be read; the subclass says why.
    """
    from collectors.validation import check_int

    from .. import figures
    from ..comparison.comparison import Comparison

    if len(files) != 1:
        raise ValueError(f"--kind {KIND} needs one file, but got {len(files)}.")
    if output.suffix.lower() in (".gif", ".mp4"):
        raise ValueError(f"--output must end in .png, .pdf or .svg for a {KIND}, but got {str(output)!r}.")
    for option, is_given in others.items():
        if is_given:
            raise ValueError(f"{option} must be left out for a {KIND}; it belongs to other pictures.")
    with options_named({"path": "--output", **{name: f"--{name}" for name in ("dpi", "size", "style", "theme")}}):
        if dpi is not None:
            check_int("dpi", dpi, minimum=20, maximum=2400)
        fine = dpi or usual_dpi(look)
        figures.save_figure(figures.plot_comparison(Comparison.load(files[0]), **given(**look)), output, dpi=fine)


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
