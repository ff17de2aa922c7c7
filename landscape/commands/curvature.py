"""The command that measures how a loss bends along a run: ``curvature``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from workers.curvature.products import MATRICES

from ..curvature.options import DEFAULTS, EXPLANATIONS
from .arguments import integers, interruptible, load_function, options_named, sample_counts
from .measure import Devices, Function, Samples
from .survey_options import WORKER_OPTIONS, choice, explained, option_names, with_options

_SHARED = (*WORKER_OPTIONS, "samples", "seed_each_point", "budget", "progress", "plan", "sample_memory", "dry_run")
OPTIONS = {
    "summary_dir": "RUN_DIRECTORY",
    "num_samples": "--samples",
    "numbers": "--numbers",
    "top": "--top",
    "bottom": "--bottom",
    "matrix": "--matrix",
    "trace_probes": "--trace",
    "density_probes": "--density (random starts)",
    "density_steps": "--density (products of each)",
    "tolerance": "--tolerance",
    "max_products": "--max-products",
    "keep_vectors": "--keep-vectors",
    "seed": "--seed",
    "device_ids": "--devices",
    "name": "--name",
    **option_names(*_SHARED),
}


@with_options(*_SHARED)
def curvature(
    run_directory: Annotated[
        str, typer.Argument(help="The directory that a SummaryCollector wrote, or its URL such as s3://bucket/run.")
    ],
    *,
    function: Function,
    numbers: Annotated[
        str | None, typer.Option(help="Checkpoints such as 0,5,20, or 0-20 for all from 0 to 20; all when absent.")
    ] = None,
    top: Annotated[int, typer.Option(help=explained("top", EXPLANATIONS))] = DEFAULTS["top"],
    bottom: Annotated[int, typer.Option(help=explained("bottom", EXPLANATIONS))] = DEFAULTS["bottom"],
    matrix: Annotated[str, choice(MATRICES, help=explained("matrix", EXPLANATIONS))] = DEFAULTS["matrix"],
    trace: Annotated[int, typer.Option(help=explained("trace_probes", EXPLANATIONS))] = DEFAULTS["trace_probes"],
    density: Annotated[
        str | None,
        typer.Option(help="Measure the density of all eigenvalues: random starts x products of each, such as 4x40."),
    ] = None,
    tolerance: Annotated[float, typer.Option(help=explained("tolerance", EXPLANATIONS))] = DEFAULTS["tolerance"],
    max_products: Annotated[int, typer.Option(help=explained("max_products", EXPLANATIONS))] = DEFAULTS["max_products"],
    keep_vectors: Annotated[
        bool, typer.Option("--keep-vectors", help=explained("keep_vectors", EXPLANATIONS))
    ] = DEFAULTS["keep_vectors"],
    seed: Annotated[int, typer.Option(help=explained("seed", EXPLANATIONS))] = DEFAULTS["seed"],
    num_samples: Samples = None,
    devices: Devices = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Directory of the curvature file.")] = None,
    name: Annotated[str | None, typer.Option(help=explained("name", EXPLANATIONS))] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=explained("overwrite", EXPLANATIONS))] = DEFAULTS[
        "overwrite"
    ],
    **options: Any,
) -> None:
    """Measures how sharp the loss is at a run's checkpoints; after an interruption the same command continues."""
    from ..curvature.facts import curvature_text
    from ..summary_landscape import SummaryLandscape
    from .measure import numbers_of

    probes, steps = _density(density)
    with interruptible(overwrite=overwrite), options_named(OPTIONS):
        found = SummaryLandscape(run_directory).gen_curvature(
            load_function(function),
            None if numbers is None else numbers_of("--numbers", numbers, run_directory),
            device_ids=integers("--devices", devices),
            output=output,
            num_samples=sample_counts(num_samples),
            top=top,
            bottom=bottom,
            matrix=matrix,
            trace_probes=trace,
            density_probes=probes,
            density_steps=steps,
            tolerance=tolerance,
            max_products=max_products,
            keep_vectors=keep_vectors,
            seed=seed,
            overwrite=overwrite,
            name=name,
            **options,
        )
    if found is not None:
        typer.echo(curvature_text(found))


def _density(text: str | None) -> tuple[int, int]:
    """Returns random starts and the products of each."""
    if text is None:
        return DEFAULTS["density_probes"], DEFAULTS["density_steps"]
    try:
        probes, steps = map(int, text.lower().split("x"))
    except ValueError:
        raise ValueError(
            f"--density must be random starts x products of each, such as 4x40, but got {text!r}."
        ) from None
    return probes, steps
