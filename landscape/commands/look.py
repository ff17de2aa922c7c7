"""``landscape plot``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .arguments import options_named

if TYPE_CHECKING:
    from ..figures import Look
    from ..surface import Landscape

_PLANES = {
    "contour": "plot_contour",
    "lines": "plot_contour_lines",
    "heatmap": "plot_heatmap",
    "surface": "plot_surface",
}
_KINDS = ("auto", *_PLANES, "profile", "difference", "multiples", "animation")
_MOVING = (".gif", ".mp4")
_OPTIONS = {"path": "--output", **{name: f"--{name}" for name in ("levels", "metric", "scale", "style", "theme")}}


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
    over: Annotated[
        str, typer.Option(help="What an animation walks over, or multiples show: contour, lines, heatmap, surface.")
    ] = "auto",
) -> None:
    """Draws landscape files as a picture, or as an animation of the optimizer on its way."""
    from collectors.validation import check_choice

    from ..surface import Landscape

    check_choice("--kind", kind, _KINDS)
    check_choice("--over", over, ("auto", *_PLANES))
    landscapes = [Landscape.load(file) for file in files]
    metrics = metric or ["loss"]
    for name in metrics:
        for landscape in landscapes:
            check_choice("--metric", name, tuple(landscape.metrics))
    look: Look = {
        "metric": metrics[0], "scale": scale, "levels": _read_levels(levels), "style": style, "theme": theme,
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
        drawn = getattr(figures, _PLANES[chosen])(landscapes[0], **look)
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
