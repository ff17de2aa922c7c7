"""The optimizer's walk over the landscape, beside its loss curve: as frames, as a GIF, as an MP4."""

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

from ..scales.choosing import choose_scale
from .appearance import choose_appearance
from .canvas import settle
from .multiples import PLANE_KINDS
from .occlusion import Relief
from .path import PATH, STAR, halo, network_marks, sized
from .profile import set_value_axis
from .sheet import Look, Sheet, begin, check_look, shared_scale
from .texts import plain, unit_of

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import UInt8

    from ..file.checkpoints import CheckpointsData
    from ..file.data import LandscapeData


_GIF_DPI = 80
_UNCHANGED = 255
_MP4_DPI = 120


# Pieces of the way since the last checkpoint.
_PIECES = 16


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
    own metric and, dashed, that of their feet on the plane, which is the height at which the path is drawn.

    Args:
        landscape: a plane with a run's path of at least two checkpoints; of several runs, the longest path is walked.
        kind: what it walks over: "contour", "lines", "heatmap" or "surface".
        seconds: how long the walk takes.
        rate: frames per second.
        dpi: dots per inch; a frame is 9.6 x 4.5 inches.
        **look: metric, levels, scale, colormap, clip, theme, style, aspect; see ``Look``.

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
    paths = [] if found is None else found.paths
    if found is None or max(map(len, paths), default=0) < 2:
        raise ValueError(
            "walk_frames needs a run's path of at least two checkpoints, but the landscape has none; measure a run's "
            "PCA landscape, or draw a still picture."
        )
    path = found.part(max(paths, key=len))
    options: Look = {**look, "scale": shared_scale(chosen, [landscape], look), "levels": None, "clip": None}
    options["trajectory"] = False
    axes = _left_axes(chosen.projection, options)
    with begin(chosen, landscape, axes, options, furniture=False, avoid_path=True) as sheet:
        chosen.draw(sheet)
        # Its own legend would take the room that the curve needs.
        sheet.write_bar(
            sheet.ax, pad=0.08 if kind == "surface" else 0.02, shrink=0.7 if kind == "surface" else sheet.share
        )
        stage = _Stage(sheet, path)
        yield from stage.frames(np.linspace(0, len(path.number) - 1, count), dpi)


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
        landscape: a plane with a run's path of at least two checkpoints; of several runs, the longest path is walked.
        path: a file that ends in .gif, or in .mp4, which needs ffmpeg (the program, or the package imageio-ffmpeg).
        kind: "contour", "lines", "heatmap" or "surface".
        seconds: how long the walk takes.
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


def _left_axes(projection: str | None, look: Look) -> Any:
    from matplotlib.figure import Figure

    with choose_appearance(look.get("theme"), "screen", None).applied():
        figure = Figure(figsize=(9.6, 4.5), layout="constrained")
        grid = figure.add_gridspec(1, 2, width_ratios=(1.25, 1))
        return figure.add_subplot(grid[0], projection=projection)


class _Stage:
    """Draws what does not move once; each frame draws the walker over a copy of it."""

    def __init__(self, sheet: Sheet, path: CheckpointsData) -> None:
        self.sheet, self.path = sheet, path
        self.figure: Any = sheet.ax.figure
        self.places = self._places()
        heights = sheet.scale.heights(sheet.measured)
        self.relief = Relief(*sheet.plane, heights, sheet.frame.matrix) if sheet.ax.name == "3d" else None
        self.curve = self.figure.add_subplot(sheet.ax.get_subplotspec().get_gridspec()[1])  # type: ignore[union-attr]
        unit = plain(unit_of(sheet.landscape))
        self.unit = unit
        self._draw_still()
        self.curves = self._draw_curves()
        self.walked, self.walker, self.cursor, self.dots, self.text = self._make_moving()

    def frames(self, moments: NDArray[Any], dpi: int) -> Iterator[NDArray[Any]]:
        """Yields a frame for each moment, in checkpoints since the first one."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        self.figure.set_dpi(dpi)
        canvas: Any = FigureCanvasAgg(self.figure)
        settle(self.figure)
        self.sheet.write_late()
        canvas.draw()
        still = canvas.copy_from_bbox(self.figure.bbox)
        for moment in moments:
            self._move(float(moment))
            canvas.restore_region(still)
            for artist in (self.walked, self.walker, self.cursor, *self.dots, self.text):
                artist.axes.draw_artist(artist)
            yield np.asarray(canvas.buffer_rgba())[:, :, :3].copy()

    def _places(self) -> NDArray[Any]:
        """Returns where each checkpoint is drawn, shape (n, 2) or (n, 3), NaN where its height is not known."""
        assert self.path.y is not None
        places = [*self.sheet.frame.place(self.path.x, self.path.y)]
        if self.sheet.ax.name == "3d":
            values = self.path.projected.get(self.sheet.metric, np.full(len(self.path.x), np.nan))
            places.append(self.sheet.scale.tall.heights(values))
        return np.column_stack(places)

    def _draw_still(self) -> None:
        ax: Any = self.sheet.ax
        color = self._line_color()
        self._add_line(self._way(self.places), color=color, linewidth=1.0, alpha=0.45, zorder=4, path_effects=halo(1.8))
        if ax.name != "3d":
            landscape, place = self.sheet.landscape, self.sheet.frame.place
            found, point = landscape.checkpoints, landscape.origin
            ax.plot(*place([point.x], [point.y or 0.0]), linestyle="none", zorder=5, **sized(STAR, 0.9))
            if found is not None and found.y is not None:
                for row, style in network_marks(landscape):
                    here = place(found.x[[row]], found.y[[row]])
                    ax.plot(*here, linestyle="none", zorder=5, **sized(style, 0.9))

    def _way(self, places: NDArray[Any]) -> NDArray[Any]:
        """Returns the path through places; on a surface it follows the surface."""
        return places if self.relief is None else self.relief.path_over(places)

    def _rest(self, moment: float) -> NDArray[Any]:
        """Returns the way over a surface from the last checkpoint before a moment."""
        assert self.relief is not None
        return self.relief.along(self.places, np.linspace(int(moment), moment, _PIECES))

    def _add_line(self, places: NDArray[Any], **style: Any) -> Any:
        """Adds a line or marks to the picture; a surface hides what lies behind it."""
        if self.relief is None:
            return self.sheet.ax.plot(*places.T, **style)[0]
        from .surface_line import SurfaceLine

        return self.sheet.ax.add_line(SurfaceLine(places, self.relief, **style))

    def _line_color(self) -> str:
        return PATH if self.sheet.ax.name == "3d" else "white"

    def _draw_curves(self) -> list[tuple[NDArray[Any], str]]:
        metric, look, ax = self.sheet.metric, self.sheet.appearance, self.curve
        number, curves = self.path.number, []
        for values, stroke, color, name in (
            (self.path.metrics.get(metric), "-", look.series[0], "at the checkpoint"),
            (self.path.projected.get(metric), "--", look.series[1], "at its foot on the plane"),
        ):
            if values is not None and np.isfinite(values).any():
                ax.plot(number, values, stroke, color=color, linewidth=1.6, label=name)
                curves.append((values, color))
        values = np.concatenate([values for values, _ in curves] or [np.empty(0)])
        scale = choose_scale(values, count=8, metric=metric)
        set_value_axis(ax, scale)
        margin = 0.03 * max(float(np.ptp(number)), 1.0)
        ax.set_xlim(number.min() - margin, number.max() + margin)
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.set_xlabel(self.unit)
        ax.set_ylabel(scale.label(plain(metric)) if curves else f"no {plain(metric)} measured on the path yet")
        ax.grid(alpha=0.25 if look.theme == "light" else 0.6)
        ax.spines[["top", "right"]].set_visible(False)
        if curves:
            ax.legend(frameon=False, loc="best")
        return curves

    def _make_moving(self) -> tuple[Any, Any, Any, list[Any], Any]:
        look = self.sheet.appearance
        walked = self._add_line(
            self.places[:1], color=self._line_color(), linewidth=2.0, zorder=6, animated=True, path_effects=halo(3.6)
        )
        walker = self._add_line(
            self.places[:1], linestyle="none", marker="o", color="#ff4d6d", markeredgecolor="white", markersize=10,
            markeredgewidth=1.5, zorder=7, animated=True, path_effects=halo(2.5),
        )  # fmt: skip
        cursor = self.curve.axvline(self.path.number[0], color=look.soft, linewidth=1.0, animated=True)
        dots = [
            self.curve.plot([], [], "o", color=color, markeredgecolor=look.page, markersize=8, animated=True)[0]
            for _, color in self.curves
        ]
        # With a text, so that there is room for it.
        text = self.curve.set_title(f"{self.unit} {self.path.number[-1]}", animated=True)
        return walked, walker, cursor, dots, text

    def _move(self, moment: float) -> None:
        last = int(moment)
        steps = np.arange(len(self.places))
        if self.relief is None:
            here = np.array([np.interp(moment, steps, column) for column in self.places.T])
            way = np.vstack([self.places[: last + 1], here]).T
        else:
            here = self.relief.along(self.places, np.array([moment]))[0]
            way = np.vstack([self._way(self.places[: last + 1]), self._rest(moment)]).T
        number = float(np.interp(moment, steps, self.path.number))
        if len(way) == 3:
            self.walked.set_data_3d(*way)
            self.walker.set_data_3d(*here[:, None])
        else:
            self.walked.set_data(*way)
            self.walker.set_data(*here[:, None])
        self.cursor.set_xdata([number, number])
        for dot, (values, _) in zip(self.dots, self.curves, strict=True):
            between = np.interp(number, self.path.number, values)
            dot.set_data([number], [between])
        name = plain(self.path.run_name(0), 32)
        self.text.set_text(", ".join(part for part in (name, f"{self.unit} {self.path.number[last]}") if part))


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
