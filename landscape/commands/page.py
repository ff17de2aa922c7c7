"""What files hold: as text, as JSON, as the pages of ``plot``, of landscapes or of one file while it is measured."""

from __future__ import annotations

import contextlib
import io
import json
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from collectors.files.places import is_url

from .. import figures
from ..facts import summary_text
from ..interactive.page import SIZES, save_page
from ..record.hdf5 import COMPARISON, CURVATURE, FileKind
from ..record.option import Option
from ..record.run import forecast_kept

if TYPE_CHECKING:
    from ..interactive.watch import Chart

T = TypeVar("T")

OF_PAGES: Mapping[str, Option] = {
    "page": Option("full", SIZES, help="full is one file, which needs no network; small lets the plotly script lie "
        "beside the page.", panel="Page"),
    "show": Option(None, help="Open the page in the browser; by default where no --output says where it goes.",
        flags=("--open/--no-open",), typed=bool | None, panel="Page"),
    "watch": Option(False, help="Show one file while it is measured, or before it is there; Ctrl-C ends that, and "
        "never the run.", flags=("--watch",), panel="Page"),
    "port": Option(None, help="Of --watch: port on this machine; by default a free one.", typed=int | None,
        panel="Page"),
}  # fmt: skip
ENDINGS = (".html", ".htm")


def charts() -> dict[FileKind, Chart]:
    from ..comparison.comparison import Comparison, comparison_json, comparison_text
    from ..curvature.curvature import Curvature
    from ..curvature.facts import curvature_json, curvature_text
    from ..interactive.watch import Chart

    return {
        CURVATURE: Chart(Curvature.load, figures.plot_sharpness, curvature_text, curvature_json),
        COMPARISON: Chart(Comparison.load, figures.plot_comparison, comparison_text, comparison_json),
    }


def facts_of(kind: FileKind) -> tuple[Callable[..., Any], Callable[[Any], str], Callable[[Any], dict[str, Any]]]:
    """Returns what reads a kind of file, and what says in words and as JSON values what it holds."""
    from ..landscape import Landscape
    from ..summary_json import summary_json

    chart = charts().get(kind)
    return (Landscape.load, summary_text, summary_json) if chart is None else (chart.load, chart.facts, chart.json)


def print_result(measure: Callable[[], T], values: Callable[[T], Any], *, dry_run: bool) -> T:
    """Prints as JSON what ``measure`` returns, or of a dry run the lines of its forecast, and nothing else."""
    with contextlib.redirect_stdout(io.StringIO()), forecast_kept() as lines:
        found = measure()
    print_facts(lambda: {"forecast": lines} if dry_run else values(found), str, as_json=True)
    return found


def print_facts(values: Callable[[], Any], text: Callable[[], str], *, as_json: bool) -> None:
    typer.echo(json.dumps(values(), indent=2, allow_nan=False) if as_json else text())


def make_page(files: Sequence[str], output: Path | None, size: str, show: bool | None, look: Mapping[str, Any]) -> None:
    """Writes the page of landscape files, beside the first of them where nothing else is said, and opens it then."""
    from ..landscape import Landscape

    target = Path(files[0]).with_suffix(".html") if output is None else output
    if output is None and is_url(files[0]):
        target = Path(target.name)
    page = save_page([Landscape.load(file) for file in files], target, size=size, **look)
    typer.echo(str(target))
    if (output is None if show is None else show) and not webbrowser.open(page.resolve().as_uri()):
        typer.echo("No browser could be opened here; open that file in one.", err=True)


def watch(files: Sequence[str], port: int, show: bool | None, look: Mapping[str, Any]) -> None:
    from ..interactive.watch import WatchServer

    if len(files) != 1:
        raise ValueError(f"--watch shows one file, but got {len(files)}; give one FILE.")
    (file,) = files
    if is_url(file):
        raise ValueError(
            f"FILE must be a file of this machine, but got the URL {file!r}. Leave out --watch for a page of what is "
            "there now, or have the run write to a folder."
        )
    path = Path(file)
    server = WatchServer(path, port, charts=charts(), **look)
    with server:
        try:
            if not path.exists():
                typer.echo(f"There is no file {file} yet; the page fills when a run writes it.", err=True)
            typer.echo(f"Watching {file} at {server.address}")
            typer.echo("Only this machine can open that address. Ctrl-C ends watching; the run goes on.", err=True)
            if show is not False:
                webbrowser.open(server.address)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("\nStopped watching.", err=True)
