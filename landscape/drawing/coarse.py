"""Coarse cells of an unfinished landscape, washed out and hatched: each shows the value of a measured point nearby."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..record.checks import PointStatus
from .missing import hatch_cells, runs

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.patches import Patch

    from .sheet import Sheet


# How much of a cell's colour is left; the rest is the page's.
_STRENGTH = 0.55
# More would be a grey veil.
_MOST_DOTS = 4000


def coarse_text(shown: NDArray[Any]) -> str:
    return f"coarse: value of the nearest measured point ({int(np.isfinite(shown).sum()):,})"


def draw_coarse_cells(sheet: Sheet, corners: tuple[NDArray[Any], NDArray[Any]], colors: Colormap) -> None:
    """Draws a plane's coarse cells seen from above, if any; ``corners`` are x and y, each of shape (ny + 1, nx + 1)."""
    there = np.isfinite(sheet.coarse)
    if not there.any():
        return
    shown = np.ma.masked_invalid(sheet.scale.drawn(sheet.coarse))
    mesh = sheet.ax.pcolormesh(
        *corners, shown, norm=sheet.scale.norm(), cmap=washed(colors, sheet.appearance.page), zorder=1, rasterized=True
    )
    mesh.set_clip_path(sheet.border, sheet.ax.transData)
    hatch_cells(sheet.ax, corners, sheet.border, there, sheet.appearance.coarse, 1.5)
    sheet.entries.append(coarse_entry(sheet))


def coarse_entry(sheet: Sheet) -> Patch:
    from matplotlib.patches import Patch

    look = sheet.appearance
    style = {**look.coarse, "facecolor": washed(sheet.colors, look.page)(0.45)}
    return Patch(label=coarse_text(sheet.coarse), linewidth=0, **style)


def mark_measured(sheet: Sheet, points: tuple[NDArray[Any], NDArray[Any]], size: float) -> list[Any]:
    """Marks the measured points of a plane where they are fewer than coarse cells; returns a legend's entry or none."""
    measured = (sheet.status == PointStatus.MEASURED) & np.isfinite(sheet.values)
    count = int(measured.sum())
    if not 0 < count <= _MOST_DOTS or count >= np.isfinite(sheet.coarse).sum():
        return []
    x, y = (axis[measured] for axis in points)
    return list(
        sheet.ax.plot(
            x, y, linestyle="none", marker="o", markersize=size, color="black", markeredgewidth=0, alpha=0.75,
            zorder=2.5, label=f"measured ({count:,})",
        )
    )  # fmt: skip


def washed(colors: Colormap, page: str) -> Colormap:
    from matplotlib.colors import ListedColormap, to_rgb

    rgb = colors(np.linspace(0, 1, 256))[:, :3]
    return ListedColormap(_STRENGTH * rgb + (1 - _STRENGTH) * np.array(to_rgb(page)))


def blocks(points: NDArray[Any]) -> NDArray[Any]:
    """Returns rectangles over a grid: first row, last row + 1, first column, last column + 1, point; shape (n, 5)."""
    found = []
    # A cell has the flat index of the point whose value it shows, or -1 where it is left out.
    rows, columns = np.nonzero(points >= 0)
    names, group, counts = np.unique(points[rows, columns], return_inverse=True, return_counts=True)
    ends = np.stack([np.full(len(names), points.size), np.zeros(len(names), np.int64)] * 2, axis=1).astype(np.int64)
    for axis, values in ((0, rows), (2, columns)):
        np.minimum.at(ends[:, axis], group, values)
        np.maximum.at(ends[:, axis + 1], group, values + 1)
    whole = counts == (ends[:, 1] - ends[:, 0]) * (ends[:, 3] - ends[:, 2])
    found.append(np.column_stack([ends, names])[whole])
    for name, (top, bottom, left, right) in zip(names[~whole], ends[~whole], strict=True):
        for row in range(top, bottom):
            pieces = runs(points[row, left:right] == name) + left
            found.append(np.array([[row, row + 1, first, last, name] for first, last in pieces]).reshape(-1, 5))
    return np.concatenate(found)
