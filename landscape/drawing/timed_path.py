"""A path of many checkpoints seen from above, coloured by time, with dots that do not touch; and arrowheads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .arrows import HEAD, SHAPE, arrow_places
from .times import Marked, Times, marked, marked_text, pieces, strong_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes


RIM = "0.1"
"""Around every path, so that it stands out from light colours and, being lighter itself, from dark ones."""
WIDTH, RIM_WIDTH, DOT = 2.2, 3.8, 3.4
"""Of the line, of the rim and of a dot, in points."""
# Of dashes, in widths of the line; the first run's line is whole.
_DASHES: tuple[tuple[float, ...], ...] = ((), (4.0, 2.0), (6.0, 1.6, 1.4, 1.6), (1.4, 1.6))


def draw_timed_run(
    ax: Axes, x: NDArray[Any], y: NDArray[Any], numbers: NDArray[Any], run: int, times: Times, factor: float
) -> tuple[Any, Any, Marked]:
    """Draws a run in the colours of time; returns its rim with all checkpoints, its coloured pieces, and its dots."""
    from matplotlib.collections import LineCollection

    places = np.column_stack([x, y])
    round_ends: dict[str, Any] = {"solid_capstyle": "round", "solid_joinstyle": "round"}
    (rim,) = ax.plot(x, y, color=RIM, linewidth=RIM_WIDTH * factor, zorder=4, **round_ends)
    found = list(pieces(numbers))
    line = LineCollection(
        [places[piece] for piece, _ in found], colors=times.colors(run, [time for _, time in found]),
        linewidths=WIDTH * factor, zorder=4.1, capstyle="butt" if _DASHES[run % len(_DASHES)] else "round",
        joinstyle="round",
    )  # fmt: skip
    # The limits of the axes are those of the plane, wherever the path runs.
    ax.add_collection(line, autolim=False)
    dots = marked(_in_points(ax, places), numbers, DOT * factor)
    ax.plot(x[dots.rows], y[dots.rows], zorder=4.2, label="_dots", **dot_style(factor))
    return rim, line, dots


def dot_style(factor: float) -> dict[str, Any]:
    return {
        "linestyle": "none", "marker": "o", "color": "white", "markeredgecolor": RIM, "markersize": DOT * factor,
        "markeredgewidth": 0.6 * factor,
    }  # fmt: skip


def timed_handle(label: str, run: int, factor: float) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import Normal, withStroke

    rim = [withStroke(linewidth=RIM_WIDTH * factor, foreground=RIM), Normal()]
    dashes = _DASHES[run % len(_DASHES)]
    handle = Line2D([], [], label=label, color=strong_color(run), linewidth=WIDTH * factor, path_effects=rim)
    handle.set_linestyle((0, dashes) if dashes else "-")
    return handle


def dots_handle(each: Sequence[Marked], factor: float) -> list[Any]:
    """Returns the legend's entry that says which checkpoints have dots; none where all have."""
    from matplotlib.lines import Line2D

    marked = marked_text(each)
    return [Line2D([], [], label=marked, **dot_style(factor))] if marked else []


def dash(ax: Axes, line: Any, run: int) -> None:
    """Gives the pieces of a run's path its stroke, from piece to piece; the axes must be in their place."""
    dashes, width = _DASHES[run % len(_DASHES)], float(line.get_linewidths()[0])
    if not dashes:
        return
    come, styles = 0.0, []
    for piece in line.get_segments():
        styles.append((come % sum(dashes), dashes))
        lengths = np.hypot(*np.diff(_in_points(ax, piece), axis=0).T)
        come += float(lengths[np.isfinite(lengths)].sum()) / width
    line.set_linestyle(styles)


def draw_arrows(ax: Axes, x: NDArray[Any], y: NDArray[Any], colors: NDArray[Any], factor: float) -> NDArray[Any]:
    """Draws arrowheads in axes that are in their place; returns left, bottom, right, top in pixels, shape (k, 4)."""
    places, head = np.column_stack([x, y]), HEAD * max(factor, 0.75)
    points = _in_points(ax, places)
    left, bottom, right, top = np.array(ax.get_window_extent().extents) * 72 / ax.figure.dpi
    boxes = []
    for place, across, up, angle in arrow_places(points, head):
        if not (left <= across <= right and bottom <= up <= top):
            continue
        at, color = _between(places, place), _between(colors, place)
        ax.plot(*at[:, None], label="_arrow", zorder=4.5, **arrow_style(angle, color, head))
        boxes.append([across - head / 2, up - head / 2, across + head / 2, up + head / 2])
    return np.array(boxes).reshape(-1, 4) * ax.figure.dpi / 72


def arrow_style(angle: float, color: Any, head: float = HEAD) -> dict[str, Any]:
    """Returns the mark of an arrowhead for matplotlib's ``Line2D``, given its angle in radians and its length."""
    from matplotlib.path import Path

    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    # Matplotlib scales a mark so that its largest coordinate is half its size.
    turned = np.array(SHAPE) @ turn
    size = 2 * head * float(np.abs(turned).max())
    return {
        "linestyle": "none", "marker": Path(turned, closed=True), "markersize": size, "markerfacecolor": color,
        "markeredgecolor": RIM, "markeredgewidth": 0.08 * head,
    }  # fmt: skip


def _between(values: NDArray[Any], place: float) -> NDArray[Any]:
    return np.array([np.interp(place, np.arange(len(values)), column) for column in values.T])


def _in_points(ax: Axes, places: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(ax.transData.transform(places), np.float64) * 72 / ax.figure.dpi
