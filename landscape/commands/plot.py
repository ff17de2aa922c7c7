"""The command that draws: ``plot``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from collectors.validation import check_choice, check_int

from ..drawing.appearance import FONTS, STYLES, THEMES
from ..drawing.camera import MOVES
from ..errors import MEASURE_BARRIER
from ..record.option import Option
from ..scales.choosing import SCALES
from ..scales.frame import ASPECTS
from .arguments import CAMERA_HELP, options_named
from .options import with_options
from .plot_kinds import (
    FUNCTIONS,
    KINDS,
    OWNERS,
    PLANE_KINDS,
    TOPOLOGY_KINDS,
    captions_of,
    chart_of,
    check_fits,
    check_fits_file,
    choose_kind,
    draw,
    draw_chart,
    read_look,
    read_pixels,
    read_topology,
    write_beside,
)


def _check_dpi(name: str, value: Any) -> int | None:
    return None if value is None else check_int(name, value, minimum=20, maximum=2400)


_OPTIONS: Mapping[str, Option] = {
    "kind": Option("auto", ("auto", *KINDS), help="hero is a surface with light and shadows, for a first page, profile "
        "is of a line, barriers of lines and curves between two networks, difference of two files or metrics, "
        "multiples side by side on one scale, uncertainty maps of the standard error and of the interpolation error, "
        "persistence and merge_tree how deep the grid's minima are and which saddles join them; sharpness and spectrum "
        "are of a curvature file, comparison of a comparison file. auto: contour, profile, sharpness or comparison of "
        "one file, multiples of several files or metrics, animation for a GIF or MP4."),
    "metric": Option(None, help="Which of the measured values, such as loss@test; repeat it to draw more on a profile "
        "or as multiples, or to subtract the second from the first in a difference.", typed=list[str] | None),
    "scale": Option("auto", SCALES, help="symlog is log on both sides of zero."),
    "levels": Option("auto", help="auto, how many, their spacing (linear, log, quantile), or values such as "
        "0.1,0.5,2."),
    "clip": Option(None, help="The largest value with a colour of its own, or smallest,largest such as 0.1,2 or 0.1,",
        typed=str | None),
    "colormap": Option(None, help="Matplotlib's name of the colours, such as cividis.", typed=str | None),
    "trajectory": Option(True, help="Draw runs' paths, networks and the origin."),
    "style": Option("screen", tuple(STYLES), help="paper is as wide as a column, with small type and no title; "
        "neurips, icml and nature are as wide as these venues ask, slides has large type."),
    "font": Option("sans", tuple(FONTS), help="serif looks like Times."),
    "theme": Option("light", tuple(THEMES), help="Dark on light, or light on dark."),
    "aspect": Option("equal", ASPECTS, help="equal draws a plane to scale, by distances in weight space; fill lets it "
        "fill a square."),
    "over": Option("auto", ("auto", *PLANE_KINDS), help="What an animation walks over, or multiples show."),
    "title": Option(None, help="In place of the landscape's own, '' for none; of multiples, once for each picture.",
        typed=list[str] | None),
    "size": Option(None, help="Width and height in inches, such as 8x5.", typed=str | None),
    "dpi": Option(None, _check_dpi, help="Dots per inch; 200 by default, 400 for a paper, 300 for a hero, 80 for a "
        "GIF.", typed=int | None),
    "camera": Option(None, help=f"From where a surface is seen, the same for every file: {CAMERA_HELP}.",
        typed=str | None),
    "pixels": Option(None, help="Of a hero: width and height such as 1920x1080; 3840x2160 by default.",
        typed=str | None),
    "labels": Option(False, help="Of a hero: write a colour bar, a legend and the caption below it.",
        flags=("--labels",)),
    "background": Option(None, help="Of a hero: one of matplotlib's colours, such as white; by default it is clear.",
        typed=str | None),
    "interpolation": Option(None, help="Of a hero, between the grid's points: smooth (through every point), the "
        "default, or linear.", typed=str | None),
    "columns": Option(None, help="Of multiples: how many stand in a row.", typed=int | None),
    "move": Option(None, help="Of an animation: walk (the default) shows the optimizer on its way beside its loss "
        "curve, orbit goes around the surface.", typed=str | None, words=MOVES),
    "turn": Option(None, help="Of an animation: how far the camera goes around the surface, in degrees; 360 for an "
        "orbit, 0 for a walk by default.", typed=float | None),
    "seconds": Option(None, help="Of an animation: how long it takes; 6 by default.", typed=float | None),
    "rate": Option(None, help="Of an animation: frames per second; 30 by default, 20 for a GIF.", typed=int | None),
    "number": Option(None, help="Of a spectrum: which checkpoint; the last measured one by default.",
        typed=int | None),
    "width": Option(None, help="Of a spectrum: of the Gaussian that smooths it; a hundredth of its range by default.",
        typed=float | None),
    "significance": Option(None, help="Of a difference: hatches what lies within so many standard errors; 2 by "
        "default, 0 hatches nothing.", typed=float | None),
    "caption": Option(False, help="Also write <output>_caption.txt: a caption with method, seeds and samples, and a "
        "text for people who cannot see the picture, which goes into the picture's file too.", flags=("--caption",)),
    "topology": Option(False, help="Mark minima of the grid and saddles between them.", flags=("--topology",)),
    "persistence": Option(None, help="Of minima: count those with a barrier higher than this; by default higher than "
        "twice the error.", typed=float | None),
    "learning_rate": Option(None, help="Of sharpness: draws 2 / learning rate; by default where it was recorded.",
        typed=float | None),
}  # fmt: skip


@with_options(
    "output",
    *_OPTIONS,
    table=_OPTIONS,
    called={
        MEASURE_BARRIER: "Measure it with `landscape barrier A B`.",
        "titles": "--title",
        **{function: f"--kind {kind}" for function, kind in FUNCTIONS.items()},
    },
)
def plot(
    files: Annotated[
        list[str],
        typer.Argument(help="Landscape files, or a curvature or comparison file, or their URLs.", metavar="FILE..."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, PDF or SVG; GIF or MP4 for an animation.")],
    **options: Any,
) -> None:
    """Draws landscape files as a picture or a moving picture, or a curvature or a comparison file."""
    from ..landscape import Landscape
    from ..replacing import check_no_input

    typed = {name: value for name, value in options.items() if value not in (_OPTIONS[name].default, [], None)}
    titles, over, dpi = options["title"] or [], options["over"], options["dpi"]
    check_no_input("--output", output, files)
    chart = chart_of(options["kind"], files)
    check_fits_file(chart, typed)
    if chart:
        if len(titles) > 1:
            raise ValueError("--title must be given once for this picture; only multiples have several.")
        draw_chart(chart, files, output, {**read_look(options, chart), "title": titles[0] if titles else None}, dpi)
        typer.echo(str(output))
        return
    landscapes = [Landscape.load(file) for file in files]
    metrics = options["metric"] or ["loss"]
    for name in metrics:
        for landscape in landscapes:
            check_choice("--metric", name, tuple(landscape.metrics))
    chosen = choose_kind(options["kind"], landscapes, output, metrics)
    look = read_look(options, chosen)
    check_fits(chosen, metrics, typed)
    look |= read_topology(chosen, options["persistence"], topology=options["topology"])
    more = {name: value for name, value in typed.items() if OWNERS.get(name) == chosen}
    if "significance" in more:
        more["significance"] = more["significance"] or None
    if "pixels" in more:
        more["pixels"] = read_pixels(more["pixels"])
    if chosen in TOPOLOGY_KINDS and "persistence" in typed:
        more["persistence"] = typed["persistence"]
    if titles and chosen == "multiples":
        more["titles"] = titles
    elif len(titles) > 1:
        raise ValueError(f"--title must be given once for a {chosen}; only multiples have several.")
    elif titles:
        look["title"] = titles[0]
    with options_named({"path": "--output"}):
        captions = captions_of(landscapes, chosen, over, metrics, look, more) if options["caption"] else []
        draw(
            chosen, landscapes, output, over, metrics, look, dpi, more, " ".join(item.alt for item in captions) or None
        )
        typer.echo(str(output))
        write_beside(output, captions)
