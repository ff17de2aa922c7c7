"""A plane as a picture for a paper's first page: lit, with tubes and a soft shadow, on a clear background."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np

from collectors.files.local_files import write_bytes
from collectors.shapes import UInt8
from collectors.validation import check_bool, check_choice, check_instance, check_int, wrong_type, wrong_value

from ..drawing import texts as words
from ..drawing.appearance import Appearance, appearance_of, find_colormap
from ..drawing.camera import best_camera, check_camera
from ..drawing.canvas import check_png, check_size, new_figure
from ..drawing.look import MARK_MINIMA, Look, check_dimensions, check_look
from ..drawing.path import sized
from ..drawing.sheet import shared_scale
from ..grid.data import LandscapeData
from ..rendering.meshes import choose_space, path_lines, path_marks
from ..rendering.scene import Scene
from ..rendering.surface import INTERPOLATIONS
from ..scales.landscape_scale import missing_kinds
from ..scales.levels import number_text
from .surface3d import SURFACE

PIXELS = (3840, 2160)
_DPI = 300
_SMALLEST, _LARGEST = 64, 8192
# Labels of a narrower picture could not be read.
_LABELLED = 600
_INCHES = (PIXELS[0] / _DPI, PIXELS[1] / _DPI)
# The strip is laid out as if it were so many inches wide, whatever its pixels.
_STRIP = 12.0
_LETTERS = 178
_LINE, _BAR = 0.165, 0.58
_BETWEEN = {
    "smooth": "drawn smoothly (monotone cubics) through every point, never beyond the four points around",
    "linear": "drawn bilinearly",
}


@dataclass(frozen=True)
class Rendering:
    """A picture of a landscape in three dimensions.

    Attributes:
        pixels: red, green, blue and opacity, shape (height, width, 4).
        title: of the landscape.
        caption: what a reader must know: scale, clipping, what is missing, what was drawn between the points.
        dpi: dots per inch, which a PNG tells to who prints it.
    """

    pixels: UInt8[np.ndarray, "height width 4"]
    title: str
    caption: tuple[str, ...]
    dpi: float

    def save(self, path: str | os.PathLike[str], *, description: str | None = None) -> Path:
        """Writes the picture as PNG and returns its path; the caption is in the file, as the text "Description".

        The same landscape gives the same bytes on the same machine.

        Args:
            path: a file that ends in .png.
            description: what the picture shows, for people who cannot see it; it stands before the caption.

        Raises:
            TypeError: ``path`` is no path, or ``description`` is no text.
            ValueError: the name does not end in .png.
            FileWriteError: the file cannot be written; what was there is untouched.
        """
        target = check_png("path", path)
        if description is not None:
            check_instance("description", description, str, "a str or None")
        write_bytes(target, self._png(description))
        return target

    def _repr_png_(self) -> bytes:
        return self._png(None)

    def _png(self, description: str | None) -> bytes:
        from PIL import Image
        from PIL.PngImagePlugin import PngInfo

        words = PngInfo()
        words.add_itxt("Title", self.title)
        words.add_itxt("Description", "\n".join([description, *self.caption] if description else self.caption))
        words.add_itxt("Software", "summary-landscape")
        file = io.BytesIO()
        image = Image.fromarray(self.pixels)
        # More compression takes longer than the drawing and makes the file hardly smaller.
        image.save(file, "PNG", pnginfo=words, dpi=(self.dpi, self.dpi), compress_level=4)
        return file.getvalue()


def plot_hero(
    landscape: LandscapeData,
    *,
    pixels: tuple[int, int] | None = None,
    dpi: int | None = None,
    labels: bool = False,
    background: str | None = None,
    interpolation: str = "smooth",
    **look: Unpack[Look],
) -> Rendering:
    """Renders a plane with light, ambient occlusion and a shadow on its floor: 3840 x 2160 pixels without any text.

    Heights, colours, contour lines, paths and marks are those of ``plot_surface``, and a point without a value is a
    hole. The surface passes through every point of the grid. What it hides of a path is not seen. What the picture
    does not say (scale, clipping, missing points) is in ``caption``, which a PNG keeps as its description.

    Args:
        landscape: a plane; ``metric[j, i]`` is drawn above ``(x[i], y[j])``.
        pixels: width and height, each from 64 to 8192; None is 3840 x 2160, or ``size`` times ``dpi``.
        dpi: dots per inch, 300 by default.
        labels: whether a colour bar, a legend and the caption stand in a strip below.
        background: one of matplotlib's colours; None leaves it clear.
        interpolation: what is drawn between the grid's points: "smooth" (monotone cubics) or "linear" (bilinear). Both
            stay between the lowest and the highest of the four points around.
        **look: metric, levels, scale, colormap, trajectory, clip, theme, font, aspect, title, size, camera; see
            ``Look``.

    Returns:
        The picture; ``save("hero.png")`` writes it.

    Raises:
        ImportError: pyvista is not installed.
        KeyError: the landscape has no such metric.
        LandscapeRenderingError: this machine cannot draw three dimensions.
        TypeError: an argument is unknown or has the wrong type.
        ValueError: the landscape is a line or has no finite value, or an argument has a wrong value.
    """
    from matplotlib.colors import is_color_like, to_rgb
    from PIL import Image

    options = check_look("plot_hero", look)
    if options.get("style", "screen") != "screen":
        raise ValueError("style must be left out for plot_hero, which has no text; labels=True writes a caption.")
    if options.get("topology", False) is not False:
        raise ValueError(f"topology must be left out for plot_hero: {MARK_MINIMA}.")
    if (heading := options.get("title")) is not None:
        check_instance("title", heading, str, "a str or None")
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    labels, trajectory = check_bool("labels", labels), check_bool("trajectory", options.get("trajectory", True))
    check_dimensions("plot_hero", landscape)
    width, height, dots = _measures(pixels, options.get("size"), dpi)
    if background is not None and not (isinstance(background, str) and is_color_like(background)):
        expected = "one of matplotlib's colours, such as 'white' or '#14171c', or None"
        raise wrong_value("background", expected, background)
    appearance = appearance_of(options, None)
    colors = find_colormap(options.get("colormap", "viridis"))
    camera = check_camera(options.get("camera"))
    metric = options.get("metric", "loss")
    scale = shared_scale(SURFACE, [landscape], options)
    space = choose_space(landscape, metric, scale, aspect=options.get("aspect", "equal"))
    if not np.isfinite(space.values).any():
        raise ValueError(
            f"plot_hero needs a finite value of {metric!r}, but the landscape has none; landscape.status (landscape "
            "info on the command line) says which points are pending or failed."
        )
    camera = camera or best_camera(landscape, metric, scale, space.frame)
    scene = Scene(space, colors, appearance.theme, trajectory, interpolation, (width, height))
    title = words.full_title(landscape, words.printable) or "loss landscape" if heading is None else heading
    caption = _caption_lines(scene)
    if labels and width < _LABELLED:
        raise wrong_value("labels", f"False for a picture that is narrower than {_LABELLED} pixels", True)
    strips = [_draw_strip(scene, title, caption, appearance, width)] if labels else []
    rest = height - sum(map(len, strips))
    if rest < _SMALLEST:
        expected = f"False for a picture of {width} x {height} pixels: there is no room for them"
        raise wrong_value("labels", expected, True)
    whole = np.concatenate([replace(scene, pixels=(width, rest)).render(camera), *strips])
    if background is not None:
        # Nothing is clear in front of a colour any more.
        color = tuple(round(255 * part) for part in (*to_rgb(background), 1.0))
        page = Image.new("RGBA", whole.shape[1::-1], color)
        page.alpha_composite(Image.fromarray(whole))
        whole = np.asarray(cast(Any, page))
    return Rendering(whole, title, tuple(caption), dots)


def _measures(pixels: object, size: object, dpi: object) -> tuple[int, int, int]:
    dots = _DPI if dpi is None else check_int("dpi", dpi, minimum=20, maximum=2400)
    if pixels is None:
        inches = check_size(size) or _INCHES
        width, height = (round(side * dots) for side in inches)
        if not all(_SMALLEST <= side <= _LARGEST for side in (width, height)):
            raise ValueError(
                f"size times dpi must be from {_SMALLEST} to {_LARGEST} pixels a side, but {inches[0]:g} x "
                f"{inches[1]:g} inches at {dots} dots per inch are {width} x {height}. Choose another size or dpi, or "
                "pixels."
            )
        return width, height, dots
    if size is not None:
        raise ValueError("size must be left out where pixels are given; dpi says how large they are printed.")
    expected = f"(width, height), each a whole number from {_SMALLEST} to {_LARGEST}"
    if isinstance(pixels, str) or not isinstance(pixels, Sequence) or len(pixels) != 2:
        raise wrong_type("pixels", expected, pixels)
    width, height = (check_int(f"pixels[{index}]", side) for index, side in enumerate(pixels))
    if not all(_SMALLEST <= side <= _LARGEST for side in (width, height)):
        raise wrong_value("pixels", expected, pixels)
    return width, height, dots


def _caption_lines(scene: Scene) -> list[str]:
    """Returns what a reader must know of a scene, one sentence each, without full stops."""
    space, landscape, metric = scene.space, scene.space.landscape, scene.space.metric
    scale, status, values = space.scale, landscape.status, landscape[metric]
    label = words.metric_text(landscape, metric, str)
    both = np.array([scale.low, scale.high])
    ends = " to ".join(number_text(end, both) for end in both)
    lines = [f"Height and colour: {scale.label(label)}, {ends}; light and shade are no data"]
    if scale.flat:
        lines = [words.flat_note(label, scale.low, space.values)]
    if scale.extend != "neither":
        lines[0] += "; values beyond its ends are drawn as plateaus at its ends"
    notes = [words.status_note(landscape, status), *words.value_notes(landscape, metric)]
    missing = [f"{int(where.sum())} {kind}" for kind, where in missing_kinds(values, status).items()]
    notes += [f"holes are points without a value: {', '.join(missing)}"] if missing else []
    lines += ["; ".join(filter(None, notes))] if any(notes) else []
    lines.append(
        f"Between the {len(landscape.x)} x {len(space.plane[1])} points of the grid: {_BETWEEN[scene.interpolation]}"
    )
    sides = [words.axis_label(landscape, axis, space.frame.geometry) for axis in (0, 1)]
    scaled = "; ".join(space.frame.notes) or "the plane is to scale"
    lines.append(f"Axes: {sides[0]}; {sides[1]}; {scaled}")
    if scene.trajectory:
        lines_drawn = [line.name for line in path_lines(space) if len(line.rows) > 1]
        names = [name if name == "trajectory" else f"path of {name}" for name in lines_drawn]
        if names:
            lines.append(
                f"{', '.join(names)}: at the projected {label}; between two checkpoints it follows the surface, which "
                "may hide it"
            )
        differing = words.own_values_note(landscape, metric)
        lines += [differing] if differing else []
    return [line[0].upper() + words.unescaped(line[1:]) for line in lines]


def _draw_strip(
    scene: Scene, title: str, caption: Sequence[str], appearance: Appearance, width: int
) -> UInt8[np.ndarray, "rows width 4"]:
    """Returns a strip with a colour bar, a legend and the caption, on a clear background."""
    lines = [line for text in caption for line in textwrap.wrap(text, _LETTERS)]
    entries = _entries(scene) if appearance.legend and scene.trajectory else []
    rows = -(-len(entries) // 3)
    bar = max(_BAR, 0.2 * rows + 0.1)
    inches = bar + _LINE * (len(lines) + (1.5 if title else 0)) + 0.25
    with appearance.applied():
        figure = new_figure((_STRIP, inches), None)
        figure.set_dpi(width / _STRIP)
        figure.patch.set_alpha(0)
        # Matplotlib types neither drawing nor pixels.
        canvas: Any = figure.canvas
        if not scene.space.scale.flat:
            _draw_bar(figure, scene, appearance, inches)
        if entries:
            figure.legend(
                handles=entries, loc="upper right", bbox_to_anchor=(0.985, 1 - 0.04 / inches), ncols=3, frameon=False,
                fontsize=8, columnspacing=1.4, handletextpad=0.5, labelcolor=appearance.ink,
            )  # fmt: skip
        top = inches - bar - 0.1
        if title:
            figure.text(
                0.02, top / inches, words.plain(title, 120), fontsize=10, va="top", color=appearance.ink, weight="bold"
            )
            top -= 1.5 * _LINE
        for index, line in enumerate(lines):
            place = (top - _LINE * index) / inches
            figure.text(0.02, place, words.plain(line, 400), fontsize=7.5, va="top", color=appearance.ink)
        canvas.draw()
    drawn = np.asarray(canvas.buffer_rgba())[:, :width]
    return np.pad(drawn, ((0, 0), (0, width - drawn.shape[1]), (0, 0)))


def _draw_bar(figure: Any, scene: Scene, appearance: Appearance, inches: float) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = scene.space.scale
    axes = figure.add_axes((0.02, 1 - 0.24 / inches, 0.36, 0.15 / inches))
    # Equal lengths are equal heights, on every scale.
    low, high = scale.height_range
    drawn = figure.colorbar(
        ScalarMappable(Normalize(low, high), scene.colors), cax=axes, orientation="horizontal", extend=scale.extend
    )
    places = (scale.forward(scale.levels) - low) / (high - low)
    texts = scale.spaced_texts(places, 0.1)
    drawn.set_ticks(scale.forward(scale.levels).tolist(), labels=texts)
    drawn.minorticks_off()
    axes.tick_params(labelsize=7.5, colors=appearance.ink)
    drawn.outline.set_edgecolor(appearance.soft)
    label = scale.label(words.metric_text(scene.space.landscape, scene.space.metric))
    drawn.set_label(label, fontsize=8, color=appearance.ink)


def _entries(scene: Scene) -> list[Any]:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=line.color, linewidth=2.2, marker="o", markersize=4.5, label=words.plain(line.name, 32))
        for line in path_lines(scene.space)
    ]
    return entries + [
        Line2D([], [], linestyle="none", label=words.plain(mark.name, 48), **sized(mark.style, 0.7))
        for mark in path_marks(scene.space)
    ]
