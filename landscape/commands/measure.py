"""``landscape run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .arguments import integers, interruptible, load_function, options_named

OPTIONS = {
    "summary_dir": "RUN_DIRECTORY",
    "collect_landscape['landscape_size']": "--size",
    "collect_landscape['num_samples']": "--samples",
    "samples": "--sample-choice",
    "device_ids": "--devices",
    "output": "--output",
    "devices_per_worker": "--devices-per-worker",
    "workers_per_device": "--workers-per-device",
    "relative_tolerance": "--relative-tolerance",
    **{
        name: f"--{name}"
        for name in (
            "address", "budget", "buffers", "centering", "compile", "name", "normalization", "sampling", "seed",
            "tolerance",
        )
    },
}  # fmt: skip


def run(
    run_directory: Annotated[
        str, typer.Argument(help="The directory that a SummaryCollector wrote, or its URL such as s3://bucket/run.")
    ],
    function: Annotated[
        str, typer.Option(help="module:function of the callback_fn; the working directory is searched first.")
    ],
    devices: Annotated[str | None, typer.Option(help="Device ids such as 0,1; all when absent.")] = None,
    devices_per_worker: Annotated[int, typer.Option(help="GPUs that each worker sees, or slots that it joins.")] = 1,
    workers_per_device: Annotated[int, typer.Option(help="Workers on each GPU, or on each slot's cores.")] = 1,
    size: Annotated[int | None, typer.Option(help="Grid points per axis (3 to 256).")] = None,
    samples: Annotated[int | None, typer.Option(help="How many samples the loss is averaged over.")] = None,
    sample_choice: Annotated[str, typer.Option(help='Which samples: "first" or "random".')] = "first",
    seed: Annotated[int, typer.Option(help="Of the random directions and samples.")] = 0,
    normalization: Annotated[str, typer.Option(help="Of random directions: filter, layer, weight, none.")] = "filter",
    buffers: Annotated[str, typer.Option(help="fixed or recalibrate.")] = "fixed",
    centering: Annotated[str, typer.Option(help="Of the principal directions: none or mean.")] = "none",
    sampling: Annotated[str, typer.Option(help="full, or adaptive: some points are interpolated.")] = "full",
    tolerance: Annotated[float, typer.Option(help="Of adaptive sampling: largest error, a share of the range.")] = 0.01,
    relative_tolerance: Annotated[
        bool, typer.Option(help="The tolerance is a share of the loss at each point, for logarithmic pictures.")
    ] = False,
    budget: Annotated[str | None, typer.Option(help="How long it may take, such as 30min or 2h.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost, and stop.")] = False,
    train: Annotated[bool | None, typer.Option(help="Measure the intervals' PCA landscapes.")] = None,
    result: Annotated[bool | None, typer.Option(help="Measure the random landscape of the result.")] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="Directory of the landscape files.")] = None,
    name: Annotated[str | None, typer.Option(help="With what file names begin.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files of another experiment.")] = False,
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster.")] = None,
    compile: Annotated[bool | None, typer.Option(help="torch.compile; when absent, where it pays back.")] = None,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Measures the landscapes of a collected run; after an interruption the same command goes on."""
    from ..summary_landscape import SummaryLandscape

    if train is False and result is False:
        raise ValueError("--no-train and --no-result leave no landscape to measure; leave one of them out.")
    settings: dict[str, Any] = {}
    if size is not None:
        settings["landscape_size"] = size
    if samples is not None:
        settings["num_samples"] = samples
    chosen = {key: value for key, value in (("train", train), ("result", result)) if value is not None}
    if chosen:
        settings["create_landscape"] = chosen
    with interruptible(), options_named(OPTIONS):
        landscapes = SummaryLandscape(run_directory).gen_landscapes_with_multi_process(
            load_function(function),
            settings or None,
            _device_ids(devices),
            output,
            devices_per_worker=devices_per_worker,
            workers_per_device=workers_per_device,
            seed=seed,
            samples=sample_choice,
            normalization=normalization,
            buffers=buffers,
            centering=centering,
            sampling=sampling,
            tolerance=tolerance,
            relative_tolerance=relative_tolerance,
            budget=_number_or_text(budget),
            dry_run=dry_run,
            name=name,
            overwrite=overwrite,
            address=address,
            progress=progress,
            compile="auto" if compile is None else compile,
        )
    for landscape in landscapes:
        typer.echo(f"{landscape.path}\n  {landscape!r}")


def _number_or_text(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _device_ids(text: str | None) -> list[int] | None:
    return None if text is None else integers("--devices", text)


def devices(
    devices: Annotated[str | None, typer.Option(help="Device ids such as 0,1; all when absent.")] = None,
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster.")] = None,
    devices_per_worker: Annotated[int, typer.Option(help="GPUs that each worker sees, or slots that it joins.")] = 1,
    workers_per_device: Annotated[int, typer.Option(help="Workers on each GPU, or on each slot's cores.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Says what a run with the same options would compute on; starts nothing."""
    from workers.pools.open_pool import report_devices

    with options_named(OPTIONS):
        report = report_devices(
            None if devices is None else integers("--devices", devices),
            address=address,
            devices_per_worker=devices_per_worker,
            workers_per_device=workers_per_device,
        )
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
