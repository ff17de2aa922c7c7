"""The commands that measure: ``run``, ``devices`` and ``demo``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .arguments import integers, interruptible, load_function, options_named, shown, with_options

_Devices = Annotated[str | None, typer.Option(help="Device ids such as 0,1; all when absent.")]
_WORKER_OPTIONS = ("devices_per_worker", "workers_per_device", "address")
_RUN_OPTIONS = (
    *_WORKER_OPTIONS, "seed", "buffers", "sampling", "tolerance", "relative_tolerance", "overwrite", "progress",
    "normalization", "perturb_one_dimensional", "centering", "name",
)  # fmt: skip

OPTIONS = {
    "summary_dir": "RUN_DIRECTORY",
    "num_samples": "--samples",
    "collect_landscape['landscape_size']": "--size",
    "collect_landscape['num_samples']": "--samples",
    "samples": "--sample-choice",
    "device_ids": "--devices",
    **{
        name: f"--{name.replace('_', '-')}"
        for name in ("output", "budget", "sample_memory", "compile", "plan", *_RUN_OPTIONS)
    },
}


@with_options(*_RUN_OPTIONS)
def run(
    run_directory: Annotated[
        str, typer.Argument(help="The directory that a SummaryCollector wrote, or its URL such as s3://bucket/run.")
    ],
    function: Annotated[
        str, typer.Option(help="module:function of the callback_fn; the working directory is searched first.")
    ],
    devices: _Devices = None,
    size: Annotated[int | None, typer.Option(help="Grid points per axis (3 to 256).")] = None,
    samples: Annotated[int | None, typer.Option(help="How many samples the loss is averaged over.")] = None,
    sample_choice: Annotated[str, shown("samples")] = "first",
    budget: Annotated[str | None, shown("budget")] = None,
    dry_run: Annotated[bool, shown("dry_run", "--dry-run")] = False,
    train: Annotated[bool | None, typer.Option(help="Measure the intervals' PCA landscapes.")] = None,
    result: Annotated[bool | None, typer.Option(help="Measure the random landscape of the result.")] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Directory of the landscape files.")] = None,
    sample_memory: Annotated[str, shown("sample_memory")] = "auto",
    compile: Annotated[bool | None, typer.Option(help="torch.compile; when absent, where it pays off.")] = None,
    plan: Annotated[str | None, typer.Option(metavar="FILE", help=shown("plan").help)] = None,
    **options: Any,
) -> None:
    """Measures the landscapes of a collected run; after an interruption the same command continues."""
    from ..summary_landscape import SummaryLandscape

    if train is False and result is False:
        raise ValueError("--no-train and --no-result leave no landscape to measure; leave one of them out.")
    drawn = _given(train=train, result=result)
    settings = _given(landscape_size=size, num_samples=samples, create_landscape=drawn)
    with interruptible(), options_named(OPTIONS):
        landscapes = SummaryLandscape(run_directory).gen_landscapes_with_multi_process(
            load_function(function),
            settings,
            integers("--devices", devices),
            output,
            samples=sample_choice,
            budget=_number_or_text(budget),
            dry_run=dry_run,
            sample_memory=sample_memory,
            compile="auto" if compile is None else compile,
            plan=plan,
            **options,
        )
    for landscape in landscapes:
        typer.echo(f"{landscape.path}\n  {landscape!r}")


def _given(**values: Any) -> dict[str, Any] | None:
    """Returns the values that are not None; None where there is none."""
    return {name: value for name, value in values.items() if value is not None} or None


def _number_or_text(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


@with_options(*_WORKER_OPTIONS)
def devices(
    devices: _Devices = None,
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
    from ..file.saving import make_output_folder

    make_output_folder("--output", output.absolute())
    with interruptible():
        run_demo(output)
