"""Moving pictures in files: GIF by Pillow, MP4 by ffmpeg."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collectors.atomic_files import replacing
from collectors.errors import LandscapeError
from collectors.network_state import Array
from collectors.validation import check_path, wrong_value

from ..output_folders import check_folder_of
from .sheet import Look
from .walk import walk_frames

if TYPE_CHECKING:
    from typing import Unpack

    from ..surface import Landscape

_GIF_DPI = 80
_UNCHANGED = 255
_MP4_DPI = 120


def save_animation(
    landscape: Landscape,
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
        landscape: a plane with a trajectory of at least two checkpoints.
        path: a file that ends in .gif, or in .mp4, which needs ffmpeg (the program, or the package imageio-ffmpeg).
        kind: "contour", "lines", "heatmap" or "surface".
        seconds: how long the way takes.
        rate: frames per second.
        dpi: dots per inch of a picture of 9.6 x 4.5 inches; None is 80 for a GIF and 120 for an MP4.
        **look: metric, levels, scale, colormap, clip, theme; see ``Look``.

    Returns:
        The file.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line or has no path, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
        LandscapeError: there is no ffmpeg, or it failed.
        OSError: the file cannot be written; what was there is untouched.
    """
    target = check_path("path", path)
    suffix = target.suffix.lower()
    if suffix not in (".gif", ".mp4"):
        raise wrong_value("path", "a name that ends in .gif or .mp4", str(path))
    program = find_ffmpeg() if suffix == ".mp4" else ""
    resolution = (_GIF_DPI if suffix == ".gif" else _MP4_DPI) if dpi is None else dpi
    check_folder_of(target)
    frames = walk_frames(landscape, kind, seconds=seconds, rate=rate, dpi=resolution, **look)
    with replacing(target) as temporary:
        if suffix == ".gif":
            _write_gif(temporary, list(frames), rate)
        else:
            _write_mp4(program, temporary, frames, rate)
    return target


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


def _write_gif(path: Path, frames: list[Array], rate: int) -> None:
    from PIL import Image

    # One palette for all, of the frame that shows everything: others of their own would flicker.
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
    with path.open("wb") as file:
        images[0].save(
            file, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False,
            transparency=_UNCHANGED, disposal=1,
        )  # fmt: skip


def _write_mp4(program: str, path: Path, frames: Iterator[Array], rate: int) -> None:
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
        # Where ffmpeg ends early its own words say why, not the pipe that broke.
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
