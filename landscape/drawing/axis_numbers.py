"""The numbers beside axes and colour bars of a figure in its final size: none covers another."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


def pin_type(figure: Any) -> None:
    """Keeps how many numbers an axis has, which matplotlib counts by the settings at the time of drawing."""
    for ax in (ax for ax in figure.axes if ax.name != "3d"):
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_tick_params(labelsize=axis.get_major_ticks(1)[0].label1.get_fontsize())


def space_numbers(figure: Any) -> None:
    """Leaves out numbers that would cover the ones before: of given ones those without room, of others every few."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

    for ax in (ax for ax in figure.axes if ax.name != "3d"):
        for axis in (ax.xaxis, ax.yaxis):
            if isinstance(axis.get_major_locator(), FixedLocator):
                texts, free = [], -np.inf
                for label in axis.get_ticklabels():
                    low, high = _span(label, axis)
                    texts.append(label.get_text() if low >= free else "")
                    free = high + figure.dpi / 72 if texts[-1] else free
                axis.set_major_formatter(FixedFormatter(texts))
                continue
            count = len(axis.get_ticklocs())
            while count > 2 and not _apart(axis):
                count -= 1
                axis.set_major_locator(MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]))


def _span(label: Any, axis: Any) -> tuple[float, float]:
    """Returns where a number begins and ends along its axis, in pixels."""
    box = label.get_window_extent()
    return (box.x0, box.x1) if axis.axis_name == "x" else (box.y0, box.y1)


def _apart(axis: Any) -> bool:
    labels = [label for label in axis.get_ticklabels() if label.get_text()]
    between = 0.4 * labels[0].get_fontsize() * axis.figure.dpi / 72 if labels and axis.axis_name == "x" else 0.0
    spans = sorted(_span(label, axis) for label in labels)
    return all(one[1] + between < two[0] for one, two in itertools.pairwise(spans))
