"""Legends that cover as little of the picture as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .appearance import Appearance

Corner: TypeAlias = Literal["upper right", "upper left", "lower left", "lower right"]
_CORNERS: dict[Corner, tuple[int, int]] = {
    "upper right": (1, 1),
    "upper left": (0, 1),
    "lower left": (0, 0),
    "lower right": (1, 0),
}


def draw_legend(ax: Axes, entries: Sequence[Any], appearance: Appearance, *, outside: bool) -> None:
    """Writes the legend below a figure of our own, or in the corner of foreign axes that is emptiest."""
    if not entries:
        return
    if outside:
        draw_legend_below(ax.figure, entries, appearance, columns=2 if appearance.paper else 4)
        return
    size = min(appearance.small_size, 7)
    ax.legend(handles=entries, loc=_emptiest_corner(ax), fontsize=size, framealpha=0.85, facecolor=appearance.page)


def draw_legend_below(figure: Any, entries: Sequence[Any], appearance: Appearance, columns: int) -> None:
    """Writes a legend under everything that a figure shows."""
    figure.legend(
        handles=entries, loc="outside lower center", ncols=min(len(entries), columns), frameon=False,
        fontsize=appearance.small_size - (0 if appearance.paper else 1), columnspacing=1.4, handletextpad=0.5,
        labelspacing=0.5,
    )  # fmt: skip


def _emptiest_corner(ax: Axes) -> Corner:
    lines = [np.asarray(line.get_xydata(), np.float64) for line in ax.get_lines()]
    points = np.vstack([np.empty((0, 2)), *(line[:, :2] for line in lines)])
    fractions = ax.transAxes.inverted().transform(ax.transData.transform(points))
    fractions = fractions[np.isfinite(fractions).all(axis=1)]

    def nearness(corner: Corner) -> float:
        distance = np.abs(fractions - np.array(_CORNERS[corner])).max(axis=1)
        return float((distance < 0.45).sum() + (0.4 - np.minimum(distance, 0.4)).sum())

    return min(_CORNERS, key=nearness)
