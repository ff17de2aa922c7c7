"""The commands that draw landscapes: ``plot``, ``view`` and ``watch``."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..figures.appearance import STYLES, THEMES
from ..interactive.page import SIZES
from ..scales.choosing import SCALES
from ..scales.frame import ASPECTS
from .arguments import given, options_named, read_clip, read_levels, read_pair
from .compare import KIND as COMPARISON_KIND
from .compare import draw_comparison, is_comparison
from .plot_curvature import KINDS as CURVATURE_KINDS
from .plot_curvature import draw_curvature, is_of_curvature, refuse
from .survey_options import choice

if TYPE_CHECKING:
    from ..figures import CurvatureLook, Look
    from ..landscape import Landscape


_PLANE_KINDS = {
    "contour": "plot_contour", "lines": "plot_contour_lines", "heatmap": "plot_heatmap", "surface": "plot_surface",
}  # fmt: skip
_TOPOLOGY_KINDS = {"persistence": "plot_persistence", "merge_tree": "plot_merge_tree"}
_OTHER_KINDS = ("profile", "barriers", "difference", "multiples", "animation", *_TOPOLOGY_KINDS)
_MOVING = (".gif", ".mp4")
_FUNCTIONS = {
    **{function: kind for kind, function in (_PLANE_KINDS | _TOPOLOGY_KINDS).items()},
    "plot_profile": "profile", "plot_barriers": "barriers", "plot_difference": "difference",
    "plot_multiples": "multiples", "walk_frames": "animation",
}  # fmt: skip
_NAMED = (
    "aspect", "camera", "clip", "colormap", "columns", "dpi", "levels", "metric", "rate", "scale", "seconds", "size",
    "style", "theme", "title", "topology",
)  # fmt: skip
_OPTIONS = {
    "path": "--output",
    **{name: f"--{name}" for name in _NAMED},
    "titles": "--title",
    **{function: f"--kind {kind}" for function, kind in _FUNCTIONS.items()},
}


def plot(
    files: Annotated[
        list[str],
        typer.Argument(help="Landscape files, or a curvature or comparison file, or their URLs.", metavar="FILE..."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, PDF or SVG; GIF or MP4 for an animation.")],
    kind: Annotated[
        str,
        choice(
            ("auto", *_PLANE_KINDS, *_OTHER_KINDS, *CURVATURE_KINDS, COMPARISON_KIND),
            help="profile is of a line, barriers of lines and curves between two networks, difference of two files or "
            "metrics, multiples side by side on one scale, persistence and merge_tree how deep the grid's minima are "
            "and which saddles join them; "
            "sharpness and spectrum are of a curvature file, comparison of a comparison file. auto: contour, profile, "
            "sharpness or comparison of one file, "
            "multiples of several files or metrics, animation for a GIF or MP4.",
        ),
    ] = "auto",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Which of the measured values, such as loss@test; repeat it to draw more on a profile or as "
            "multiples, or to subtract the second from the first in a difference."
        ),
    ] = None,
    scale: Annotated[str, choice(SCALES, help="symlog is log on both sides of zero.")] = "auto",
    levels: Annotated[
        str, typer.Option(help="auto, how many, their spacing (linear, log, quantile), or values such as 0.1,0.5,2.")
    ] = "auto",
    clip: Annotated[
        str | None,
        typer.Option(help="The largest value with a colour of its own, or smallest,largest such as 0.1,2 or 0.1,"),
    ] = None,
    colormap: Annotated[str | None, typer.Option(help="Matplotlib's name of the colours, such as cividis.")] = None,
    trajectory: Annotated[bool, typer.Option(help="Draw runs' paths, networks and the origin.")] = True,
    style: Annotated[
        str, choice(tuple(STYLES), help="paper is as wide as a column, with small type and no title.")
    ] = "screen",
    theme: Annotated[str, choice(tuple(THEMES), help="Dark on light, or light on dark.")] = "light",
    aspect: Annotated[
        str,
        choice(ASPECTS, help="equal draws a plane to scale, by distances in weight space; fill lets it fill a square."),
    ] = "equal",
    over: Annotated[str, choice(("auto", *_PLANE_KINDS), help="What an animation walks over, or multiples show.")] = (
        "auto"
    ),
    title: Annotated[
        list[str] | None,
        typer.Option(help="In place of the landscape's own, '' for none; of multiples, once for each picture."),
    ] = None,
    size: Annotated[str | None, typer.Option(help="Width and height in inches, such as 8x5.")] = None,
    dpi: Annotated[
        int | None, typer.Option(help="Dots per inch; 200 by default, 400 for a paper, 80 for a GIF, 120 for an MP4.")
    ] = None,
    camera: Annotated[
        str | None, typer.Option(help="Of a surface: azimuth,elevation in degrees such as -60,30.")
    ] = None,
    columns: Annotated[int | None, typer.Option(help="Of multiples: how many stand in a row.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Of an animation: how long the walk takes; 6 by default.")
    ] = None,
    rate: Annotated[int | None, typer.Option(help="Of an animation: frames per second; 20 by default.")] = None,
    number: Annotated[
        int | None, typer.Option(help="Of a spectrum: which checkpoint; the last measured one by default.")
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(help="Of a spectrum: of the Gaussian that smooths it; a hundredth of its range by default."),
    ] = None,
    topology: Annotated[
        bool, typer.Option("--topology", help="Mark minima of the grid and saddles between them.")
    ] = False,
    persistence: Annotated[
        float | None,
        typer.Option(
            help="Of minima: count those with a barrier higher than this; by default higher than twice the error."
        ),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of sharpness: draws 2 / learning rate; by default where it was recorded.")
    ] = None,
) -> None:
    """Draws landscape files as a picture, as an animation of the optimizer's walk, a curvature or a comparison file."""
    from collectors.validation import check_choice

    from ..landscape import Landscape

    check_choice("--kind", kind, ("auto", *_PLANE_KINDS, *_OTHER_KINDS, *CURVATURE_KINDS, COMPARISON_KIND))
    check_choice("--over", over, ("auto", *_PLANE_KINDS))
    of_curvature = {"--number": number, "--width": width, "--learning-rate": learning_rate}
    compared = is_comparison(kind, files)
    if compared or is_of_curvature(kind, files):
        shared = _plain_look(style, theme, title, size)
        others = {
            "--metric": bool(metric), "--levels": levels != "auto", "--clip": clip is not None,
            "--colormap": colormap is not None, "--no-trajectory": not trajectory, "--aspect": aspect != "equal",
            "--over": over != "auto", "--camera": camera is not None, "--columns": columns is not None,
            "--seconds": seconds is not None, "--rate": rate is not None, "--topology": topology,
            "--persistence": persistence is not None,
        }  # fmt: skip
        own = {**of_curvature, "--scale": None if scale == "auto" else scale}
        if compared:
            draw_comparison(files, output, shared, dpi, {**others, **{name: own[name] is not None for name in own}})
        else:
            draw_curvature(kind, files, output, shared, dpi, own, others)
        typer.echo(str(output))
        return
    refuse(of_curvature)
    with options_named({}):
        landscapes = [Landscape.load(file) for file in files]
    metrics = metric or ["loss"]
    for name in metrics:
        for landscape in landscapes:
            check_choice("--metric", name, tuple(landscape.metrics))
    chosen = _choose(kind, landscapes, output, metrics)
    look: Look = {
        "scale": scale, "levels": read_levels(levels), "style": style, "theme": theme,
        "aspect": aspect, "trajectory": trajectory,
    }  # fmt: skip
    if clip is not None:
        look["clip"] = read_clip(clip)
    if colormap is not None:
        look["colormap"] = colormap
    if size is not None:
        look["size"] = read_pair("--size", size, "x", "width and height in inches such as 8x5")
    if camera is not None:
        look["camera"] = read_pair("--camera", camera, ",", "azimuth and elevation in degrees such as -60,30")
    _check_fits(
        chosen, over, metrics, {"--columns": columns, "--seconds": seconds, "--rate": rate}, trajectory=trajectory
    )
    look |= _read_topology(chosen, persistence, topology=topology)
    more: dict[str, Any] = given(columns=columns, seconds=seconds, rate=rate)
    if chosen == "multiples":
        more |= given(titles=title)
    elif chosen in _TOPOLOGY_KINDS:
        more |= given(persistence=persistence)
    if title is not None and chosen != "multiples":
        if len(title) > 1:
            raise ValueError(f"--title must be given once for a {chosen}; only multiples have several.")
        look["title"] = title[0]
    with options_named(_OPTIONS):
        _draw(chosen, landscapes, output, over, metrics, look, dpi, more)
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
        str, choice(SIZES, help="full is one file; small lets the plotly script lie beside the page.")
    ] = "full",
    aspect: Annotated[
        str, choice(ASPECTS, help="How planes are drawn at first: equal is to scale; the page can change it.")
    ] = "equal",
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


def _choose(kind: str, landscapes: list[Landscape], output: Path, metrics: list[str]) -> str:
    """Returns the kind of picture, once it fits the files and the output's name."""
    moving = output.suffix.lower() in _MOVING
    count = len(landscapes)
    if kind == "auto":
        line = landscapes[0].y is None
        several = count > 1 or (len(metrics) > 1 and not line)
        kind = "animation" if moving else "multiples" if several else "profile" if line else "contour"
    if kind == "difference" and (count, len(metrics)) not in ((2, 1), (1, 2)):
        raise ValueError(
            "--kind difference needs two files, or one file and --metric twice (the second is subtracted from the "
            f"first), but got {count} files and {len(metrics)} metrics."
        )
    needed = count if kind in ("barriers", "difference", "multiples") else 1
    if count != needed:
        raise ValueError(
            f"--kind {kind} needs one file; several make multiples, and two a difference, but got {count}."
        )
    if moving != (kind == "animation"):
        raise ValueError(
            f"--output must end in .gif or .mp4 for an animation and in .png, .pdf or .svg for a {kind}, but got "
            f"{str(output)!r}."
            if not moving
            else f"--output {str(output)!r} is an animation, but --kind is {kind}; leave --kind out, or write a .png."
        )
    return kind


def _check_fits(
    chosen: str, over: str, metrics: list[str], owned: dict[str, float | None], *, trajectory: bool
) -> None:
    """Refuses options that do not belong to the kind of picture."""
    if over != "auto" and chosen not in ("animation", "multiples"):
        raise ValueError(
            f"--over must be left out for a {chosen}: it says what an animation or multiples show. Use --kind {over}."
        )
    if len(metrics) > 1 and chosen not in ("profile", "multiples", "difference"):
        raise ValueError(
            f"--metric must be given once for a {chosen}; a profile, multiples and a difference show several."
        )
    if chosen == "animation" and not trajectory:
        raise ValueError("--no-trajectory must be left out for an animation, which shows the walk.")
    for option, value in owned.items():
        owner = "multiples" if option == "--columns" else "animation"
        if value is not None and chosen != owner:
            raise ValueError(f"{option} must be left out for a {chosen}; it belongs to --kind {owner}.")


def _read_topology(chosen: str, persistence: float | None, *, topology: bool) -> Look:
    """Returns --topology with --persistence as the figures take it; nothing where no minima are marked."""
    from collectors.validation import check_float

    if persistence is not None:
        check_float("--persistence", persistence, minimum=0)
        if not topology and chosen not in _TOPOLOGY_KINDS:
            raise ValueError(
                f"--persistence must be left out for a {chosen} without --topology; it says which minima count."
            )
    return {"topology": True if persistence is None else persistence} if topology else {}


def _plain_look(style: str, theme: str, title: list[str] | None, size: str | None) -> CurvatureLook:
    """Returns the options of pictures that show no landscape."""
    if title is not None and len(title) > 1:
        raise ValueError("--title must be given once for this picture; only multiples have several.")
    look: CurvatureLook = {"style": style, "theme": theme, "title": None if title is None else title[0]}
    if size is not None:
        look["size"] = read_pair("--size", size, "x", "width and height in inches such as 8x5")
    return look


def _draw(
    chosen: str,
    landscapes: list[Landscape],
    output: Path,
    over: str,
    metrics: list[str],
    look: Look,
    dpi: int | None,
    more: dict[str, Any],
) -> None:
    from collectors.validation import check_int

    from .. import figures

    first: Look = {**look, "metric": metrics[0]}
    if dpi is not None:
        check_int("dpi", dpi, minimum=20, maximum=2400)
    if chosen == "animation":
        figures.save_animation(landscapes[0], output, "contour" if over == "auto" else over, dpi=dpi, **more, **first)
        return
    drawn: Any
    if chosen == "multiples":
        shown = None if over == "auto" else over
        drawn = figures.plot_multiples(landscapes, kind=shown, metrics=metrics, **more, **look)[0]
    elif chosen == "difference" and len(metrics) > 1:
        drawn = figures.plot_difference(landscapes[0], metrics[0], metrics[1], **look)
    elif chosen == "difference":
        drawn = figures.plot_difference(landscapes[0], landscapes[1], **first)
    elif chosen == "barriers":
        drawn = figures.plot_barriers(_by_stem(landscapes), **_linear(first))
    elif chosen == "profile":
        drawn = figures.plot_profile(landscapes[0], others=metrics[1:], **first)
    elif chosen in _TOPOLOGY_KINDS:
        drawn = getattr(figures, _TOPOLOGY_KINDS[chosen])(landscapes[0], **more, **first)
    else:
        drawn = getattr(figures, _PLANE_KINDS[chosen])(landscapes[0], **first)
    # In print 300 dots per inch are asked for; on a screen more than 200 only cost time.
    figures.save_figure(drawn, output, dpi=dpi or (400 if look["style"] == "paper" else 200))


def _by_stem(landscapes: list[Landscape]) -> dict[str, Landscape]:
    """Returns landscapes by the names of their files, which must differ."""
    found = {str(Path(str(item.path)).stem): item for item in landscapes}
    if len(found) < len(landscapes):
        raise ValueError("--kind barriers calls each way by its file's name, so these must differ.")
    return found


def _linear(look: Look) -> Look:
    return {**look, "scale": "linear"} if look.get("scale") == "auto" else look
