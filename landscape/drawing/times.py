"""When a path was where: the colours of epochs or steps, which checkpoints are marked, and which are numbered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .texts import plain, unit_of

if TYPE_CHECKING:
    from ..grid.data import LandscapeData


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


@dataclass(frozen=True)
class Times:
    """The numbers that the colours of paths stand for, in ``unit`` such as "epoch"; ``low`` has the lightest colour."""

    low: int
    high: int
    unit: str

    def colors(self, run: int, numbers: Any) -> NDArray[np.float64]:
        """Returns the colours of a run's checkpoints, red, green and blue from 0 to 1, shape (n, 3)."""
        share = np.clip((np.asarray(numbers, np.float64) - self.low) / (self.high - self.low), 0, 1)
        stops = stops_of(run)
        at = np.linspace(0, 1, len(stops))
        return np.column_stack([np.interp(share, at, channel) for channel in stops.T])

    @property
    def label(self) -> str:
        return f"{plain(self.unit)} along the path"


def stops_of(run: int) -> NDArray[np.float64]:
    """Returns the colours between which a run's are interpolated, the first one's first, shape (4, 3)."""
    ramp = RAMPS[run % len(RAMPS)]
    return np.array([[int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)] for color in ramp])


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
        return f"every {_ordinal(strides.pop())} checkpoint marked"
    return f"{sum(len(found.rows) for found in each):,} of {sum(found.count for found in each):,} checkpoints marked"


def apart(points: NDArray[Any], order: Sequence[int], least: float) -> NDArray[np.intp]:
    """Returns which points to keep, earlier ones of the order first, so that no two are nearer than that; ascending."""
    kept: list[int] = []
    for row in order:
        if not np.isfinite(points[row]).all():
            continue
        if not kept or (np.hypot(*(points[kept] - points[row]).T) >= least).all():
            kept.append(row)
    return np.sort(np.array(kept, np.intp))


def _round_steps() -> Iterator[int]:
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def _ordinal(number: int) -> str:
    return f"{number:,}nd" if number == 2 else f"{number:,}th"
