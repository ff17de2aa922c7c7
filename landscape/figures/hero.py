"""A plane as a picture for a paper's first page: lit, with tubes and a soft shadow, on a clear background."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from collectors.validation import check_bool, check_choice, check_instance, check_int, wrong_type, wrong_value

from ..drawing.appearance import choose_appearance, find_colormap
from ..drawing.camera import best_camera, check_camera
from ..drawing.canvas import check_size
from ..drawing.look import Look, check_dimensions, check_look
from ..drawing.texts import full_title, printable
from ..meshes.space import choose_space
from ..rendering.picture import Rendering
from ..rendering.scene import Scene
from ..rendering.surface import INTERPOLATIONS
from .hero_caption import caption_lines, draw_strip

if TYPE_CHECKING:
    from typing import Unpack

    from ..grid.data import LandscapeData


PIXELS = (3840, 2160)
_DPI = 300
_SMALLEST, _LARGEST = 64, 8192
# Labels of a narrower picture could not be read.
_LABELLED = 600
_INCHES = (PIXELS[0] / _DPI, PIXELS[1] / _DPI)


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
        **look: metric, levels, scale, colormap, trajectory, clip, theme, aspect, title, size (inches), camera; see
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
    options = _checked(look)
    check_choice("interpolation", interpolation, INTERPOLATIONS)
    labels, trajectory = check_bool("labels", labels), check_bool("trajectory", options.get("trajectory", True))
    check_dimensions("plot_hero", landscape)
    width, height, dots = _measures(pixels, options.get("size"), dpi)
    behind = None if background is None else _color(background)
    appearance = choose_appearance(options.get("theme"), "screen", None)
    colors = find_colormap(options.get("colormap", "viridis"))
    camera = check_camera(options.get("camera"))
    metric = options.get("metric", "loss")
    space = choose_space(
        landscape, metric, options.get("scale", "auto"), options.get("levels"), options.get("clip"),
        aspect=options.get("aspect", "equal"), path=trajectory,
    )  # fmt: skip
    if not np.isfinite(space.values).any():
        raise ValueError(
            f"plot_hero needs a finite value of {metric!r}, but the landscape has none; landscape.status (landscape "
            "info on the command line) says which points are pending or failed."
        )
    camera = camera or best_camera(landscape, metric, space.scale, space.frame)
    scene = Scene(space, colors, appearance.theme, trajectory, interpolation, (width, height))
    heading = options.get("title")
    title = full_title(landscape, printable) or "loss landscape" if heading is None else heading
    caption = caption_lines(scene)
    if labels and width < _LABELLED:
        raise wrong_value("labels", f"False for a picture that is narrower than {_LABELLED} pixels", True)
    strip = draw_strip(scene, title, caption, appearance, width) if labels else None
    rest = height - (0 if strip is None else len(strip))
    if rest < _SMALLEST:
        raise wrong_value(
            "labels", f"False for a picture of {width} x {height} pixels: there is no room for them", True
        )
    drawn = replace(scene, pixels=(width, rest)).render(camera)
    whole = drawn if strip is None else np.concatenate([drawn, strip])
    return Rendering(whole if behind is None else _before(whole, behind), title, tuple(caption), dots)


def _checked(look: Look) -> Look:
    options = check_look("plot_hero", look)
    if options.get("style", "screen") != "screen":
        raise ValueError("style must be left out for plot_hero, which has no text; labels=True writes a caption.")
    if options.get("topology", False) is not False:
        raise ValueError(
            "topology must be left out for plot_hero: plot_contour, plot_contour_lines, plot_heatmap and plot_profile "
            "mark minima."
        )
    if options.get("title") is not None:
        check_instance("title", options["title"], str, "a str or None")
    return options


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


def _color(background: object) -> tuple[float, ...]:
    from matplotlib.colors import is_color_like, to_rgb

    if not isinstance(background, str) or not is_color_like(background):
        raise wrong_value(
            "background", "one of matplotlib's colours, such as 'white' or '#14171c', or None", background
        )
    return to_rgb(background)


def _before(drawn: Any, behind: tuple[float, ...]) -> Any:
    """Returns a picture before a colour, which nothing is clear in front of any more."""
    from PIL import Image

    page = Image.new("RGBA", drawn.shape[1::-1], tuple(round(255 * part) for part in (*behind, 1.0)))
    page.alpha_composite(Image.fromarray(drawn))
    return np.asarray(cast(Any, page))
