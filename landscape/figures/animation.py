"""The walk of each run over the landscape, beside their loss curves: as frames, as a GIF, as an MP4."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.errors import LandscapeError
from collectors.files.local_files import bytes_written, write_bytes
from collectors.files.places import check_can_be_file
from collectors.validation import check_choice, check_float, check_int, check_path, wrong_value

from ..drawing.appearance import choose_appearance
from ..drawing.canvas import check_size
from ..drawing.sheet import Look, begin, check_look, shared_scale
from .multiples import PLANE_KINDS
from .stage import Stage

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import UInt8

    from ..file.data import LandscapeData


_GIF_DPI = 80
_UNCHANGED = 255
_MP4_DPI = 120
_INCHES = (9.6, 4.5)


def walk_frames(
    landscape: LandscapeData,
    kind: str = "contour",
    *,
    seconds: float = 6.0,
    rate: int = 20,
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
        seconds: how long the walk takes.
        rate: frames per second.
        dpi: dots per inch; a frame is 9.6 x 4.5 inches, or of the look's size.
        **look: metric, levels, scale, colormap, clip, theme, style, aspect, title, size, camera; see ``Look``.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line or has no path, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    chosen = PLANE_KINDS[check_choice("kind", kind, tuple(PLANE_KINDS))]
    count = max(2, round(check_float("seconds", seconds, minimum=0.05) * check_int("rate", rate, minimum=1)))
    check_int("dpi", dpi, minimum=20)
    check_look("walk_frames", look)
    if landscape.y is None:
        raise ValueError("walk_frames needs a plane, but the landscape is a line; use plot_profile.")
    found = landscape.checkpoints
    paths = [rows for rows in ([] if found is None else found.paths) if len(rows) > 1]
    if found is None or not paths:
        raise ValueError(
            "walk_frames needs a run's path of at least two checkpoints, but the landscape has none; measure a run's "
            "PCA landscape, or draw a still picture."
        )
    walks = [found.part(rows) for rows in paths]
    size = check_size(look.get("size")) or _INCHES
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
        yield from stage.frames(np.linspace(0, len(stage.numbers) - 1, count), dpi)


def save_animation(
    landscape: LandscapeData,
    path: str | os.PathLike[str],
    kind: str = "contour",
    *,
    seconds: float = 6.0,
    rate: int = 20,
    dpi: int | None = None,
    **look: Unpack[Look],
) -> Path:
    """Writes the optimizer's walk over a plane, beside its loss curve; the last picture stays for a second.

    Args:
        landscape: a plane with a run's path of at least two checkpoints. Several runs walk at once, each at its place
            at that epoch or step; one that has ended waits at its end.
        path: a file that ends in .gif, or in .mp4, which needs ffmpeg (the program, or the package imageio-ffmpeg).
        kind: "contour", "lines", "heatmap" or "surface".
        seconds: how long the walk takes.
        rate: frames per second.
        dpi: dots per inch of a picture of 9.6 x 4.5 inches; None is 80 for a GIF and 120 for an MP4.
        **look: metric, levels, scale, colormap, clip, theme, style, aspect, title, size, camera; see ``Look``.

    Returns:
        The file.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line or has no path, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
        LandscapeError: there is no ffmpeg, or it failed.
        FileWriteError: the file cannot be written; what was there is untouched.
    """
    target = check_path("path", path)
    suffix = target.suffix.lower()
    if suffix not in (".gif", ".mp4"):
        raise wrong_value("path", "a name that ends in .gif or .mp4", str(path))
    program = find_ffmpeg() if suffix == ".mp4" else ""
    resolution = (_GIF_DPI if suffix == ".gif" else _MP4_DPI) if dpi is None else dpi
    check_can_be_file("path", target)
    frames = walk_frames(landscape, kind, seconds=seconds, rate=rate, dpi=resolution, **look)
    if suffix == ".gif":
        write_bytes(target, _gif(list(frames), rate))
    else:
        write_bytes(target, bytes_written(lambda path: _write_mp4(program, path, frames, rate)))
    return target


def _left_axes(projection: str | None, size: tuple[float, float], look: Look) -> Any:
    from matplotlib.figure import Figure

    with choose_appearance(look.get("theme"), "screen", None).applied():
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(1, 2, width_ratios=(1.25, 1))
        return figure.add_subplot(grid[0], projection=projection)


def find_ffmpeg() -> str:
    """Returns the program on the PATH, or the one in the package imageio-ffmpeg.

    Raises:
        LandscapeError: there is neither.
    """
    found = shutil.which("ffmpeg")
    if found is not None:
        return found
    try:
        return str(import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError) as error:
        raise LandscapeError(
            "an .mp4 file needs ffmpeg, which is not on the PATH; install it (pip install imageio-ffmpeg, or your "
            "system's ffmpeg), or write a .gif, which needs nothing."
        ) from error


def _gif(frames: list[NDArray[Any]], rate: int) -> bytes:
    from PIL import Image

    # One palette for all frames, taken from the one that shows everything: a palette for each would flicker.
    palette = Image.fromarray(frames[-1]).quantize(_UNCHANGED, dither=Image.Dither.NONE)
    indices = [
        np.asarray(Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)) for frame in frames
    ]
    images = []
    for before, now in zip([None, *indices], indices, strict=False):
        # What has not changed is transparent, which makes the file several times smaller.
        image = Image.fromarray(now if before is None else np.where(now == before, np.uint8(_UNCHANGED), now))
        image.putpalette(palette.getpalette() or [])
        images.append(image)
    durations = [round(1000 / rate)] * (len(images) - 1) + [1000]
    content = io.BytesIO()
    images[0].save(
        content, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False,
        transparency=_UNCHANGED, disposal=1,
    )  # fmt: skip
    return content.getvalue()


def _write_mp4(program: str, path: Path, frames: Iterator[NDArray[Any]], rate: int) -> None:
    first = next(frames)
    height, width = first.shape[:2]
    command = [
        program, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
        "-r", str(rate), "-i", "-", "-an", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-crf", "18",
        "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-fflags", "+bitexact", "-f", "mp4", str(path),
    ]  # fmt: skip
    last = first
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        # When ffmpeg ends early, its own message says why; the broken pipe does not.
        with contextlib.suppress(BrokenPipeError):
            for frame in itertools.chain([first], frames):
                last = frame
                process.stdin.write(frame.tobytes())
            for _ in range(rate):
                process.stdin.write(last.tobytes())
        _, said = process.communicate()
    if process.returncode != 0:
        text = said.decode(errors="replace").strip()[-500:] or f"exit code {process.returncode}"
        raise LandscapeError(f"ffmpeg could not write the animation: {text}. A .gif needs no ffmpeg.")
