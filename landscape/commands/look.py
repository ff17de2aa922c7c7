"""The commands that show landscapes: ``info``, ``plot``, ``view`` and ``watch``."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import options_named

if TYPE_CHECKING:
    from ..figures import Look
    from ..landscape import Landscape


_OTHER_KINDS = ("profile", "difference", "multiples", "animation")
_MOVING = (".gif", ".mp4")
_FUNCTIONS = {
    "plot_contour": "contour", "plot_contour_lines": "lines", "plot_heatmap": "heatmap", "plot_surface": "surface",
    "plot_profile": "profile", "plot_difference": "difference", "plot_multiples": "multiples",
    "walk_frames": "animation",
}  # fmt: skip
_OPTIONS = {
    "path": "--output",
    **{name: f"--{name}" for name in ("aspect", "levels", "metric", "scale", "style", "theme")},
    **{function: f"--kind {kind}" for function, kind in _FUNCTIONS.items()},
}


def info(
    file: Annotated[str, typer.Argument(help="A landscape file, or its URL such as s3://bucket/landscape.h5.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Says what a landscape file holds."""
    from ..facts import summary_json, summary_text
    from ..landscape import Landscape

    with options_named({}):
        landscape = Landscape.load(file)
    if as_json:
        typer.echo(json.dumps(summary_json(landscape), indent=2, allow_nan=False))
    else:
        typer.echo(summary_text(landscape))


def plot(
    files: Annotated[list[str], typer.Argument(help="Landscape files, or their URLs.", metavar="FILE...")],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, PDF or SVG; GIF or MP4 for an animation.")],
    kind: Annotated[
        str,
        typer.Option(
            help="contour, lines, heatmap, surface, profile (of a line), difference (of two files), multiples (side by "
            "side on one scale), animation. auto: contour or profile of one file, multiples of several, animation for "
            "a GIF or MP4."
        ),
    ] = "auto",
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Which of the measured values; repeat it to draw more on a profile's right axis."),
    ] = None,
    scale: Annotated[str, typer.Option(help="auto, log, linear or symlog (log on both sides of zero).")] = "auto",
    levels: Annotated[
        str, typer.Option(help="auto, how many, their spacing (linear, log, quantile), or values such as 0.1,0.5,2.")
    ] = "auto",
    style: Annotated[str, typer.Option(help="screen, or paper: as wide as a column, small type, no title.")] = "screen",
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
    aspect: Annotated[
        str,
        typer.Option(help="equal draws a plane to scale, by distances in weight space; fill lets it fill a square."),
    ] = "equal",
    over: Annotated[
        str, typer.Option(help="What an animation walks over, or multiples show: contour, lines, heatmap, surface.")
    ] = "auto",
) -> None:
    """Draws landscape files as a picture, or as an animation of the optimizer's walk."""
    from collectors.validation import check_choice

    from ..figures.multiples import PLANE_KINDS
    from ..landscape import Landscape

    check_choice("--kind", kind, ("auto", *PLANE_KINDS, *_OTHER_KINDS))
    check_choice("--over", over, ("auto", *PLANE_KINDS))
    with options_named({}):
        landscapes = [Landscape.load(file) for file in files]
    metrics = metric or ["loss"]
    for name in metrics:
        for landscape in landscapes:
            check_choice("--metric", name, tuple(landscape.metrics))
    look: Look = {
        "metric": metrics[0], "scale": scale, "levels": _read_levels(levels), "style": style, "theme": theme,
        "aspect": aspect,
    }  # fmt: skip
    chosen = _choose(kind, landscapes, output)
    if over != "auto" and chosen not in ("animation", "multiples"):
        raise ValueError(
            f"--over must be left out for a {chosen}: it says what an animation or multiples show. Use --kind {over}."
        )
    if len(metrics) > 1 and chosen != "profile":
        raise ValueError(f"--metric must be given once for a {chosen}; only a profile has a second axis.")
    with options_named(_OPTIONS):
        _draw(chosen, landscapes, output, over, metrics[1:], look)
    typer.echo(str(output))


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
        str, typer.Option(help="full (one file) or small (the plotly script lies beside the page).")
    ] = "full",
    aspect: Annotated[
        str, typer.Option(help="How planes are drawn at first: equal (to scale) or fill; the page can change it.")
    ] = "equal",
    show: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open the page in the browser.", show_default=False)
    ] = None,
) -> None:
    """Makes an interactive page of landscape files, which needs no network."""
    from collectors.files.places import is_url
    from collectors.validation import check_choice

    from ..interactive import save_page
    from ..interactive.page import SIZES
    from ..landscape import Landscape

    check_choice("--size", size, SIZES)
    target = Path(files[0]).with_suffix(".html") if output is None else output
    if output is None and is_url(files[0]):
        target = Path(target.name)
    with options_named({"path": "--output", "aspect": "--aspect"}):
        page = save_page([Landscape.load(file) for file in files], target, size=size, aspect=aspect)
    typer.echo(str(target))
    if (output is None if show is None else show) and not webbrowser.open(page.resolve().as_uri()):
        typer.echo("No browser could be opened here; open that file in one.", err=True)


def watch(
    file: Annotated[str, typer.Argument(help="A landscape file that a run is writing, or will write.")],
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes a free one.")] = 0,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Shows a landscape in the browser while it is measured; Ctrl-C ends it, and never the run."""
    from collectors.files.places import is_url

    from ..interactive.watch import WatchServer

    if is_url(file):
        raise ValueError(
            f"FILE must be a file of this machine, but got the URL {file!r}. Use `landscape view` for a page of what "
            "is there now, or have the run write to a folder."
        )
    path = Path(file)
    with WatchServer(path, port) as server:
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


def _choose(kind: str, landscapes: list[Landscape], output: Path) -> str:
    """Returns the kind of picture, once it fits the files and the output's name."""
    moving = output.suffix.lower() in _MOVING
    count = len(landscapes)
    if kind == "auto":
        line = landscapes[0].y is None
        kind = "animation" if moving else "multiples" if count > 1 else "profile" if line else "contour"
    needed = {"difference": 2, "multiples": count}.get(kind, 1)
    if count != needed:
        expected = "two files" if needed == 2 else "one file; several make multiples, and two a difference"
        raise ValueError(f"--kind {kind} needs {expected}, but got {count}.")
    if moving != (kind == "animation"):
        raise ValueError(
            f"--output must end in .gif or .mp4 for an animation and in .png, .pdf or .svg for a {kind}, but got "
            f"{str(output)!r}."
            if not moving
            else f"--output {str(output)!r} is an animation, but --kind is {kind}; leave --kind out, or write a .png."
        )
    return kind


def _draw(chosen: str, landscapes: list[Landscape], output: Path, over: str, others: list[str], look: Look) -> None:
    from .. import figures
    from ..figures.multiples import PLANE_KINDS

    if chosen == "animation":
        figures.save_animation(landscapes[0], output, "contour" if over == "auto" else over, **look)
        return
    drawn: Any
    if chosen == "multiples":
        drawn = figures.plot_multiples(landscapes, kind=None if over == "auto" else over, **look)[0]
    elif chosen == "difference":
        drawn = figures.plot_difference(landscapes[0], landscapes[1], **look)
    elif chosen == "profile":
        drawn = figures.plot_profile(landscapes[0], others=others, **look)
    else:
        drawn = getattr(figures, PLANE_KINDS[chosen].function)(landscapes[0], **look)
    # In print 300 dots per inch are asked for; on a screen more than 200 only cost time.
    figures.save_figure(drawn, output, dpi=400 if look["style"] == "paper" else 200)


def _read_levels(text: str) -> int | str | list[float]:
    """Returns --levels as the figures take it."""
    if text.isdigit():
        return int(text)
    if "," not in text and not text.replace(".", "", 1).isdigit():
        return text
    try:
        return [float(value) for value in text.split(",")]
    except ValueError:
        raise ValueError(f"--levels must be numbers with commas between them, but got {text!r}.") from None
