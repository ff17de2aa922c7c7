"""The colour bar of a path's time, below the picture: the loss has its own beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .times import Times

if TYPE_CHECKING:
    from ..grid.data import LandscapeData


NAME = "time bar"
"""By which the layout knows the axes of the bar."""
BAR_HEIGHT = 0.55
"""By how much a figure of its own is higher with the bar, in inches on a screen."""
# Of one run's strip, in points.
_STRIP = 5.0
_MOST_TICKS = 6


def runs_of(landscapes: Sequence[LandscapeData]) -> int:
    """Returns how many runs with a path the pictures show at most, each of which has a hue."""
    found = [each.checkpoints for each in landscapes if each.checkpoints is not None]
    return max((len(path.paths) for path in found), default=0)


def draw_time_bar(axes: Any, times: Times, runs: int, size: float, least: float) -> Any:
    """Draws a bar with a strip for each run's hue below one or several axes; returns its axes. Type is in points."""
    from matplotlib.colorbar import make_axes
    from matplotlib.ticker import MaxNLocator

    first = axes[0] if isinstance(axes, list) else axes
    width = (first.figure.bbox.width if isinstance(axes, list) else first.bbox.width) * 72 / first.figure.dpi
    height = _height(max(runs, 1))
    # Without a layout nothing else keeps the bar clear of the axes' own numbers and label.
    laid_out = first.figure.get_layout_engine() is not None
    pad = 0.02 if laid_out else float(np.clip(5.5 * size * first.figure.dpi / 72 / first.bbox.height, 0.05, 0.35))
    share = 0.45 if isinstance(axes, list) else 0.7
    bar, _ = make_axes(axes, location="bottom", shrink=share, aspect=max(share * width / height, 4.0), pad=pad)
    bar.set_label(NAME)
    numbers = np.linspace(times.low, times.high, 256)
    strips = np.stack([times.colors(run, numbers) for run in range(max(runs, 1))])
    bar.imshow(strips, aspect="auto", extent=(times.low, times.high, len(strips), 0), interpolation="nearest")
    bar.set_yticks([])
    bar.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True, steps=[1, 2, 5, 10]))
    bar.tick_params(axis="x", labelsize=max(least, 0.9 * size), length=2, pad=1.5)
    bar.set_xlabel(times.label, fontsize=size, labelpad=1)
    for spine in bar.spines.values():
        spine.set(linewidth=0.5, edgecolor=first.spines["left"].get_edgecolor())
    return bar


def strips_height(bar: Any) -> float:
    return _height(bar.images[0].get_array().shape[0])


def _height(strips: int) -> float:
    return float(_STRIP * strips**0.7)
