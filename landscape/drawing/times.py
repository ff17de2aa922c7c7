"""When a path was where: the colours of epochs or steps and their bar, which checkpoints are marked and numbered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..grid.data import LandscapeData
from .placement import apart
from .texts import plain, unit_of

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


def draw_time_bar(axes: Any, times: Times, landscapes: Sequence[LandscapeData], look: Any) -> None:
    """Draws a bar with a strip for each run's hue below one or several axes."""
    from matplotlib.colorbar import make_axes
    from matplotlib.ticker import MaxNLocator

    paths = [each.checkpoints.paths for each in landscapes if each.checkpoints is not None]
    runs, size = max([1, *map(len, paths)]), look.small_size
    first = axes[0] if isinstance(axes, list) else axes
    width = (first.figure.bbox.width if isinstance(axes, list) else first.bbox.width) * 72 / first.figure.dpi
    height = strips_height(runs)
    # Without a layout nothing else keeps the bar clear of the axes' own numbers and label.
    laid_out = first.figure.get_layout_engine() is not None
    pad = 0.02 if laid_out else float(np.clip(5.5 * size * first.figure.dpi / 72 / first.bbox.height, 0.05, 0.35))
    share = 0.45 if isinstance(axes, list) else 0.7
    bar, _ = make_axes(axes, location="bottom", shrink=share, aspect=max(share * width / height, 4.0), pad=pad)
    bar.set_label(TIME_BAR)
    numbers = np.linspace(times.low, times.high, 256)
    strips = np.stack([times.colors(run, numbers) for run in range(runs)])
    bar.imshow(strips, aspect="auto", extent=(times.low, times.high, len(strips), 0), interpolation="nearest")
    bar.set_yticks([])
    bar.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True, steps=[1, 2, 5, 10]))
    bar.tick_params(axis="x", labelsize=max(look.number_size, 0.9 * size), length=2, pad=1.5)
    bar.set_xlabel(times.label, fontsize=size, labelpad=1)
    for spine in bar.spines.values():
        spine.set(linewidth=0.5, edgecolor=first.spines["left"].get_edgecolor())


def strips_height(strips: int) -> float:
    return float(_STRIP * strips**0.7)
