"""Moving pictures as files: GIF, and MP4 with ffmpeg."""

from __future__ import annotations

import io
import itertools
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.errors import LandscapeError
from collectors.files.local_files import bytes_written, write_bytes

_UNCHANGED = 255


def write_film(target: Path, frames: Iterator[NDArray[Any]], rate: int, hold: float = 1.0) -> None:
    """Writes frames, shape (height, width, 3), as GIF or H.264 MP4 by the file's suffix; the last stays ``hold`` s."""
    if target.suffix.lower() == ".gif":
        write_bytes(target, _gif(list(frames), rate, hold))
        return
    program = find_ffmpeg()
    write_bytes(target, bytes_written(lambda path: _write_mp4(program, path, frames, rate, hold)))


def find_ffmpeg() -> str:
    """Returns the path of ffmpeg: the program on the PATH, or the one in the package imageio-ffmpeg."""
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


def _gif(frames: list[NDArray[Any]], rate: int, hold: float) -> bytes:
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
    durations = [round(1000 / rate)] * (len(images) - 1) + [round(1000 * (hold or 1 / rate))]
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
