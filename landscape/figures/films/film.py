"""Moving pictures as files: a walk over a landscape or an orbit around it, as GIF, or as MP4 with ffmpeg."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from collectors.errors import LandscapeError
from collectors.files.local_files import bytes_written, check_replaceable, write_bytes
from collectors.files.places import check_can_be_file
from collectors.validation import check_choice, check_int, check_path, wrong_value

from ...drawing.camera import MOVES
from ...drawing.look import Look
from ...grid.data import LandscapeData
from ...replacing import check_no_input
from ..multiples import check_landscapes
from .frames import orbit_frames, walk_frames

_UNCHANGED = 255
# In frames per second: programs show a frame of less than 2 hundredths of a second for longer.
_FASTEST_GIF = 50


def save_animation(
    landscape: LandscapeData | Sequence[LandscapeData],
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
        landscape: a plane, for a walk with a run's path of at least two checkpoints; or a list of such, which walk side
            by side on one clock, as ``walk_frames`` says.
        path: a file that ends in .gif, or in .mp4, which needs ffmpeg (the program, or the package imageio-ffmpeg).
        kind: what a walk goes over: "contour", "lines", "heatmap" or "surface"; None is "contour". An orbit shows
            the surface.
        move: "walk" (the optimizer walks, beside its loss curve) or "orbit" (the camera goes around the surface).
        turn: how far the camera goes around the surface, in degrees; None is a whole turn for an orbit, and 0 for a
            walk, during which the camera stays.
        seconds: how long it takes; None is 6. The last picture stays for a second, but not that of an orbit of whole
            turns, which can run in a circle.
        rate: frames per second; None is 20 for a GIF, which can have 50, and 30 for an MP4.
        dpi: dots per inch of a picture of 9.6 x 5.4 inches; None is 80 for a GIF and 200 for an MP4.
        **look: metric, levels, scale, colormap, clip, theme, style, aspect, title, size, camera; see ``Look``.

    Returns:
        The file.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: a landscape is a line or has no path, or an argument has a wrong value.
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
    each = check_landscapes(landscape)
    if move == "orbit" and len(each) > 1:
        raise ValueError('move must be "walk" for several landscapes, but got "orbit", which goes around one surface.')
    if move == "orbit" and kind not in (None, "surface"):
        raise ValueError(f'kind must be left out for move="orbit", which shows the surface, but got {kind!r}.')
    program = find_ffmpeg() if suffix == ".mp4" else None
    check_can_be_file("path", target)
    check_no_input("path", target, [item.path for item in each])
    check_replaceable(target)
    if program is None and rate is not None:
        check_int("rate", rate, 1, _FASTEST_GIF)
    given = {"turn": turn, "seconds": seconds, "rate": rate, "dpi": dpi}
    usual = {"rate": 20, "dpi": 80} if program is None else {"rate": 30, "dpi": 200}
    more: dict[str, Any] = usual | {name: value for name, value in given.items() if value is not None}
    if move == "walk":
        frames = walk_frames(each, kind or "contour", **more, **look)
    else:
        frames = orbit_frames(each[0], **more, **look)
    closed = move == "orbit" and (turn is None or turn % 360 == 0)
    rate, hold = more["rate"], 0.0 if closed else 1.0
    if program is None:
        write_bytes(target, _gif(list(frames), rate, hold))
    else:
        write_bytes(target, bytes_written(lambda place: _write_mp4(program, place, frames, rate, hold)))
    return target


def find_ffmpeg() -> str:
    if found := shutil.which("ffmpeg"):
        return found
    try:
        return str(import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError) as error:
        raise LandscapeError(
            "an .mp4 file needs ffmpeg, which is not on the PATH; install it (pip install imageio-ffmpeg, or your "
            "system's ffmpeg), or write a .gif, which needs nothing."
        ) from error


def _gif(frames: list[NDArray[Any]], rate: int, hold: float) -> bytes:
    from PIL import Image

    # One palette for all frames, taken from the one that shows everything: a palette for each would flicker.
    palette = Image.fromarray(frames[-1]).quantize(_UNCHANGED, dither=Image.Dither.NONE)
    indices = [
        np.asarray(Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)) for frame in frames
    ]
    # What has not changed is transparent, which makes the file several times smaller.
    changes = [np.where(now == before, np.uint8(_UNCHANGED), now) for before, now in itertools.pairwise(indices)]
    images = [Image.fromarray(shown) for shown in (indices[0], *changes)]
    for image in images:
        image.putpalette(palette.getpalette() or [])
    # A GIF counts hundredths of a second: the time since the beginning is rounded, so that errors do not add up.
    durations = (10 * np.diff(np.rint(100 / rate * np.arange(len(images) + 1)))).astype(int).tolist()
    durations[-1] = round(1000 * hold) or durations[-1]
    content = io.BytesIO()
    images[0].save(
        content, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False,
        transparency=_UNCHANGED, disposal=1,
    )  # fmt: skip
    return content.getvalue()


def _write_mp4(program: str, path: Path, frames: Iterator[NDArray[Any]], rate: int, hold: float) -> None:
    first = next(frames)
    height, width = first.shape[:2]
    command = [
        program, "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
        "-r", str(rate), "-i", "-", "-an", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-crf", "18",
        "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-fflags", "+bitexact", "-f", "mp4", str(path),
    ]  # fmt: skip

    def shown() -> Iterator[NDArray[Any]]:
        for last in itertools.chain([first], frames):
            yield last
        yield from itertools.repeat(last, round(hold * rate))

    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        for frame in shown():
            try:
                process.stdin.write(frame.tobytes())
            except OSError:  # a broken pipe, on Windows EINVAL
                break  # ffmpeg has ended early, and its own message says why
        _, messages = process.communicate()
    if process.returncode != 0:
        text = messages.decode(errors="replace").strip()[-500:] or f"exit code {process.returncode}"
        raise LandscapeError(f"ffmpeg could not write the animation: {text}. A .gif needs no ffmpeg.")
