"""Runs' paths, networks and the origin on a contour plot, and which labels beside them have room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..roles import NETWORK
from .labels import along, most_telling, place_labels
from .texts import plain, unit_of
from .timed_path import RIM, dash, draw_arrows, draw_timed_run, timed_handle
from .times import Marked, Times, numbered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..grid.checkpoints import CheckpointsData
    from ..grid.data import LandscapeData


Place = Callable[[Any, Any], tuple[NDArray[Any], NDArray[Any]]]
PATH = "#e5383b"
EDGE = RIM
START: dict[str, Any] = {"marker": "s", "color": "#4cc9f0", "markeredgecolor": EDGE, "markersize": 8}
END: dict[str, Any] = {
    "marker": "o",
    "color": "none",
    "markeredgecolor": "#ff4d6d",
    "markersize": 15,
    "markeredgewidth": 2,
}
STAR: dict[str, Any] = {"marker": "*", "color": "#ffd60a", "markeredgecolor": EDGE, "markersize": 13}
NETWORK_STYLE: dict[str, Any] = {"color": "white", "markeredgecolor": EDGE, "markersize": 8}
# Of networks that belong to no run; they differ in shape, so that grey paper tells them apart.
SHAPES = ("D", "^", "v", "P", "X", "h")
# Of further runs, which differ in stroke too.
RUN_COLORS = ("#ff9f1c", "#ff70c0", "#7bf1d6", "#ffe45e")
RUN_STROKES = ("-", "--", "-.", ":")


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
    marked: list[Marked] = []
    found, origin = landscape.checkpoints, landscape.origin
    if found is not None and found.y is not None:
        paths = found.paths
        for index, rows in enumerate(paths):
            shown, dots, finish = _draw_run(ax, landscape, place, rows, index, ink, factor, times)
            entries += shown
            marked += dots
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
    return entries, marked, lambda: np.vstack([np.empty((0, 4)), *(finish() for finish in late)])


def run_ink(ink: Ink, index: int) -> Ink:
    """Returns the colours of a run's path; the first one has the ink's own."""
    color = RUN_COLORS[(index - 1) % len(RUN_COLORS)]
    return ink if index == 0 else replace(ink, line=color, face=color)


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
    ax: Axes,
    landscape: LandscapeData,
    place: Place,
    rows: NDArray[Any],
    index: int,
    ink: Ink,
    factor: float,
    times: Times | None,
) -> tuple[list[Any], list[Marked], Callable[[], NDArray[Any]]]:
    """Draws one run's path; returns its legend's entries, its dots if not all have one, what draws the rest later."""
    from matplotlib.colors import to_rgb

    found = landscape.checkpoints
    assert found is not None
    assert found.y is not None
    x, y = place(found.x[rows], found.y[rows])
    outside = int((~_inside(ax, x, y)).sum())
    label = run_label(landscape, rows) + (f" ({outside} of {len(x)} outside)" if outside else "")
    if times is None or len(rows) < 2:
        mine = run_ink(ink, index)
        entries = ax.plot(
            x, y, color=mine.line, linewidth=1.4 * factor, linestyle=RUN_STROKES[index % len(RUN_STROKES)], marker="o",
            markersize=3.5 * factor, label=label, zorder=4, markeredgewidth=0.7 * factor, markerfacecolor=mine.face,
            markeredgecolor=mine.edge, path_effects=halo(2.8 * factor, mine.around),
        )  # fmt: skip
        colors = np.tile(to_rgb(mine.line), (len(rows), 1))
        return entries, [], lambda: draw_arrows(ax, x, y, colors, factor)
    rim, line, dots = draw_timed_run(ax, x, y, found.number[rows], index, times, factor)
    rim.set_label(label)

    def finish() -> NDArray[Any]:
        dash(ax, line, index)
        return draw_arrows(ax, x, y, times.colors(index, found.number[rows]), factor)

    return [timed_handle(label, index, factor)], [dots], finish


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
    """Writes networks' names and checkpoints' numbers where fixed axes have room; ``taken`` boxes are in pixels."""
    found, origin = landscape.checkpoints, landscape.origin
    marked = [(row, found.name[row]) for row, _ in network_marks(landscape)] if found is not None else []
    paths = [] if found is None else found.paths
    places = np.column_stack(place([origin.x], [origin.y or 0.0]))
    if found is not None and found.y is not None:
        places = np.vstack([places, np.column_stack(place(found.x, found.y))])
    # Row 0 is the origin.
    texts = {0: origin.name} if origin.role == NETWORK else {}
    texts |= {row + 1: name for row, name in marked}
    order = list(texts)
    # Numbers stand at dots, which only paths in the colours of time have; on other paths every checkpoint is marked.
    timed = iter(dots)
    for rows in paths:
        marks = [*next(timed).rows, 0, len(rows) - 1] if dots and len(rows) > 1 else None
        kept = rows[numbered(found.number[rows], marks)]  # type: ignore[union-attr]
        kept = kept[_inside(ax, *places[kept + 1].T)]
        chosen = [int(kept[at]) + 1 for at in most_telling(len(kept))]
        texts |= {at: str(found.number[at - 1]) for at in chosen}  # type: ignore[union-attr]
        order += chosen
    order = [at for at in order if _inside(ax, *places[at : at + 1].T).all()]
    if not order:
        return
    scale = 72 / ax.figure.dpi
    points = np.asarray(ax.transData.transform(places)) * scale
    words = {at: plain(text, 24) for at, text in texts.items()}
    sizes = np.array([[0.62 * size * len(words.get(at, "")) + 2, size + 2.0] for at in range(len(points))])
    frame = np.array(ax.get_window_extent().extents) * scale
    marks = [(0, STAR), *((row + 1, NETWORK_STYLE) for row, _ in marked)]
    marks += [(int(rows[end]) + 1, style) for rows in paths for end, style in ((-1, END), (0, START))]
    halves = [(points[at], style["markersize"] * factor / 2) for at, style in marks]
    boxes = [[*(mark - half), *(mark + half)] for mark, half in halves]
    blocked = np.vstack([np.array(occupied).reshape(-1, 4) * scale, boxes])
    lines = [along(points[rows + 1], step=1.5) for rows in paths]
    clear = np.vstack([points[[0]], *lines, *(points[[row + 1]] for row, _ in marked)])
    # Names stand clear of their marks, which are larger than the dots of a path.
    gap = (6.0 if not marked and origin.role != NETWORK else 9.0) * factor
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
