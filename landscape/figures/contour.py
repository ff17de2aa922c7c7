"""A plane as contours: filled, or as lines alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.network_state import Array

from .above import draw_above, draw_cells, frame_points
from .appearance import readable
from .sheet import Kind, Look, Sheet, draw_picture

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes

    from ..surface import Landscape


def plot_contour(landscape: Landscape, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
    """Draws a plane's metric as filled contours, with the trajectory and the convergence point.

    Args:
        landscape: a plane; ``metric[j, i]`` is drawn at ``(x[i], y[j])``.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        **look: metric, levels, scale, colormap, trajectory, clip, theme, style; see ``Look``.

    Returns:
        The axes.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    return draw_picture(CONTOUR, landscape, ax, look)


def plot_contour_lines(landscape: Landscape, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
    """Draws a plane's metric as contour lines on the bare page; arguments and errors are ``plot_contour``'s."""
    return draw_picture(CONTOUR_LINES, landscape, ax, look)


def draw_filled(sheet: Sheet) -> None:
    """Fills a sheet with coloured bands, dark lines between some of them."""
    ax, landscape, scale = sheet.ax, sheet.landscape, sheet.scale
    assert landscape.y is not None
    frame_points(ax, landscape.x, landscape.y)
    lines = None
    if not scale.empty:
        shown = scale.drawn(sheet.measured)
        if not _has_lines(sheet) or not np.isfinite(shown).all():
            # Contours need four neighbours with values; beside a gap, each cell shows its own value.
            sheet.mappable = draw_cells(sheet, shown)
        if _has_lines(sheet):
            finite = np.ma.masked_invalid(shown)
            sheet.mappable = ax.contourf(
                landscape.x, landscape.y, finite, scale.bands(), norm=scale.norm(), cmap=sheet.colors,
                extend=scale.extend, zorder=1.2,
            )  # fmt: skip
            # Between antialiased bands a PDF viewer would show hairlines.
            sheet.mappable.set_edgecolor("face")
            sheet.mappable.set_linewidth(0.3)
            width = 0.6 * sheet.appearance.factor
            lines = _draw_lines(sheet, finite, colors="black", linewidths=width, alpha=0.5)
    draw_above(sheet, lines)


def draw_lines(sheet: Sheet) -> None:
    """Draws coloured lines on the bare page."""
    from matplotlib.cm import ScalarMappable

    landscape, scale = sheet.landscape, sheet.scale
    assert landscape.y is not None
    frame_points(sheet.ax, landscape.x, landscape.y)
    lines = None
    if not scale.empty and _has_lines(sheet):
        finite = np.ma.masked_invalid(scale.drawn(sheet.measured))
        colors = readable(sheet.colors, sheet.appearance.theme)
        width = 1.3 * sheet.appearance.factor
        lines = _draw_lines(sheet, finite, cmap=colors, norm=scale.norm(), linewidths=width)
        # Of lines alone matplotlib makes a bar that ends at the outermost ones, and none of a single line.
        sheet.mappable = ScalarMappable(scale.norm(), colors)
    draw_above(sheet, lines, on_page=True)


def _draw_lines(sheet: Sheet, finite: Array, **style: Any) -> Any:
    return sheet.ax.contour(sheet.landscape.x, sheet.landscape.y, finite, sheet.scale.levels, zorder=2, **style)


def _has_lines(sheet: Sheet) -> bool:
    there = np.isfinite(sheet.measured)
    if sheet.scale.flat or min(there.shape) < 2:
        return False
    return bool((there[:-1, :-1] & there[1:, 1:]).any())


CONTOUR = Kind("plot_contour", draw_filled)
CONTOUR_LINES = Kind("plot_contour_lines", draw_lines)
