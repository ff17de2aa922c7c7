"""A plane seen from above: what contours, lines, heat maps and differences have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.network_state import Array

from .missing import draw_interpolated, draw_missing, edges
from .path import Ink, annotate, draw_path, free, halo, path_pixels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .sheet import Sheet


def draw_above(sheet: Sheet, lines: Any, *, on_page: bool = False) -> None:
    """Draws all but the values: missing and interpolated points, the path, labels, the title.

    Args:
        sheet: with the values drawn.
        lines: contour lines whose values are written on them, or None.
        on_page: whether the path runs over the bare page, not over colours.
    """
    ax, landscape, look = sheet.ax, sheet.landscape, sheet.appearance
    assert landscape.y is not None
    x, y = landscape.x, landscape.y
    ink = Ink(look.ink, look.page, look.page, look.ink) if on_page else Ink()
    if sheet.trajectory:
        sheet.entries += draw_path(ax, landscape, ink, look.factor)
    sheet.entries += draw_missing(ax, x, y, sheet.values, sheet.status, look.missing)
    room = 72 / ax.figure.dpi * min(ax.bbox.width / len(x), ax.bbox.height / len(y))
    sheet.entries += draw_interpolated(ax, x, y, sheet.values, sheet.status, float(np.clip(0.35 * room, 0.6, 3.5)))
    sheet.write_labels()
    sheet.write_title()
    if sheet.scale.flat:
        sheet.write_flat_note()

    def write_numbers() -> None:
        taken = path_pixels(ax, landscape) if sheet.trajectory or sheet.avoid_path else np.empty((0, 4))
        text = Ink(look.ink, look.page) if on_page else Ink("black", "white")
        rim = 0.45 if on_page else 0.2
        boxes = np.empty((0, 4)) if lines is None else _label_lines(sheet, lines, taken, text, rim)
        if sheet.trajectory and landscape.trajectory is not None:
            annotate(ax, landscape.trajectory, boxes, ink, look.number_size, look.factor)

    sheet.late.append(write_numbers)


def frame_points(ax: Axes, x: Array, y: Array) -> None:
    """Ends the axes at the outermost points; a single row or column gets the width of its cell."""
    ax.set_xlim(*(x[[0, -1]] if len(x) > 1 else edges(x)))
    ax.set_ylim(*(y[[0, -1]] if len(y) > 1 else edges(y)))


def draw_cells(sheet: Sheet, shown: Array) -> Any:
    """Draws each value as the cell around its point; returns the mesh."""
    landscape = sheet.landscape
    assert landscape.y is not None
    return sheet.ax.pcolormesh(
        edges(landscape.x), edges(landscape.y), np.ma.masked_invalid(shown), norm=sheet.scale.norm(),
        cmap=sheet.colors, zorder=1, rasterized=True,
    )  # fmt: skip


def _label_lines(sheet: Sheet, lines: Any, taken: Array, ink: Ink, rim: float) -> Array:
    """Writes their values on the lines where there is room; returns the labels' boxes in pixels."""
    ax, size = sheet.ax, 0.94 * sheet.appearance.number_size
    names = dict(zip(lines.levels.tolist(), sheet.scale.texts(), strict=True))
    texts = list(ax.clabel(lines, fmt=names, fontsize=size, inline=False, colors=ink.line, zorder=3))
    for text in texts:
        text.set_alpha(1.0)
        text.set_path_effects(halo(rim * size, ink.around))
    frame = np.array(ax.get_window_extent().extents)
    boxes = np.array([text.get_window_extent().extents for text in texts]).reshape(-1, 4)
    margin = 2 * ax.figure.dpi / 72
    padded = boxes + np.array([-margin, -margin, margin, margin])
    inside = (boxes[:, :2] >= frame[:2]).all(axis=1) & (boxes[:, 2:] <= frame[2:]).all(axis=1)
    candidates = np.flatnonzero(inside)
    kept = set(candidates[free(padded[candidates], taken)].tolist())
    for index, text in enumerate(texts):
        if index not in kept:
            text.remove()
    return boxes[sorted(kept)]
