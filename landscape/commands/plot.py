"""The command that draws: ``plot``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..drawing.appearance import FONTS, STYLES, THEMES
from ..drawing.camera import MOVES
from ..scales.choosing import SCALES
from ..scales.frame import ASPECTS
from .arguments import CAMERA_HELP, given, options_named, read_levels
from .compare import KIND as COMPARISON_KIND
from .compare import draw_comparison, is_comparison
from .options import choice
from .plot_curvature import KINDS as CURVATURE_KINDS
from .plot_curvature import draw_curvature, is_of_curvature, refuse
from .plot_kinds import (
    HERO,
    OPTIONS,
    OTHER_KINDS,
    PLANE_KINDS,
    TOPOLOGY_KINDS,
    captions_of,
    check_fits,
    choose_kind,
    draw,
    plain_look,
    read_look,
    read_pixels,
    read_topology,
    write_beside,
)

if TYPE_CHECKING:
    from ..figures import Look


def plot(
    files: Annotated[
        list[str],
        typer.Argument(help="Landscape files, or a curvature or comparison file, or their URLs.", metavar="FILE..."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, PDF or SVG; GIF or MP4 for an animation.")],
    kind: Annotated[
        str,
        choice(
            ("auto", *PLANE_KINDS, *OTHER_KINDS, *CURVATURE_KINDS, COMPARISON_KIND),
            help="hero is a surface with light and shadows, for a first page, profile is of a line, barriers of lines "
            "and curves between two networks, difference of two files or metrics, multiples side by side on one scale, "
            "uncertainty maps of the standard error and of the interpolation error, "
            "persistence and merge_tree how deep the grid's minima are and which saddles join them; "
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
        str,
        choice(
            tuple(STYLES),
            help="paper is as wide as a column, with small type and no title; neurips, icml and nature are as wide as "
            "these venues ask, slides has large type.",
        ),
    ] = "screen",
    font: Annotated[str, choice(tuple(FONTS), help="serif looks like Times.")] = "sans",
    theme: Annotated[str, choice(tuple(THEMES), help="Dark on light, or light on dark.")] = "light",
    aspect: Annotated[
        str,
        choice(ASPECTS, help="equal draws a plane to scale, by distances in weight space; fill lets it fill a square."),
    ] = "equal",
    over: Annotated[str, choice(("auto", *PLANE_KINDS), help="What an animation walks over, or multiples show.")] = (
        "auto"
    ),
    title: Annotated[
        list[str] | None,
        typer.Option(help="In place of the landscape's own, '' for none; of multiples, once for each picture."),
    ] = None,
    size: Annotated[str | None, typer.Option(help="Width and height in inches, such as 8x5.")] = None,
    dpi: Annotated[
        int | None,
        typer.Option(help="Dots per inch; 200 by default, 400 for a paper, 300 for a hero, 80 for a GIF."),
    ] = None,
    camera: Annotated[
        str | None, typer.Option(help=f"From where a surface is seen, the same for every file: {CAMERA_HELP}.")
    ] = None,
    pixels: Annotated[
        str | None, typer.Option(help="Of a hero: width and height such as 1920x1080; 3840x2160 by default.")
    ] = None,
    labels: Annotated[
        bool, typer.Option("--labels", help="Of a hero: write a colour bar, a legend and the caption below it.")
    ] = False,
    background: Annotated[
        str | None, typer.Option(help="Of a hero: one of matplotlib's colours, such as white; by default it is clear.")
    ] = None,
    interpolation: Annotated[
        str | None,
        typer.Option(
            help="Of a hero, between the grid's points: smooth (through every point), the default, or linear."
        ),
    ] = None,
    columns: Annotated[int | None, typer.Option(help="Of multiples: how many stand in a row.")] = None,
    move: Annotated[
        str | None,
        choice(
            MOVES,
            help="Of an animation: walk (the default) shows the optimizer on its way beside its loss curve, orbit goes "
            "around the surface.",
        ),
    ] = None,
    turn: Annotated[
        float | None,
        typer.Option(
            help="Of an animation: how far the camera goes around the surface, in degrees; 360 for an orbit, 0 for a "
            "walk by default."
        ),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Of an animation: how long it takes; 6 by default.")] = None,
    rate: Annotated[
        int | None, typer.Option(help="Of an animation: frames per second; 30 by default, 20 for a GIF.")
    ] = None,
    number: Annotated[
        int | None, typer.Option(help="Of a spectrum: which checkpoint; the last measured one by default.")
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(help="Of a spectrum: of the Gaussian that smooths it; a hundredth of its range by default."),
    ] = None,
    significance: Annotated[
        float | None,
        typer.Option(
            help="Of a difference: hatches what lies within so many standard errors; 2 by default, 0 hatches nothing."
        ),
    ] = None,
    caption: Annotated[
        bool,
        typer.Option(
            "--caption",
            help="Also write <output>_caption.txt: a caption with method, seeds and samples, and a text for people who "
            "cannot see the picture, which goes into the picture's file too.",
        ),
    ] = False,
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
    """Draws landscape files as a picture or a moving picture, or a curvature or a comparison file."""
    from collectors.validation import check_choice

    from ..landscape import Landscape
    from ..replacing import check_no_input

    check_choice("--kind", kind, ("auto", *PLANE_KINDS, *OTHER_KINDS, *CURVATURE_KINDS, COMPARISON_KIND))
    check_choice("--over", over, ("auto", *PLANE_KINDS))
    of_curvature = {"--number": number, "--width": width, "--learning-rate": learning_rate}
    compared = is_comparison(kind, files)
    check_no_input("--output", output, files)
    if compared or is_of_curvature(kind, files):
        shared = plain_look(style, font, theme, title, size)
        others = {
            "--metric": bool(metric), "--levels": levels != "auto", "--clip": clip is not None,
            "--colormap": colormap is not None, "--no-trajectory": not trajectory, "--aspect": aspect != "equal",
            "--over": over != "auto", "--camera": camera is not None, "--columns": columns is not None,
            "--move": move is not None, "--turn": turn is not None, "--seconds": seconds is not None,
            "--rate": rate is not None, "--topology": topology,
            "--persistence": persistence is not None, "--significance": significance is not None,
            "--caption": caption,
            "--pixels": pixels is not None, "--labels": labels, "--background": background is not None,
            "--interpolation": interpolation is not None,
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
    chosen = choose_kind(kind, landscapes, output, metrics)
    look: Look = {
        "scale": scale, "levels": read_levels(levels), "style": style, "font": font, "theme": theme,
        "aspect": aspect, "trajectory": trajectory, **read_look(clip, colormap, size, camera),
    }  # fmt: skip
    of_animation = {"move": move, "turn": turn, "seconds": seconds, "rate": rate}
    owned: dict[str, Any] = {
        "--columns": columns, "--significance": significance, "--pixels": pixels, "--labels": labels or None,
        "--background": background, "--interpolation": interpolation,
    }  # fmt: skip
    owned |= {f"--{name}": value for name, value in of_animation.items()}
    check_fits(chosen, over, metrics, owned, trajectory=trajectory or move == "orbit")
    look |= read_topology(chosen, persistence, topology=topology)
    more: dict[str, Any] = given(columns=columns, **of_animation)
    if chosen == "multiples":
        more |= given(titles=title)
    elif chosen == HERO:
        more |= given(background=background, interpolation=interpolation, pixels=read_pixels(pixels), labels=labels)
    elif significance is not None:
        more["significance"] = significance or None
    elif chosen in TOPOLOGY_KINDS:
        more |= given(persistence=persistence)
    if title is not None and chosen != "multiples":
        if len(title) > 1:
            raise ValueError(f"--title must be given once for a {chosen}; only multiples have several.")
        look["title"] = title[0]
    with options_named(OPTIONS):
        captions = captions_of(landscapes, chosen, over, metrics, look, more) if caption else []
        draw(
            chosen, landscapes, output, over, metrics, look, dpi, more, " ".join(item.alt for item in captions) or None
        )
        typer.echo(str(output))
        write_beside(output, captions)
