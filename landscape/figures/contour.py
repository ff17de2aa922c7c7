"""A plane seen from above: as filled contours, as contour lines alone, or as a heat map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..drawing import path as marks
from ..drawing.appearance import SMALLEST_TYPE, readable
from ..drawing.look import Axes, Look
from ..drawing.missing import draw_cells, draw_coarse_cells, draw_missing, edges, mark_points
from ..drawing.path import Times, marked, numbered, pieces
from ..drawing.placement import HEAD, along, arrow_places, free, interpolated, most_telling, place_labels
from ..drawing.sheet import Kind, Sheet, draw_picture
from ..drawing.texts import plain
from ..grid.data import LandscapeData
from ..roles import NETWORK
from .minima import draw_minima, letter_pixels, minima_pixels


@dataclass(frozen=True)
class Ink:
    """Colours of a path and its numbers (``line``), of the rim ``around`` them, and of checkpoints' faces and edges."""

    line: str = "white"
    around: str = marks.EDGE
    face: str = "white"
    edge: str = marks.EDGE


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
    scale, lines = sheet.scale, None
    _frame(sheet)
    if not scale.empty:
        shown = scale.drawn(sheet.measured)
        if not _has_lines(sheet) or not np.isfinite(shown).all():
            # Contours need four neighbours with values; beside a gap, each cell shows its own value.
            sheet.mappable = draw_cells(sheet, sheet.measured, sheet.colors)
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
        sheet.mappable = draw_cells(sheet, sheet.measured, sheet.colors)
    draw_above(sheet, None)


def draw_above(sheet: Sheet, lines: Any, *, on_page: bool = False) -> None:
    """Draws all but the values: coarse cells, missing and interpolated points, the path, labels, the title."""
    look = sheet.appearance
    ink = Ink(look.ink, look.page, look.page, look.ink) if on_page else Ink()
    finish_path = _draw_path(sheet, ink) if sheet.trajectory else lambda: np.empty((0, 4))
    draw_minima(sheet)
    draw_coarse_cells(sheet, readable(sheet.colors, look.theme) if on_page else sheet.colors)
    draw_missing(sheet)
    mark_points(sheet)
    sheet.write_labels()
    sheet.write_title()
    if sheet.scale.flat:
        sheet.write_flat_note()

    def write_numbers() -> None:
        path = _path_pixels(sheet) if sheet.trajectory or sheet.avoid_path else np.empty((0, 4))
        arrows = finish_path()
        occupied = np.vstack([path, minima_pixels(sheet), arrows])
        text = Ink(look.ink, look.page) if on_page else Ink("black", "white")
        rim = 0.45 if on_page else 0.2
        boxes = np.empty((0, 4)) if lines is None else _label_lines(sheet, lines, occupied, text, rim)
        if sheet.trajectory:
            _annotate(sheet, np.vstack([boxes, arrows, letter_pixels(sheet)]), ink)

    sheet.late.append(write_numbers)


def _frame(sheet: Sheet, *, cells: bool = False) -> None:
    """Ends the axes at the outermost points, or at the cells around them; an oblique plane gets its own border."""
    # A single row or column gets the width of its cell.
    x, y = (edges(axis) if cells or len(axis) == 1 else axis for axis in sheet.plane)
    across, up = sheet.frame.limits(x, y)
    sheet.ax.set_xlim(*across)
    sheet.ax.set_ylim(*up)
    if sheet.frame.geometry is None:
        sheet.ax.set_box_aspect(1)
    else:
        sheet.ax.set_aspect("equal", adjustable="box")
    # The axes' size, by which numbers and labels are placed, follows their proportions.
    sheet.ax.apply_aspect()
    sheet.border = sheet.frame.outline(x, y)
    if sheet.frame.oblique:
        from matplotlib.patches import PathPatch

        edge = sheet.ax.spines["left"].get_edgecolor()
        sheet.ax.add_patch(PathPatch(sheet.border, facecolor="none", edgecolor=edge, linewidth=0.6, zorder=2.2))


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
        text.set_path_effects(marks.halo(rim * size, ink.around))
    frame = np.array(ax.get_window_extent().extents)
    boxes = np.array([text.get_window_extent().extents for text in texts]).reshape(-1, 4)
    padded = boxes + 2 * ax.figure.dpi / 72 * np.array([-1, -1, 1, 1])
    inside = (boxes[:, :2] >= frame[:2]).all(axis=1) & (boxes[:, 2:] <= frame[2:]).all(axis=1)
    candidates = np.flatnonzero(inside)
    kept = candidates[free(padded[candidates], occupied)]
    for index in np.setdiff1d(np.arange(len(texts)), kept):
        texts[index].remove()
    return boxes[kept]


def _draw_path(sheet: Sheet, ink: Ink) -> Callable[[], NDArray[Any]]:
    """Draws each run's path with its start and its end, networks of no run, and the origin as a star."""
    landscape, place = sheet.landscape, sheet.frame.place
    found, origin = landscape.checkpoints, landscape.origin
    late: list[Callable[[], NDArray[Any]]] = []

    if found is not None and found.y is not None:
        for index, rows in sheet.paths:
            places = np.column_stack(place(found.x[rows], found.y[rows]))
            beyond = int((~_inside(sheet, places)).sum())
            label = marks.run_label(landscape, rows) + (f" ({beyond} of {len(rows)} outside)" if beyond else "")
            if sheet.times is None or len(rows) < 2:
                late.append(_draw_run(sheet, places, index, label, ink))
            else:
                late.append(_draw_timed_run(sheet, sheet.times, places, found.number[rows], index, label))
        for at, style, name in ((0, marks.START, "start"), (-1, marks.END, "end")):
            if ends := [rows[at] for rows in found.paths if len(rows) > 1]:
                label = name + marks.end_number(landscape, ends)
                sheet.mark(*place(found.x[ends], found.y[ends]), label, style, 6)
        for row, style in marks.network_marks(landscape):
            x, y = place(found.x[[row]], found.y[[row]])
            outside = "" if _inside(sheet, np.column_stack([x, y])).all() else " (outside)"
            sheet.mark(x, y, plain(found.name[row], 32) + outside, style, 6)
    if origin.y is not None:
        sheet.mark(*place([origin.x], [origin.y]), marks.origin_label(landscape), marks.STAR, 5)
    sheet.note_own_values()
    # Strokes and arrowheads need the axes in their place; boxes of arrowheads (left, bottom, right, top) are in pixels.
    return lambda: np.vstack([np.empty((0, 4)), *(finish() for finish in late)])


def _draw_run(sheet: Sheet, places: NDArray[Any], index: int, label: str, ink: Ink) -> Callable[[], NDArray[Any]]:
    """Draws a run's path in one colour; returns what draws its arrowheads later."""
    from matplotlib.colors import to_rgb

    factor = sheet.appearance.factor
    # The first run has the ink's own colours.
    line, face = marks.run_color(index, ink.line), marks.run_color(index, ink.face)
    sheet.entries += sheet.ax.plot(
        *places.T, color=line, linewidth=1.4 * factor, linestyle=marks.run_stroke(index), marker="o",
        markersize=3.5 * factor, label=label, zorder=4, markeredgewidth=0.7 * factor, markerfacecolor=face,
        markeredgecolor=ink.edge, path_effects=marks.halo(2.8 * factor, ink.around),
    )  # fmt: skip
    return lambda: _draw_arrows(sheet, places, np.tile(to_rgb(line), (len(places), 1)))


def _draw_timed_run(
    sheet: Sheet, times: Times, places: NDArray[Any], numbers: NDArray[Any], run: int, label: str
) -> Callable[[], NDArray[Any]]:
    """Draws a run's path in the colours of time; returns what draws the rest."""
    from matplotlib.collections import LineCollection

    ax, factor, dashes = sheet.ax, sheet.appearance.factor, marks.DASHES[run % len(marks.DASHES)]
    round_ends: dict[str, Any] = {"solid_capstyle": "round", "solid_joinstyle": "round"}
    ax.plot(*places.T, color=marks.EDGE, linewidth=marks.RIM_WIDTH * factor, zorder=4, label=label, **round_ends)
    found = list(pieces(numbers))
    line: Any = LineCollection(
        [places[piece] for piece, _ in found], colors=times.colors(run, [time for _, time in found]),
        linewidths=marks.WIDTH * factor, zorder=4.1, capstyle="butt" if dashes else "round", joinstyle="round",
    )  # fmt: skip
    # The limits of the axes are those of the plane, wherever the path runs.
    ax.add_collection(line, autolim=False)
    dots = marked(marks.in_points(ax, places), numbers, marks.DOT * factor)
    ax.plot(*places[dots.rows].T, zorder=4.2, label="_dots", **marks.dot_style(factor))
    sheet.dots.append(dots)
    sheet.entries.append(marks.timed_handle(label, run, factor))

    def finish() -> NDArray[Any]:
        if dashes:
            # Dashes run on from piece to piece.
            come, styles = 0.0, []
            for piece in line.get_segments():
                styles.append((come % sum(dashes), dashes))
                lengths = np.hypot(*np.diff(marks.in_points(ax, piece), axis=0).T)
                come += float(lengths[np.isfinite(lengths)].sum()) / float(line.get_linewidths()[0])
            line.set_linestyle(styles)
        return _draw_arrows(sheet, places, times.colors(run, numbers))

    return finish


def _draw_arrows(sheet: Sheet, places: NDArray[Any], colors: NDArray[Any]) -> NDArray[Any]:
    """Draws arrowheads in axes that are in their place; returns left, bottom, right, top in pixels, shape (k, 4)."""
    ax, head = sheet.ax, HEAD * max(sheet.appearance.factor, 0.75)
    left, bottom, right, top = np.array(ax.get_window_extent().extents) * 72 / ax.figure.dpi
    boxes = []
    for place, across, up, angle in arrow_places(marks.in_points(ax, places), head):
        if left <= across <= right and bottom <= up <= top:
            style = marks.arrow_style(angle, interpolated(colors, place), head)
            ax.plot(*interpolated(places, place)[:, None], label="_arrow", zorder=4.5, **style)
            boxes.append([across - head / 2, up - head / 2, across + head / 2, up + head / 2])
    return np.array(boxes).reshape(-1, 4) * ax.figure.dpi / 72


def _annotate(sheet: Sheet, occupied: NDArray[Any], ink: Ink) -> None:
    """Writes networks' names and checkpoints' numbers where fixed axes have room; ``occupied`` boxes are in pixels."""
    ax, landscape, size, factor = sheet.ax, sheet.landscape, sheet.appearance.number_size, sheet.appearance.factor
    found, origin, place = landscape.checkpoints, landscape.origin, sheet.frame.place
    # Row 0 is the origin.
    places = np.column_stack(place([origin.x], [origin.y or 0.0]))
    texts = {0: origin.name} if origin.role == NETWORK else {}
    networks = [row for row, _ in marks.network_marks(landscape)]
    paths: list[NDArray[Any]] = []
    if found is not None and found.y is not None:
        places = np.vstack([places, np.column_stack(place(found.x, found.y))])
        paths = found.paths
        texts |= {row + 1: found.name[row] for row in networks}
        # Numbers stand at dots, which only paths in the colours of time have; on others every checkpoint is marked.
        timed = iter(sheet.dots)
        for rows in paths:
            dotted = [*next(timed).rows, 0, len(rows) - 1] if sheet.dots and len(rows) > 1 else None
            kept = rows[numbered(found.number[rows], dotted)]
            kept = kept[_inside(sheet, places[kept + 1])]
            texts |= {int(kept[at]) + 1: str(found.number[kept[at]]) for at in most_telling(len(kept))}
    order = [at for at in texts if _inside(sheet, places[at])]
    if not order:
        return
    scale = 72 / ax.figure.dpi
    points = np.asarray(ax.transData.transform(places)) * scale
    words = {at: plain(text, 24) for at, text in texts.items()}
    sizes = np.array([[0.62 * size * len(words.get(at, "")) + 2, size + 2.0] for at in range(len(points))])
    frame = np.array(ax.get_window_extent().extents) * scale
    styles = [(0, marks.STAR), *((row + 1, marks.NETWORK_STYLE) for row in networks)]
    styles += [(int(rows[end]) + 1, style) for rows in paths for end, style in ((-1, marks.END), (0, marks.START))]
    halves = [(points[at], style["markersize"] * factor / 2) for at, style in styles]
    boxes = [[*(mark - half), *(mark + half)] for mark, half in halves]
    blocked = np.vstack([np.array(occupied).reshape(-1, 4) * scale, boxes])
    lines = [along(points[rows + 1], step=1.5) for rows in paths]
    clear = np.vstack([points[[0]], *lines, *(points[[row + 1]] for row in networks)])
    # Names stand clear of their marks, which are larger than the dots of a path.
    gap = (6.0 if not networks and origin.role != NETWORK else 9.0) * factor
    spots = place_labels(points, sizes, order, frame, blocked, gap=gap, clear=clear)
    style = {"color": ink.line, "zorder": 7, "path_effects": marks.halo(0.25 * size, ink.around)}
    for at, centre in spots.items():
        marks.write_beside(ax, words[at], places[at], np.array(centre) - points[at], size, **style)


def _path_pixels(sheet: Sheet) -> NDArray[Any]:
    """Returns boxes in pixels around the line of each path, its checkpoints, networks and the origin."""
    found, origin, place = sheet.landscape.checkpoints, sheet.landscape.origin, sheet.frame.place
    pieces = [np.column_stack(place([origin.x], [origin.y or 0.0]))]
    if found is not None and found.y is not None:
        places = np.column_stack(place(found.x, found.y))
        pieces += [places[rows] for rows in (*found.paths, *found.networks[:, None])]
    half = 4 * sheet.ax.figure.dpi / 72
    boxes = []
    for piece in pieces:
        pixels = np.asarray(sheet.ax.transData.transform(piece))
        finite = pixels[np.isfinite(pixels).all(axis=1)]
        if len(finite) > 1:
            steps = np.linspace(0, 1, 16)[:, None, None]
            finite = (finite[:-1] + steps * (finite[1:] - finite[:-1])).reshape(-1, 2)
        boxes.append(np.hstack([finite - half, finite + half]))
    return np.vstack(boxes)


def _inside(sheet: Sheet, places: NDArray[Any]) -> NDArray[np.bool_]:
    (left, right), (bottom, top) = sheet.ax.get_xlim(), sheet.ax.get_ylim()
    return np.asarray(((places >= (left, bottom)) & (places <= (right, top))).all(axis=-1))


CONTOUR = Kind("plot_contour", draw_filled, minima=True)
CONTOUR_LINES = Kind("plot_contour_lines", draw_lines, minima=True)
HEATMAP = Kind("plot_heatmap", draw_heatmap, minima=True)
