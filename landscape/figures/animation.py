"""Moving pictures of a landscape: the walk of each run over it, or an orbit around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.files.local_files import check_replaceable
from collectors.files.places import check_can_be_file
from collectors.validation import check_choice, check_float, check_int, check_path, wrong_value

from ..drawing.appearance import appearance_of
from ..drawing.camera import MOVES, best_camera
from ..drawing.canvas import check_size
from ..drawing.look import Look, check_dimensions, check_look
from ..drawing.sheet import begin, shared_scale
from ..replacing import check_no_input
from .film import find_ffmpeg, write_film
from .multiples import PLANE_KINDS
from .orbit import INCHES, frame_count, orbit_frames, turns
from .stage import Stage

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import UInt8

    from ..grid.data import LandscapeData


_GIF_DPI, _MP4_DPI = 80, 200
_GIF_RATE, _MP4_RATE = 20, 30


def walk_frames(
    landscape: LandscapeData,
    kind: str = "contour",
    *,
    turn: float = 0.0,
    seconds: float = 6.0,
    rate: int = 30,
    dpi: int = 100,
    **look: Unpack[Look],
) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """Yields pictures of the optimizer walking over the landscape, red, green and blue, shape (height, width, 3).

    Between two checkpoints it walks in a straight line at constant speed. The curves on the right are the checkpoints'
    own metric and, dashed, that of their feet on the plane, which is the height at which the path is drawn. Of several
    runs, path and curves have the same colour.

    Args:
        landscape: a plane with a run's path of at least two checkpoints. Several runs walk at once, each at its place
            at that epoch or step; one that has ended waits at its end.
        kind: what it walks over: "contour", "lines", "heatmap" or "surface".
        turn: how far the camera goes around a surface meanwhile, in degrees; 0 leaves it where it is.
        seconds: how long the walk takes.
        rate: frames per second.
        dpi: dots per inch; a frame is 9.6 x 5.4 inches, or of the look's size.
        **look: metric, levels, scale, colormap, clip, theme, style, aspect, title, size, camera; see ``Look``.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line or has no path, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    chosen = PLANE_KINDS[check_choice("kind", kind, tuple(PLANE_KINDS))]
    count = frame_count(seconds, rate)
    check_int("dpi", dpi, minimum=20)
    check_look("walk_frames", look)
    if check_float("turn", turn) and kind != "surface":
        raise ValueError(f'turn must be 0 for kind="{kind}", which is flat; kind="surface" can be turned.')
    check_dimensions("walk_frames", landscape)
    found = landscape.checkpoints
    paths = [rows for rows in ([] if found is None else found.paths) if len(rows) > 1]
    if found is None or not paths:
        raise ValueError(
            "walk_frames needs a run's path of at least two checkpoints, but the landscape has none; measure a run's "
            'PCA landscape, draw a still picture, or go around its surface with move="orbit".'
        )
    walks = [found.part(rows) for rows in paths]
    size = check_size(look.get("size")) or INCHES
    options: Look = {**look, "scale": shared_scale(chosen, [landscape], look), "levels": None, "clip": None}
    options |= {"trajectory": False, "size": None}
    axes = _left_axes(chosen.projection, size, options)
    with begin(chosen, landscape, axes, options, furniture=False, avoid_path=True) as sheet:
        chosen.draw(sheet)
        # Its own legend would take the room that the curve needs.
        sheet.write_bar(
            sheet.ax, pad=0.08 if kind == "surface" else 0.02, shrink=0.7 if kind == "surface" else sheet.share
        )
        stage = Stage(sheet, walks)
        first = sheet.camera or best_camera(landscape, sheet.metric, sheet.scale, sheet.frame)
        cameras = [first.turned(each) for each in turns(turn, count)] if turn else []
        yield from stage.frames(np.linspace(0, len(stage.numbers) - 1, count), cameras, dpi)


def save_animation(
    landscape: LandscapeData,
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    move: str = "walk",
    turn: float | None = None,
    seconds: float | None = None,
    rate: int | None = None,
    dpi: int | None = None,
    **look: Unpack[Look],
) -> Path:
    """Writes a moving picture of a plane: an MP4 of 1920 x 1080 pixels, or a smaller GIF.

    Args:
        landscape: a plane, for a walk with a run's path of at least two checkpoints.
        path: a file that ends in .gif, or in .mp4, which needs ffmpeg (the program, or the package imageio-ffmpeg).
        kind: what a walk goes over: "contour", "lines", "heatmap" or "surface"; None is "contour". An orbit shows
            the surface.
        move: "walk" (the optimizer walks, beside its loss curve) or "orbit" (the camera goes around the surface).
        turn: how far the camera goes around the surface, in degrees; None is a whole turn for an orbit, and 0 for a
            walk, during which the camera stays.
        seconds: how long it takes; None is 6. The last picture stays for a second, but not that of an orbit of whole
            turns, which can run in a circle.
        rate: frames per second; None is 20 for a GIF and 30 for an MP4.
        dpi: dots per inch of a picture of 9.6 x 5.4 inches; None is 80 for a GIF and 200 for an MP4.
        **look: metric, levels, scale, colormap, clip, theme, style, aspect, title, size, camera; see ``Look``.

    Returns:
        The file.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line or has no path, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
        LandscapeError: there is no ffmpeg, or it failed.
        LandscapeWriteError: it is the landscape's own file.
        FileWriteError: the file cannot be written; what was there is untouched.
    """
    target = check_path("path", path)
    suffix = target.suffix.lower()
    if suffix not in (".gif", ".mp4"):
        raise wrong_value("path", "a name that ends in .gif or .mp4", str(path))
    check_choice("move", move, MOVES)
    if move == "orbit" and kind not in (None, "surface"):
        raise ValueError(f'kind must be left out for move="orbit", which shows the surface, but got {kind!r}.')
    if suffix == ".mp4":
        find_ffmpeg()
    check_can_be_file("path", target)
    check_no_input("path", target, [landscape.path])
    check_replaceable(target)
    small = suffix == ".gif"
    more: dict[str, Any] = {
        "rate": rate if rate is not None else _GIF_RATE if small else _MP4_RATE,
        "dpi": dpi if dpi is not None else _GIF_DPI if small else _MP4_DPI,
    }
    more |= {name: value for name, value in (("turn", turn), ("seconds", seconds)) if value is not None}
    if move == "walk":
        frames = walk_frames(landscape, kind or "contour", **more, **look)
    else:
        frames = orbit_frames(landscape, **more, **look)
    closed = move == "orbit" and (turn is None or turn % 360 == 0)
    write_film(target, frames, more["rate"], hold=0.0 if closed else 1.0)
    return target


def _left_axes(projection: str | None, size: tuple[float, float], look: Look) -> Any:
    from matplotlib.figure import Figure

    with appearance_of(look, None).applied():
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(1, 2, width_ratios=(1.25 if projection is None else 1.9, 1))
        return figure.add_subplot(grid[0], projection=projection)
