"""The command that measures how a loss bends along a run: ``curvature``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..record.options import RunCurvatureOptions
from .arguments import load_function, numbers_of
from .options import WORKER_OPTIONS, RunDirectory, with_options


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
)  # fmt: skip
def curvature(
    run_directory: RunDirectory,
    *,
    function: str,
    numbers: Annotated[
        str | None, typer.Option(help="Checkpoints such as 0,5,20, or 0-20 for all from 0 to 20; all when absent.")
    ] = None,
    density: Annotated[
        str | None,
        typer.Option(help="Measure the density of all eigenvalues: random starts x products of each, such as 4x40."),
    ] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Directory of the curvature file.")] = None,
    **options: Any,
) -> None:
    """Measures how sharp the loss is at a run's checkpoints; after an interruption the same command continues."""
    from ..curvature.facts import curvature_text
    from ..summary_landscape import SummaryLandscape

    found = SummaryLandscape(run_directory).gen_curvature(
        load_function(function),
        None if numbers is None else numbers_of("--numbers", numbers, run_directory),
        output=output,
        **_density(density),
        **options,
    )
    if found is not None:
        typer.echo(curvature_text(found))


def _density(text: str | None) -> dict[str, Any]:
    """Returns random starts and the products of each, where they are given."""
    if text is None:
        return {}
    try:
        probes, steps = map(int, text.lower().split("x"))
    except ValueError:
        raise ValueError(
            f"--density must be random starts x products of each, such as 4x40, but got {text!r}."
        ) from None
    return {"density_probes": probes, "density_steps": steps}
