"""How runs' paths, networks and the origin look and what they are called; of long paths the colours of time too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..grid.data import LandscapeData
from .placement import HEAD, apart
from .texts import plain, unit_of

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
FEW = 9
"""Up to so many checkpoints each has its dot and its number, and a path needs no colours of time."""
# One hue for each run, from light to strong. None is as dark as the rim around a path, so that all stand out from dark
# colours too, and the lightness falls steadily, so that grey paper shows the time.
RAMPS = (
    ("#ffeedd", "#ffb37f", "#f3663e", "#cf1f1c"),
    ("#dcf1ff", "#8fd3ff", "#3aa0f2", "#146dcb"),
    ("#ffe0f5", "#ff9fdf", "#ea56c2", "#c72aab"),
    ("#ffffff", "#cfcfcf", "#9b9b9b", "#6b6b6b"),
    ("#fff8c4", "#f7dc55", "#cfa000", "#957000"),
)
_MOST_NUMBERS = 12
# Of the diameter of a dot: how far marked checkpoints must lie apart, half of them and all of them.
_APART, _LEAST_APART = 3.5, 2.0
TIME_BAR = "time bar"
"""By which the layout knows the axes of the bar."""
BAR_HEIGHT = 0.55
"""By how much a figure of its own is higher with the bar, in inches on a screen."""
# Of one run's strip, in points.
_STRIP = 5.0
_MOST_TICKS = 6


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


def run_stroke(index: int) -> str:
    """Returns a run's stroke, another one each time that the colours come again."""
    return stroke(index + max(index - 1, 0) // len(RUN_COLORS))


def run_colors(landscape: LandscapeData) -> list[str]:
    """Returns a colour for each run, as in the legends of pictures in which the colours of a path are its time."""
    count = 0 if landscape.checkpoints is None else len(landscape.checkpoints.paths)
    timed = count > 1 and path_times([landscape]) is not None
    return [strong_color(index) if timed else run_color(index) for index in range(count)]


def run_names(landscapes: Sequence[LandscapeData]) -> list[str]:
    """Returns the names of all runs with a path; a run's place among them gives its colour and its stroke."""
    found = [each.checkpoints for each in landscapes if each.checkpoints is not None]
    return list(dict.fromkeys(each.run_name(rows[0]) for each in found for rows in each.paths))


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
    at_origin = (found.x == 0) if found.y is None else (found.x == 0) & (found.y == 0)
    rows = [row for row in found.networks.tolist() if not (at_origin[row] and found.name[row] == origin.name)]
    return [(row, {**NETWORK_STYLE, "marker": SHAPES[index % len(SHAPES)]}) for index, row in enumerate(rows)]


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


@dataclass(frozen=True)
class Times:
    """The numbers that the colours of paths stand for, in ``unit`` such as "epoch"; ``low`` has the lightest colour."""

    low: int
    high: int
    unit: str

    def colors(self, run: int, numbers: Any) -> NDArray[np.float64]:
        """Returns the colours of a run's checkpoints, red, green and blue from 0 to 1, shape (n, 3)."""
        share = np.clip((np.asarray(numbers, np.float64) - self.low) / (self.high - self.low), 0, 1)
        stops = np.array([[int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)] for color in RAMPS[run % len(RAMPS)]])
        at = np.linspace(0, 1, len(stops))
        return np.column_stack([np.interp(share, at, channel) for channel in stops.T])

    @property
    def label(self) -> str:
        return f"{plain(self.unit)} along the path"


def strong_color(run: int) -> str:
    """Returns the colour that stands for a run as a whole, such as in a legend."""
    return RAMPS[run % len(RAMPS)][2]


def path_times(landscapes: Sequence[LandscapeData]) -> Times | None:
    """Returns the times of all paths; None where all are short, or where their units differ."""
    found = [(each.checkpoints, str(unit_of(each))) for each in landscapes if each.checkpoints is not None]
    paths = [path.number[rows] for path, _ in found for rows in path.paths]
    units = {unit for path, unit in found if path.paths}
    if len(units) > 1 or max(map(len, paths), default=0) <= FEW:
        return None
    numbers = np.concatenate(paths)
    low, high = int(numbers.min()), int(numbers.max())
    return Times(low, high, units.pop()) if low < high else None


def pieces(numbers: NDArray[Any], most: int = 128) -> Iterator[tuple[slice, float]]:
    """Yields the coloured pieces of a path and the time in their middle; neighbours share a checkpoint."""
    ends = np.unique(np.linspace(0, len(numbers) - 1, min(most, len(numbers) - 1) + 1).round().astype(int))
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        yield slice(start, end + 1), (float(numbers[start]) + float(numbers[end])) / 2


def numbered(numbers: NDArray[Any], marks: Sequence[int] | NDArray[Any] | None = None) -> NDArray[np.intp]:
    """Returns which checkpoints get a number: those at round numbers, else every nth, or all where they are few."""
    # A number beside a checkpoint without a mark would seem to be that of another one.
    if marks is not None:
        return np.intersect1d(numbered(numbers), marks)
    if len(numbers) <= FEW:
        return np.arange(len(numbers))
    for step in _round_steps():
        rows = np.flatnonzero(numbers % step == 0)
        if len(rows) <= _MOST_NUMBERS:
            break
    if len(rows) >= 3:
        return rows
    # The numbers have no common round ones, such as steps of an odd number of batches.
    stride = next(step for step in _round_steps() if len(numbers) <= _MOST_NUMBERS * step)
    return np.arange(0, len(numbers), stride)


@dataclass(frozen=True)
class Marked:
    """Which of a path's ``count`` checkpoints have a dot: ``rows``, ascending, ``stride`` apart (0 if it varies)."""

    rows: NDArray[np.intp]
    count: int
    stride: int


def marked(points: NDArray[Any], numbers: NDArray[Any], diameter: float) -> Marked:
    """Chooses dots that neither touch nor hide the colours between; points, shape (n, 2), and diameter in 1/72 inch."""
    count = len(points)
    if count <= FEW:
        return Marked(np.arange(count), count, 1)
    first = numbered(numbers)
    for stride in _round_steps():
        rows = np.arange(int(first[0]) % stride, count, stride)
        steps = np.hypot(*np.diff(points[rows], axis=0).T)
        if len(rows) <= 3 or np.nanmedian(steps) >= _APART * diameter:
            break
    order = [*np.intersect1d(first, rows).tolist(), *rows.tolist()]
    kept = apart(points, list(dict.fromkeys(order)), _LEAST_APART * diameter)
    return Marked(kept, count, stride if len(kept) == len(rows) else 0)


def marked_text(each: Sequence[Marked]) -> str:
    """Returns what the legend says about the dots of all paths; "" where every checkpoint has one."""
    strides = {found.stride for found in each}
    if strides <= {1}:
        return ""
    if len(strides) == 1 and 0 not in strides:
        (stride,) = strides
        return f"every {stride:,}{'nd' if stride == 2 else 'th'} checkpoint marked"
    return f"{sum(len(found.rows) for found in each):,} of {sum(found.count for found in each):,} checkpoints marked"


def _round_steps() -> Iterator[int]:
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def draw_time_bar(axes: Any, times: Times, runs: Sequence[int], look: Any) -> None:
    """Draws a bar with a strip for each run's hue below one or several axes."""
    from matplotlib.colorbar import make_axes
    from matplotlib.ticker import MaxNLocator

    size = look.small_size
    first = axes[0] if isinstance(axes, list) else axes
    width = (first.figure.bbox.width if isinstance(axes, list) else first.bbox.width) * 72 / first.figure.dpi
    height = strips_height(len(runs))
    # Without a layout nothing else keeps the bar clear of the axes' own numbers and label.
    laid_out = first.figure.get_layout_engine() is not None
    pad = 0.02 if laid_out else float(np.clip(5.5 * size * first.figure.dpi / 72 / first.bbox.height, 0.05, 0.35))
    share = 0.45 if isinstance(axes, list) else 0.7
    bar, _ = make_axes(axes, location="bottom", shrink=share, aspect=max(share * width / height, 4.0), pad=pad)
    bar.set_label(TIME_BAR)
    numbers = np.linspace(times.low, times.high, 256)
    strips = np.stack([times.colors(run, numbers) for run in runs])
    bar.imshow(strips, aspect="auto", extent=(times.low, times.high, len(strips), 0), interpolation="nearest")
    bar.set_yticks([])
    bar.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True, steps=[1, 2, 5, 10]))
    bar.tick_params(axis="x", labelsize=max(look.number_size, 0.9 * size), length=2, pad=1.5)
    bar.set_xlabel(times.label, fontsize=size, labelpad=1)
    for spine in bar.spines.values():
        spine.set(linewidth=0.5, edgecolor=first.spines["left"].get_edgecolor())


def strips_height(strips: int) -> float:
    return float(_STRIP * strips**0.7)
