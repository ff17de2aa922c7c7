"""How runs' paths, networks and the origin look and what they are called: lines, dots, arrowheads, marks, labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..grid.checkpoints import CheckpointsData
from ..grid.data import LandscapeData
from .placement import HEAD
from .texts import plain, unit_of
from .times import Marked, marked_text, path_times, strong_color

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
# Of further runs, which differ in stroke too: paper may be printed grey.
RUN_COLORS = ("#ff9f1c", "#ff70c0", "#7bf1d6", "#ffe45e")
_STROKES = ("-", "--", "-.", ":")
WIDTH, RIM_WIDTH, DOT = 2.2, 3.8, 3.4
"""Of a line in the colours of time, of its rim and of a dot on it, in points."""
# Of dashes of such a line, in its widths; the first run's line is whole.
DASHES: tuple[tuple[float, ...], ...] = ((), (4.0, 2.0), (6.0, 1.6, 1.4, 1.6), (1.4, 1.6))
# An arrowhead that points to the right: its tip, its wings, and the notch behind.
_ARROWHEAD = ((0.5, 0.0), (-0.5, 0.42), (-0.22, 0.0), (-0.5, -0.42), (0.5, 0.0))


def halo(width: float, color: str = EDGE) -> list[Any]:
    """Returns the effect that keeps a light line or text readable on any colour."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=width, foreground=color)]


def sized(style: dict[str, Any], factor: float) -> dict[str, Any]:
    sizes: dict[str, Any] = {name: factor * style[name] for name in ("markersize", "markeredgewidth") if name in style}
    return {"markeredgewidth": factor, **style, **sizes}


def write_beside(ax: Any, text: str, place: Any, shift: Any, size: float, **style: Any) -> None:
    """Writes a text as many points away from a place as ``shift`` says, with its middle there."""
    style = {"ha": "center", "va": "center", **style}
    ax.annotate(text, place, xytext=shift, textcoords="offset points", fontsize=size, **style)


def stroke(index: int) -> str:
    return _STROKES[index % len(_STROKES)]


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


def dot_style(factor: float) -> dict[str, Any]:
    return {
        "linestyle": "none", "marker": "o", "color": "white", "markeredgecolor": EDGE, "markersize": DOT * factor,
        "markeredgewidth": 0.6 * factor,
    }  # fmt: skip


def timed_handle(label: str, run: int, factor: float) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import Normal

    rim = [*halo(RIM_WIDTH * factor), Normal()]
    dashes = DASHES[run % len(DASHES)]
    style: Any = {"linestyle": (0, dashes) if dashes else "-", "path_effects": rim}
    return Line2D([], [], label=label, color=strong_color(run), linewidth=WIDTH * factor, **style)


def dots_handle(each: Sequence[Marked], factor: float) -> list[Any]:
    """Returns the legend's entry that says which checkpoints have dots; none where all have."""
    from matplotlib.lines import Line2D

    text = marked_text(each)
    return [Line2D([], [], label=text, **dot_style(factor))] if text else []


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


def in_points(ax: Any, places: NDArray[Any]) -> NDArray[np.float64]:
    # The transform is right only after the limits have followed what is drawn.
    ax.get_xlim()
    return np.asarray(ax.transData.transform(places), np.float64) * 72 / float(ax.figure.dpi)
