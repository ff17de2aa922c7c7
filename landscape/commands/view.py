"""The commands that show what files hold: ``info`` in words, ``view`` and ``watch`` in the browser."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..figures.kinds import CAMERA_HELP
from ..interactive.page import SIZES
from ..scales.frame import ASPECTS
from .options import choice, with_options

if TYPE_CHECKING:
    from ..interactive.watch import Chart
    from ..record.hdf5 import FileKind

_ASPECT_HELP = "How planes are drawn at first: equal is to scale; the page can change it."


def charts() -> dict[FileKind, Chart]:
    """Returns how files are shown that are no landscapes."""
    from .. import figures
    from ..comparison.comparison import Comparison
    from ..comparison.facts import comparison_json, comparison_text
    from ..curvature.curvature import Curvature
    from ..curvature.facts import curvature_json, curvature_text
    from ..interactive.watch import Chart
    from ..record.hdf5 import COMPARISON, CURVATURE

    return {
        CURVATURE: Chart(Curvature.load, figures.plot_sharpness, curvature_text, curvature_json),
        COMPARISON: Chart(Comparison.load, figures.plot_comparison, comparison_text, comparison_json),
    }


@with_options(called={"summary_dir": "PATH"})
def info(
    file: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A landscape, curvature or comparison file, a run directory, or the URL of either, such as "
            "s3://bucket/run.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Says what a landscape, curvature or comparison file holds, or a run directory, and what to type next."""
    from ..facts import summary_text
    from ..landscape import Landscape
    from ..record.whole_file import kind_of
    from ..summary_json import summary_json

    if _is_directory(file):
        _show_run(file, as_json=as_json)
        return
    chart = charts().get(kind_of(file))
    load, facts, as_values = (
        (Landscape.load, summary_text, summary_json) if chart is None else (chart.load, chart.facts, chart.json)
    )
    found = load(file)
    typer.echo(json.dumps(as_values(found), indent=2, allow_nan=False) if as_json else facts(found))


def _is_directory(place: str) -> bool:
    from ..record.whole_file import path_of

    try:
        return path_of(place).is_dir()
    except OSError:
        return False  # reading it says what is wrong


def _show_run(directory: str, *, as_json: bool) -> None:
    from .curvature import curvature
    from .next_steps import steps_of, steps_text
    from .run_facts import read_contents, run_json, run_text

    contents = read_contents(directory)
    steps = steps_of(contents, vars(curvature)["spelling"])
    if as_json:
        typer.echo(json.dumps(run_json(contents, steps), indent=2, allow_nan=False))
    else:
        typer.echo("\n\n".join(text for text in (run_text(contents), steps_text(contents, steps)) if text))


@with_options(called={"path": "--output"})
def view(
    files: Annotated[
        list[str], typer.Argument(help="Landscape files, or their URLs; several are compared in one page.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="The page; without it, it is written beside the first file (for a URL, here) and opened.",
        ),
    ] = None,
    size: Annotated[
        str, choice(SIZES, help="full is one file; small lets the plotly script lie beside the page.")
    ] = "full",
    aspect: Annotated[str, choice(ASPECTS, help=_ASPECT_HELP)] = "equal",
    camera: Annotated[str | None, typer.Option(help=f"From where surfaces are seen at first: {CAMERA_HELP}.")] = None,
    show: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the page in the browser.", show_default=False)
    ] = None,
) -> None:
    """Makes an interactive page of landscape files, which needs no network: one file to look at and to share."""
    from collectors.files.places import is_url
    from collectors.validation import check_choice

    from ..interactive import save_page
    from ..landscape import Landscape

    check_choice("--size", size, SIZES)
    target = Path(files[0]).with_suffix(".html") if output is None else output
    if output is None and is_url(files[0]):
        target = Path(target.name)
    page = save_page([Landscape.load(file) for file in files], target, size=size, aspect=aspect, camera=camera)
    typer.echo(str(target))
    if (output is None if show is None else show) and not webbrowser.open(page.resolve().as_uri()):
        typer.echo("No browser could be opened here; open that file in one.", err=True)


@with_options()
def watch(
    file: Annotated[
        str, typer.Argument(help="A landscape, curvature or comparison file that is being written, or will be.")
    ],
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 0,
    aspect: Annotated[str, choice(ASPECTS, help=_ASPECT_HELP)] = "equal",
    camera: Annotated[str | None, typer.Option(help=f"From where the surface is seen at first: {CAMERA_HELP}.")] = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Shows a landscape, a curvature or a comparison while it is measured; Ctrl-C ends it, and never the run."""
    from collectors.files.places import is_url

    from ..interactive.watch import WatchServer

    if is_url(file):
        raise ValueError(
            f"FILE must be a file of this machine, but got the URL {file!r}. Use `landscape view` for a page of what "
            "is there now, or have the run write to a folder."
        )
    path = Path(file)
    server = WatchServer(path, port, aspect=aspect, camera=camera, charts=charts())
    with server:
        try:
            if not path.exists():
                typer.echo(f"There is no file {file} yet; the page fills when a run writes it.", err=True)
            typer.echo(f"Watching {file} at {server.address}")
            typer.echo("Only this machine can open that address. Ctrl-C ends watching; the run goes on.", err=True)
            if show:
                webbrowser.open(server.address)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("\nStopped watching.", err=True)
