"""A plane seen from above: as filled contours, as contour lines alone, or as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..drawing.appearance import SMALLEST_TYPE, readable
from ..drawing.look import Look
from ..drawing.missing import draw_coarse_cells, draw_interpolated, draw_missing, edges, mark_measured
from ..drawing.path import Ink, annotate, draw_path, halo, path_pixels
from ..drawing.placement import free
from ..drawing.sheet import Kind, Sheet, draw_picture
from ..grid.data import LandscapeData
from ..scales.landscape_scale import missing_kinds
from .minima import draw_minima, letter_pixels, minima_pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_contour(landscape: LandscapeData, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
    """Draws a plane's metric as filled contours, with runs' paths, networks and the origin.

    Args:
        landscape: a plane; ``metric[j, i]`` is drawn at ``(x[i], y[j])``.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        **look: metric, levels, scale, colormap, trajectory, clip, theme, style, aspect, title, size, topology; see
            ``Look``.

    Returns:
        The axes.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    return draw_picture(CONTOUR, landscape, ax, look)


def plot_contour_lines(landscape: LandscapeData, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
    """Draws a plane's metric as contour lines on the bare page; arguments and errors are ``plot_contour``'s."""
    return draw_picture(CONTOUR_LINES, landscape, ax, look)


def plot_heatmap(landscape: LandscapeData, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
    """Draws a plane's metric as a heat map: one cell for each point, nothing smoothed or interpolated between them.

    Arguments and errors are ``plot_contour``'s.
    """
    return draw_picture(HEATMAP, landscape, ax, look)


def draw_filled(sheet: Sheet) -> None:
    """Fills a sheet with coloured bands, dark lines between some of them."""
    scale, lines = sheet.scale, None
    _frame(sheet)
    if not scale.empty:
        shown = scale.drawn(sheet.measured)
        if not _has_lines(sheet) or not np.isfinite(shown).all():
            # Contours need four neighbours with values; beside a gap, each cell shows its own value.
            sheet.mappable = draw_cells(sheet, shown)
        if _has_lines(sheet):
            sheet.mappable = sheet.ax.contourf(
                *sheet.frame.mesh(*sheet.plane), np.ma.masked_invalid(shown), scale.bands(), norm=scale.norm(),
                cmap=sheet.colors, extend=scale.extend, zorder=1.2,
            )  # fmt: skip
            # Between antialiased bands a PDF viewer would show hairlines.
            sheet.mappable.set_edgecolor("face")
            sheet.mappable.set_linewidth(0.3)
            lines = _draw_lines(sheet, shown, colors="black", linewidths=0.6 * sheet.appearance.factor, alpha=0.5)
    draw_above(sheet, lines)


def draw_lines(sheet: Sheet) -> None:
    from matplotlib.cm import ScalarMappable

    scale, lines, colors = sheet.scale, None, readable(sheet.colors, sheet.appearance.theme)
    _frame(sheet)
    if not scale.empty and _has_lines(sheet):
        look = {"cmap": colors, "norm": scale.norm(), "linewidths": 1.3 * sheet.appearance.factor}
        lines = _draw_lines(sheet, scale.drawn(sheet.measured), **look)
    if lines is not None or np.isfinite(sheet.coarse).any():
        # Of lines alone matplotlib makes a bar that ends at the outermost ones, and none of a single line.
        sheet.mappable = ScalarMappable(scale.norm(), colors)
    draw_above(sheet, lines, on_page=True)


def draw_heatmap(sheet: Sheet) -> None:
    _frame(sheet, cells=True)
    if not sheet.scale.empty:
        sheet.mappable = draw_cells(sheet, sheet.scale.drawn(sheet.measured))
    draw_above(sheet, None)


def draw_above(sheet: Sheet, lines: Any, *, on_page: bool = False) -> None:
    """Draws all but the values: coarse cells, missing and interpolated points, the path, labels, the title."""
    ax, landscape, look = sheet.ax, sheet.landscape, sheet.appearance
    ink = Ink(look.ink, look.page, look.page, look.ink) if on_page else Ink()
    finish_path = None
    if sheet.trajectory:
        entries, sheet.dots, finish_path = draw_path(ax, landscape, sheet.frame.place, ink, look.factor, sheet.times)
        sheet.entries += entries
        sheet.note_own_values()
    draw_minima(sheet)
    x, y = sheet.plane
    corners = sheet.frame.mesh(edges(x), edges(y))
    draw_coarse_cells(sheet, corners, readable(sheet.colors, look.theme) if on_page else sheet.colors)
    kinds = missing_kinds(sheet.values, sheet.status, sheet.coarse)
    sheet.entries += draw_missing(ax, corners, sheet.border, kinds, look.missing)
    room = 72 / ax.figure.dpi * min(ax.bbox.width / len(x), ax.bbox.height / len(y))
    points = sheet.frame.mesh(x, y)
    size = float(np.clip(0.35 * room, 0.6, 3.5))
    marks = draw_interpolated(ax, points, sheet.values, sheet.status, size)
    sheet.entries += marks or mark_measured(sheet, points, size)
    sheet.write_labels()
    sheet.write_title()
    if sheet.scale.flat:
        sheet.write_flat_note()

    def write_numbers() -> None:
        occupied = (
            path_pixels(ax, landscape, sheet.frame.place) if sheet.trajectory or sheet.avoid_path else np.empty((0, 4))
        )
        arrows = np.empty((0, 4)) if finish_path is None else finish_path()
        occupied = np.vstack([occupied, minima_pixels(sheet), arrows])
        text = Ink(look.ink, look.page) if on_page else Ink("black", "white")
        rim = 0.45 if on_page else 0.2
        boxes = np.empty((0, 4)) if lines is None else _label_lines(sheet, lines, occupied, text, rim)
        if sheet.trajectory:
            blocked = np.vstack([boxes, arrows, letter_pixels(sheet)])
            annotate(ax, landscape, sheet.frame.place, blocked, ink, sheet.dots, look.number_size, look.factor)

    sheet.late.append(write_numbers)


def _frame(sheet: Sheet, *, cells: bool = False) -> None:
    """Ends the axes at the outermost points, or at the cells around them; an oblique plane gets its own border."""
    # A single row or column gets the width of its cell.
    x, y = (edges(axis) if cells or len(axis) == 1 else axis for axis in sheet.plane)
    across, up = sheet.frame.limits(x, y)
    sheet.ax.set_xlim(*across)
    sheet.ax.set_ylim(*up)
    sheet.frame.shape(sheet.ax)
    # The axes' size, by which numbers and labels are placed, follows their proportions.
    sheet.ax.apply_aspect()
    sheet.border = sheet.frame.outline(x, y)
    if sheet.frame.oblique:
        from matplotlib.patches import PathPatch

        edge = sheet.ax.spines["left"].get_edgecolor()
        sheet.ax.add_patch(PathPatch(sheet.border, facecolor="none", edgecolor=edge, linewidth=0.6, zorder=2.2))


def draw_cells(sheet: Sheet, shown: NDArray[Any]) -> Any:
    """Draws each value as the cell around its point; returns the mesh."""
    mesh = sheet.ax.pcolormesh(
        *sheet.frame.mesh(*map(edges, sheet.plane)), np.ma.masked_invalid(shown), norm=sheet.scale.norm(),
        cmap=sheet.colors, zorder=1, rasterized=True,
    )  # fmt: skip
    mesh.set_clip_path(sheet.border, sheet.ax.transData)
    return mesh


def _draw_lines(sheet: Sheet, shown: NDArray[Any], **style: Any) -> Any:
    finite = np.ma.masked_invalid(shown)
    return sheet.ax.contour(*sheet.frame.mesh(*sheet.plane), finite, sheet.scale.levels, zorder=2, **style)


def _has_lines(sheet: Sheet) -> bool:
    there = np.isfinite(sheet.measured)
    return not sheet.scale.flat and bool((there[:-1, :-1] & there[1:, 1:]).any())


def _label_lines(sheet: Sheet, lines: Any, occupied: NDArray[Any], ink: Ink, rim: float) -> NDArray[Any]:
    """Writes their values on the lines where there is room; returns the labels' boxes in pixels."""
    ax, size = sheet.ax, max(SMALLEST_TYPE, 0.94 * sheet.appearance.number_size)
    names = dict(zip(lines.levels.tolist(), sheet.scale.texts(), strict=True))
    texts = list(ax.clabel(lines, fmt=names, fontsize=size, inline=False, colors=ink.line, zorder=3))
    for text in texts:
        text.set_alpha(1.0)
        text.set_path_effects(halo(rim * size, ink.around))
    frame = np.array(ax.get_window_extent().extents)
    boxes = np.array([text.get_window_extent().extents for text in texts]).reshape(-1, 4)
    padded = boxes + 2 * ax.figure.dpi / 72 * np.array([-1, -1, 1, 1])
    inside = (boxes[:, :2] >= frame[:2]).all(axis=1) & (boxes[:, 2:] <= frame[2:]).all(axis=1)
    candidates = np.flatnonzero(inside)
    kept = candidates[free(padded[candidates], occupied)]
    for index in np.setdiff1d(np.arange(len(texts)), kept):
        texts[index].remove()
    return boxes[kept]


CONTOUR = Kind("plot_contour", draw_filled, minima=True)
CONTOUR_LINES = Kind("plot_contour_lines", draw_lines, minima=True)
HEATMAP = Kind("plot_heatmap", draw_heatmap, minima=True)
