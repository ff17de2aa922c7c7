"""Runs' paths, networks and the origin on a plane seen from above: lines, dots, arrowheads, names and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..roles import NETWORK
from .placement import HEAD, along, arrow_places, interpolated, most_telling, place_labels
from .texts import plain, unit_of
from .times import Marked, Times, marked, marked_text, numbered, path_times, pieces, strong_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..grid.checkpoints import CheckpointsData
    from ..grid.data import LandscapeData


Place = Callable[[Any, Any], tuple[NDArray[Any], NDArray[Any]]]
PATH = "#e5383b"
EDGE = "0.1"
"""Around every path, so that it stands out from light colours and, being lighter itself, from dark ones."""
START: dict[str, Any] = {"marker": "s", "color": "#4cc9f0", "markeredgecolor": EDGE, "markersize": 8}
END: dict[str, Any] = {
    "marker": "o", "color": "none", "markeredgecolor": "#ff4d6d", "markersize": 15, "markeredgewidth": 2,
}  # fmt: skip
STAR: dict[str, Any] = {"marker": "*", "color": "#ffd60a", "markeredgecolor": EDGE, "markersize": 13}
NETWORK_STYLE: dict[str, Any] = {"color": "white", "markeredgecolor": EDGE, "markersize": 8}
# Of networks that belong to no run; they differ in shape, so that grey paper tells them apart.
SHAPES = ("D", "^", "v", "P", "X", "h")
# Of further runs, which differ in stroke too.
RUN_COLORS = ("#ff9f1c", "#ff70c0", "#7bf1d6", "#ffe45e")
RUN_STROKES = ("-", "--", "-.", ":")
WIDTH, RIM_WIDTH, DOT = 2.2, 3.8, 3.4
"""Of a line in the colours of time, of its rim and of a dot on it, in points."""
# Of dashes of such a line, in its widths; the first run's line is whole.
_DASHES: tuple[tuple[float, ...], ...] = ((), (4.0, 2.0), (6.0, 1.6, 1.4, 1.6), (1.4, 1.6))
# An arrowhead that points to the right: its tip, its wings, and the notch behind.
_ARROWHEAD = ((0.5, 0.0), (-0.5, 0.42), (-0.22, 0.0), (-0.5, -0.42), (0.5, 0.0))


def halo(width: float, color: str = EDGE) -> list[Any]:
    """Returns the effect that keeps a light line or text readable on any colour."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=width, foreground=color)]


def sized(style: dict[str, Any], factor: float) -> dict[str, Any]:
    sizes: dict[str, Any] = {name: factor * style[name] for name in ("markersize", "markeredgewidth") if name in style}
    return {"markeredgewidth": factor, **style, **sizes}


@dataclass(frozen=True)
class Ink:
    """Colours of a path and its numbers (``line``), of the rim ``around`` them, and of checkpoints' faces and edges."""

    line: str = "white"
    around: str = EDGE
    face: str = "white"
    edge: str = EDGE


def draw_path(
    ax: Axes, landscape: LandscapeData, place: Place, ink: Ink, factor: float = 1.0, times: Times | None = None
) -> tuple[list[Any], list[Marked], Callable[[], NDArray[Any]]]:
    """Draws each run's path with its start and its end, networks of no run, and the origin as a star."""
    entries: list[Any] = []
    late: list[Callable[[], NDArray[Any]]] = []
    dotted: list[Marked] = []
    found, origin = landscape.checkpoints, landscape.origin
    if found is not None and found.y is not None:
        paths = found.paths
        for index, rows in enumerate(paths):
            x, y = place(found.x[rows], found.y[rows])
            outside = int((~_inside(ax, x, y)).sum())
            label = run_label(landscape, rows) + (f" ({outside} of {len(x)} outside)" if outside else "")
            if times is None or len(rows) < 2:
                shown, finish = _draw_run(ax, x, y, index, label, ink, factor)
            else:
                shown, dots, finish = _draw_timed_run(ax, x, y, found.number[rows], index, label, times, factor)
                dotted.append(dots)
            entries += shown
            late.append(finish)
        for at, style, name in ((0, START, "start"), (-1, END, "end")):
            places = [rows[at] for rows in paths if len(rows) > 1]
            if places:
                text = name + end_number(landscape, places)
                x, y = place(found.x[places], found.y[places])
                entries += ax.plot(x, y, linestyle="none", label=text, zorder=6, **sized(style, factor))
        for row, style in network_marks(landscape):
            x, y = place(found.x[[row]], found.y[[row]])
            label = plain(found.name[row], 32) + ("" if _inside(ax, x, y).all() else " (outside)")
            entries += ax.plot(x, y, linestyle="none", label=label, zorder=6, **sized(style, factor))
    if origin.y is not None:
        star, label = sized(STAR, factor), origin_label(landscape)
        entries += ax.plot(*place([origin.x], [origin.y]), linestyle="none", label=label, zorder=5, **star)
    # Strokes and arrowheads need the axes in their place; boxes of arrowheads (left, bottom, right, top) are in pixels.
    return entries, dotted, lambda: np.vstack([np.empty((0, 4)), *(finish() for finish in late)])


def run_color(index: int, first: str = PATH) -> str:
    return first if index == 0 else RUN_COLORS[(index - 1) % len(RUN_COLORS)]


def run_colors(landscape: LandscapeData, count: int) -> list[str]:
    """Returns a colour for each run, as in the legends of pictures in which the colours of a path are its time."""
    timed = count > 1 and path_times([landscape]) is not None
    return [strong_color(index) if timed else run_color(index) for index in range(count)]


def run_label(landscape: LandscapeData, rows: NDArray[Any]) -> str:
    """Returns what a run's path is called; a single checkpoint is no path."""
    found = landscape.checkpoints
    assert found is not None
    name = plain(found.run_name(rows[0]), 32)
    if len(rows) > 1:
        return name or "trajectory"
    role = found.role(rows[0]) + (f" of {name}" if name else "")
    return role + end_number(landscape, [rows[0]])


def end_number(landscape: LandscapeData, rows: Sequence[int]) -> str:
    """Returns the number of the checkpoints in brackets, where all have the same."""
    found = landscape.checkpoints
    assert found is not None
    numbers = {int(number) for number in found.number[list(rows)]}
    return f" ({plain(unit_of(landscape))} {numbers.pop()})" if len(numbers) == 1 else ""


def network_marks(landscape: LandscapeData) -> list[tuple[int, dict[str, Any]]]:
    """Returns the rows of networks of no run with their marks; the origin has its star."""
    found, origin = landscape.checkpoints, landscape.origin
    if found is None:
        return []
    rows = [row for row in found.networks.tolist() if not (origin.name == found.name[row] and is_origin(found, row))]
    return [(row, {**NETWORK_STYLE, "marker": SHAPES[index % len(SHAPES)]}) for index, row in enumerate(rows)]


def is_origin(found: CheckpointsData, row: int) -> bool:
    return bool(found.x[row] == 0 and (found.y is None or found.y[row] == 0))


def origin_label(landscape: LandscapeData) -> str:
    return plain(landscape.origin.label(unit_of(landscape)), 72)


def _draw_run(
    ax: Axes, x: NDArray[Any], y: NDArray[Any], index: int, label: str, ink: Ink, factor: float
) -> tuple[list[Any], Callable[[], NDArray[Any]]]:
    """Draws a run's path in one colour; returns its legend's entries, and what draws its arrowheads later."""
    from matplotlib.colors import to_rgb

    # The first run has the ink's own colours.
    ink = replace(ink, line=run_color(index, ink.line), face=run_color(index, ink.face))
    entries = ax.plot(
        x, y, color=ink.line, linewidth=1.4 * factor, linestyle=RUN_STROKES[index % len(RUN_STROKES)], marker="o",
        markersize=3.5 * factor, label=label, zorder=4, markeredgewidth=0.7 * factor, markerfacecolor=ink.face,
        markeredgecolor=ink.edge, path_effects=halo(2.8 * factor, ink.around),
    )  # fmt: skip
    colors = np.tile(to_rgb(ink.line), (len(x), 1))
    return entries, lambda: _draw_arrows(ax, x, y, colors, factor)


def _draw_timed_run(
    ax: Axes, x: NDArray[Any], y: NDArray[Any], numbers: NDArray[Any], run: int, label: str, times: Times, factor: float
) -> tuple[list[Any], Marked, Callable[[], NDArray[Any]]]:
    """Draws a run's path in the colours of time; returns its legend's entry, its dots, and what draws the rest."""
    from matplotlib.collections import LineCollection

    places, dashes = np.column_stack([x, y]), _DASHES[run % len(_DASHES)]
    round_ends: dict[str, Any] = {"solid_capstyle": "round", "solid_joinstyle": "round"}
    ax.plot(x, y, color=EDGE, linewidth=RIM_WIDTH * factor, zorder=4, label=label, **round_ends)
    found = list(pieces(numbers))
    line = LineCollection(
        [places[piece] for piece, _ in found], colors=times.colors(run, [time for _, time in found]),
        linewidths=WIDTH * factor, zorder=4.1, capstyle="butt" if dashes else "round", joinstyle="round",
    )  # fmt: skip
    # The limits of the axes are those of the plane, wherever the path runs.
    ax.add_collection(line, autolim=False)
    dots = marked(_in_points(ax, places), numbers, DOT * factor)
    ax.plot(x[dots.rows], y[dots.rows], zorder=4.2, label="_dots", **dot_style(factor))

    def finish() -> NDArray[Any]:
        if dashes:
            line.set_linestyle(_strokes(ax, line, dashes))
        return _draw_arrows(ax, x, y, times.colors(run, numbers), factor)

    return [timed_handle(label, run, factor)], dots, finish


def dot_style(factor: float) -> dict[str, Any]:
    return {
        "linestyle": "none", "marker": "o", "color": "white", "markeredgecolor": EDGE, "markersize": DOT * factor,
        "markeredgewidth": 0.6 * factor,
    }  # fmt: skip


def timed_handle(label: str, run: int, factor: float) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import Normal

    rim = [*halo(RIM_WIDTH * factor), Normal()]
    dashes = _DASHES[run % len(_DASHES)]
    handle = Line2D([], [], label=label, color=strong_color(run), linewidth=WIDTH * factor, path_effects=rim)
    handle.set_linestyle((0, dashes) if dashes else "-")
    return handle


def dots_handle(each: Sequence[Marked], factor: float) -> list[Any]:
    """Returns the legend's entry that says which checkpoints have dots; none where all have."""
    from matplotlib.lines import Line2D

    text = marked_text(each)
    return [Line2D([], [], label=text, **dot_style(factor))] if text else []


def _strokes(ax: Axes, line: Any, dashes: tuple[float, ...]) -> list[Any]:
    """Returns how the pieces of a dashed line are drawn, so that dashes run on from piece to piece."""
    come, width, styles = 0.0, float(line.get_linewidths()[0]), []
    for piece in line.get_segments():
        styles.append((come % sum(dashes), dashes))
        lengths = np.hypot(*np.diff(_in_points(ax, piece), axis=0).T)
        come += float(lengths[np.isfinite(lengths)].sum()) / width
    return styles


def _draw_arrows(ax: Axes, x: NDArray[Any], y: NDArray[Any], colors: NDArray[Any], factor: float) -> NDArray[Any]:
    """Draws arrowheads in axes that are in their place; returns left, bottom, right, top in pixels, shape (k, 4)."""
    places, head = np.column_stack([x, y]), HEAD * max(factor, 0.75)
    left, bottom, right, top = np.array(ax.get_window_extent().extents) * 72 / ax.figure.dpi
    boxes = []
    for place, across, up, angle in arrow_places(_in_points(ax, places), head):
        if not (left <= across <= right and bottom <= up <= top):
            continue
        style = arrow_style(angle, interpolated(colors, place), head)
        ax.plot(*interpolated(places, place)[:, None], label="_arrow", zorder=4.5, **style)
        boxes.append([across - head / 2, up - head / 2, across + head / 2, up + head / 2])
    return np.array(boxes).reshape(-1, 4) * ax.figure.dpi / 72


def arrow_style(angle: float, color: Any, head: float = HEAD) -> dict[str, Any]:
    """Returns the mark of an arrowhead for matplotlib's ``Line2D``, given its angle in radians and its length."""
    from matplotlib.path import Path

    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    # Matplotlib scales a mark so that its largest coordinate is half its size.
    turned = np.array(_ARROWHEAD) @ turn
    size = 2 * head * float(np.abs(turned).max())
    return {
        "linestyle": "none", "marker": Path(turned, closed=True), "markersize": size, "markerfacecolor": color,
        "markeredgecolor": EDGE, "markeredgewidth": 0.08 * head,
    }  # fmt: skip


def annotate(
    ax: Axes,
    landscape: LandscapeData,
    place: Place,
    occupied: NDArray[Any],
    ink: Ink,
    dots: Sequence[Marked],
    size: float = 8.0,
    factor: float = 1.0,
) -> None:
    """Writes networks' names and checkpoints' numbers where fixed axes have room; ``occupied`` boxes are in pixels."""
    found, origin = landscape.checkpoints, landscape.origin
    # Row 0 is the origin.
    places = np.column_stack(place([origin.x], [origin.y or 0.0]))
    texts = {0: origin.name} if origin.role == NETWORK else {}
    networks = [row for row, _ in network_marks(landscape)]
    paths: list[NDArray[Any]] = []
    order = list(texts)
    if found is not None and found.y is not None:
        places = np.vstack([places, np.column_stack(place(found.x, found.y))])
        paths = found.paths
        texts |= {row + 1: found.name[row] for row in networks}
        order = list(texts)
        # Numbers stand at dots, which only paths in the colours of time have; on others every checkpoint is marked.
        timed = iter(dots)
        for rows in paths:
            marks = [*next(timed).rows, 0, len(rows) - 1] if dots and len(rows) > 1 else None
            kept = rows[numbered(found.number[rows], marks)]
            kept = kept[_inside(ax, *places[kept + 1].T)]
            chosen = [int(kept[at]) + 1 for at in most_telling(len(kept))]
            texts |= {at: str(found.number[at - 1]) for at in chosen}
            order += chosen
    order = [at for at in order if _inside(ax, *places[at : at + 1].T).all()]
    if not order:
        return
    scale = 72 / ax.figure.dpi
    points = np.asarray(ax.transData.transform(places)) * scale
    words = {at: plain(text, 24) for at, text in texts.items()}
    sizes = np.array([[0.62 * size * len(words.get(at, "")) + 2, size + 2.0] for at in range(len(points))])
    frame = np.array(ax.get_window_extent().extents) * scale
    styles = [(0, STAR), *((row + 1, NETWORK_STYLE) for row in networks)]
    styles += [(int(rows[end]) + 1, style) for rows in paths for end, style in ((-1, END), (0, START))]
    halves = [(points[at], style["markersize"] * factor / 2) for at, style in styles]
    boxes = [[*(mark - half), *(mark + half)] for mark, half in halves]
    blocked = np.vstack([np.array(occupied).reshape(-1, 4) * scale, boxes])
    lines = [along(points[rows + 1], step=1.5) for rows in paths]
    clear = np.vstack([points[[0]], *lines, *(points[[row + 1]] for row in networks)])
    # Names stand clear of their marks, which are larger than the dots of a path.
    gap = (6.0 if not networks and origin.role != NETWORK else 9.0) * factor
    spots = place_labels(points, sizes, order, frame, blocked, gap=gap, clear=clear)
    for at, centre in spots.items():
        ax.annotate(
            words[at], places[at], xytext=np.array(centre) - points[at], textcoords="offset points",
            ha="center", va="center", fontsize=size, color=ink.line, zorder=7,
            path_effects=halo(0.25 * size, ink.around),
        )  # fmt: skip


def path_pixels(ax: Axes, landscape: LandscapeData, place: Place) -> NDArray[Any]:
    """Returns boxes in pixels around the line of each path, its checkpoints, networks and the origin."""
    pieces = [np.column_stack(place([landscape.origin.x], [landscape.origin.y or 0.0]))]
    found = landscape.checkpoints
    if found is not None and found.y is not None:
        places = np.column_stack(place(found.x, found.y))
        pieces += [places[rows] for rows in (*found.paths, *found.networks[:, None])]
    half = 4 * ax.figure.dpi / 72
    boxes = []
    for piece in pieces:
        pixels = np.asarray(ax.transData.transform(piece))
        finite = pixels[np.isfinite(pixels).all(axis=1)]
        if len(finite) > 1:
            steps = np.linspace(0, 1, 16)[:, None, None]
            finite = (finite[:-1] + steps * (finite[1:] - finite[:-1])).reshape(-1, 2)
        boxes.append(np.hstack([finite - half, finite + half]))
    return np.vstack(boxes)


def _inside(ax: Axes, x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    return np.asarray((x >= left) & (x <= right) & (y >= bottom) & (y <= top))


def _in_points(ax: Axes, places: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(ax.transData.transform(places), np.float64) * 72 / ax.figure.dpi
