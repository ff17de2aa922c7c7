"""The console command ``landscape``."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from collectors.errors import LandscapeError

from .shadowing import check_folder

app = typer.Typer(
    help="Collect checkpoints while training, measure loss landscapes, look at them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

_CONTINUE = "What was measured is in the landscape file; the same command goes on from there."


def main() -> None:
    """Runs the command line; errors end it with one clear text instead of a traceback."""
    warnings.showwarning = _show_warning
    try:
        app()
    except (LandscapeError, TypeError, ValueError, ImportError, OSError) as error:
        for text in (str(error), *getattr(error, "__notes__", ())):
            typer.secho(f"error: {text}", fg="red", err=True)
        sys.exit(1)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the run and its pictures go.")] = Path(
        "demo_output"
    ),
) -> None:
    """Trains a small network on handwritten digits, measures its two landscapes, draws them."""
    from .demo import run_demo

    with _interruptible():
        run_demo(output)


@app.command()
def run(
    run_directory: Annotated[Path, typer.Argument(help="The directory that a SummaryCollector wrote.")],
    function: Annotated[
        str, typer.Option(help="module:function of the callback_fn; the working directory is searched first.")
    ],
    devices: Annotated[str | None, typer.Option(help="Device ids such as 0,1; all when absent.")] = None,
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
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Directory of the landscape files.")] = None,
    name: Annotated[str | None, typer.Option(help="With what file names begin.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files of another experiment.")] = False,
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster.")] = None,
    compile: Annotated[bool | None, typer.Option(help="torch.compile; when absent, where it pays back.")] = None,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Measures the landscapes of a collected run; after an interruption the same command goes on."""
    from .summary_landscape import SummaryLandscape

    settings: dict[str, Any] = {}
    if size is not None:
        settings["landscape_size"] = size
    if samples is not None:
        settings["num_samples"] = samples
    chosen = {key: value for key, value in (("train", train), ("result", result)) if value is not None}
    if chosen:
        settings["create_landscape"] = chosen
    with _interruptible():
        landscapes = SummaryLandscape(run_directory).gen_landscapes_with_multi_process(
            _load_function(function),
            settings or None,
            _device_ids(devices),
            output,
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


@app.command()
def info(file: Annotated[Path, typer.Argument(help="A landscape file.")]) -> None:
    """Says what a landscape file holds."""
    from .summary_text import summary_text
    from .surface import Landscape

    typer.echo(summary_text(Landscape.load(file)))


@app.command()
def plot(
    file: Annotated[Path, typer.Argument(help="A landscape file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, PDF or SVG.")],
    kind: Annotated[str, typer.Option(help="contour or surface; a line is always drawn as a profile.")] = "contour",
    metric: Annotated[str, typer.Option(help="Which of the measured values.")] = "loss",
    scale: Annotated[str, typer.Option(help="auto, log or linear.")] = "auto",
) -> None:
    """Draws a landscape file as a picture."""
    from collectors.validation import check_choice

    from .figures import save_figure
    from .surface import Landscape

    check_choice("--kind", kind, ("contour", "surface"))
    landscape = Landscape.load(file)
    check_choice("--metric", metric, tuple(landscape.metrics))
    if landscape.y is None:
        axes = landscape.plot_profile(metric=metric, scale=scale)
    elif kind == "contour":
        axes = landscape.plot_contour(metric=metric, scale=scale)
    else:
        axes = landscape.plot_surface(metric=metric, scale=scale)
    save_figure(axes, output)
    typer.echo(str(output))


@app.command("import-checkpoints")
def import_checkpoints_command(
    run_directory: Annotated[Path, typer.Argument(help="The run directory to build.")],
    checkpoints: Annotated[list[Path], typer.Argument(help="Checkpoint files in the order of training.")],
    numbers: Annotated[str | None, typer.Option(help="The step or epoch of each, such as 1,2,3.")] = None,
    unit: Annotated[str, typer.Option(help="What the numbers count: step or epoch.")] = "epoch",
    network_name: Annotated[str, typer.Option(help="What to call the network.")] = "network",
    overwrite: Annotated[bool, typer.Option(help="Replace the run that is already there.")] = False,
) -> None:
    """Builds a run directory from checkpoint files, which stay as they are."""
    from collectors.checkpoint_import import import_checkpoints

    run = import_checkpoints(
        run_directory,
        checkpoints,
        numbers=None if numbers is None else _integers("--numbers", numbers),
        unit=unit,
        network_name=network_name,
        existing="overwrite" if overwrite else "error",
    )
    typer.echo(f"{run.path}: {run.settings.unit}s {sorted(run.metadata.files)}")


def _load_function(text: str) -> Callable[[], Any]:
    module_name, separator, function_name = text.partition(":")
    if not (module_name and separator and function_name):
        raise ValueError(f"--function must be module:function, such as my_training:callback_fn, but got {text!r}.")
    folder = Path.cwd()
    check_folder(folder)
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise
        raise ValueError(
            f"--function names the module {module_name!r}, which is neither in {folder} nor installed."
        ) from error
    try:
        function = getattr(module, function_name)
    except AttributeError as error:
        raise ValueError(f"--function names {function_name!r}, which {module.__file__} does not define.") from error
    return function  # type: ignore[no-any-return]


def _number_or_text(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _device_ids(text: str | None) -> list[int] | None:
    return None if text is None else _integers("--devices", text)


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError as error:
        raise ValueError(
            f"{option} must be whole numbers separated by commas, such as 0,1, but got {text!r}."
        ) from error


class _TerminatedError(KeyboardInterrupt):
    """SIGTERM, on its way through the same exits as Ctrl-C: no point that is being measured takes it for its own."""


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM end the work with one clear text, after everything was closed."""

    def stop(_number: int, _frame: object) -> None:
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except _TerminatedError as error:
        typer.secho(f"\nTerminated. {_CONTINUE}", fg="yellow", err=True)
        raise typer.Exit(128 + signal.SIGTERM) from error
    except KeyboardInterrupt as error:
        typer.secho(f"\nInterrupted. {_CONTINUE}", fg="yellow", err=True)
        raise typer.Exit(128 + signal.SIGINT) from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_warning(message: Warning | str, *_details: object, **_more: object) -> None:
    typer.secho(f"warning: {message}", fg="yellow", err=True)
