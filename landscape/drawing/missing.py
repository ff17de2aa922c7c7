"""Grid points that are not measured, drawn as what they are: without a value, interpolated, or coarse cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..record.checks import PointStatus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.patches import Patch
    from matplotlib.path import Path

    from .sheet import Sheet


Corners = tuple[NDArray[Any], NDArray[Any]]
"""Where the corners of a plane's cells are drawn: x and y, each of shape (ny + 1, nx + 1)."""
# How much of a coarse cell's colour is left; the rest is the page's.
_STRENGTH = 0.55
# More would be a grey veil.
_MOST_DOTS = 4000


def edges(axis: NDArray[Any]) -> NDArray[Any]:
    """Returns the n + 1 bounds of the cells around n coordinates."""
    if len(axis) == 1:
        half = 0.5 * max(abs(float(axis[0])), 1.0)
        return np.array([axis[0] - half, axis[0] + half])
    middle = axis[:-1] + np.diff(axis) / 2
    return np.concatenate([[2 * axis[0] - middle[0]], middle, [2 * axis[-1] - middle[-1]]])


def draw_missing(
    ax: Axes,
    corners: Corners,
    border: Path,
    kinds: Mapping[str, NDArray[Any]],
    styles: Mapping[str, dict[str, Any]],
) -> list[Patch]:
    """Hatches cells without a value, each kind in its style; returns the legend's entries."""
    from matplotlib.patches import Patch

    entries = []
    for kind, where in kinds.items():
        hatch_cells(ax, corners, border, where, styles[kind], 1.5)
        entries.append(Patch(label=f"{kind} ({int(where.sum())})", linewidth=0, **styles[kind]))
    return entries


def hatch_cells(
    ax: Axes, corners: Corners, border: Path, where: NDArray[Any], style: Mapping[str, Any], zorder: float
) -> None:
    """Hatches some cells of a plane that ends at ``border``."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    across, up = corners
    cells = []
    for row in range(len(where)):
        for first, last in runs(where[row]):
            ring = [row, row, row + 1, row + 1, row], [first, last, last, first, first]
            cells.append(Path(np.column_stack([across[ring], up[ring]]), closed=True))
    if cells:
        # One path for all cells: hatching each by itself takes half a minute for a large grid.
        patch = PathPatch(Path.make_compound_path(*cells), linewidth=0, zorder=zorder, **style)
        ax.add_artist(patch)
        patch.set_clip_path(border, ax.transData)


def draw_interpolated(
    ax: Axes, points: tuple[NDArray[Any], NDArray[Any]], values: NDArray[Any], status: NDArray[Any], size: float
) -> list[Any]:
    """Marks interpolated points, or the measured ones where these are fewer; returns the legend's entry, if any."""
    interpolated, measured = (
        (status == kind) & np.isfinite(values) for kind in (PointStatus.INTERPOLATED, PointStatus.MEASURED)
    )
    if not interpolated.any():
        return []
    where, color, label = interpolated, "white", f"interpolated ({interpolated.sum():,})"
    if interpolated.sum() > measured.sum():
        where, color, label = measured, "black", f"measured ({measured.sum():,}, all others interpolated)"
    edge: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.15 * size}
    return _dots(ax, points, where, size, color=color, label=label, **edge)


def _dots(
    ax: Axes, points: tuple[NDArray[Any], NDArray[Any]], where: NDArray[Any], size: float, **style: Any
) -> list[Any]:
    x, y = (axis[where] for axis in points)
    return list(ax.plot(x, y, linestyle="none", marker="o", markersize=size, alpha=0.75, zorder=2.5, **style))


def coarse_text(shown: NDArray[Any]) -> str:
    return f"coarse: value of the nearest measured point ({int(np.isfinite(shown).sum()):,})"


def draw_coarse_cells(sheet: Sheet, corners: Corners, colors: Colormap) -> None:
    """Draws a plane's coarse cells seen from above, if any, washed out and hatched."""
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
    return _dots(sheet.ax, points, measured, size, color="black", markeredgewidth=0, label=f"measured ({count:,})")


def washed(colors: Colormap, page: str) -> Colormap:
    from matplotlib.colors import ListedColormap, to_rgb

    rgb = colors(np.linspace(0, 1, 256))[:, :3]
    return ListedColormap(_STRENGTH * rgb + (1 - _STRENGTH) * np.array(to_rgb(page)))


def blocks(points: NDArray[Any]) -> NDArray[Any]:
    """Returns rectangles over a grid: first row, last row + 1, first column, last column + 1, point; shape (n, 5)."""
    # A cell has the flat index of the point whose value it shows, or -1 where it is left out.
    rows, columns = np.nonzero(points >= 0)
    names, group, counts = np.unique(points[rows, columns], return_inverse=True, return_counts=True)
    ends = np.stack([np.full(len(names), points.size), np.zeros(len(names), np.int64)] * 2, axis=1).astype(np.int64)
    for axis, values in ((0, rows), (2, columns)):
        np.minimum.at(ends[:, axis], group, values)
        np.maximum.at(ends[:, axis + 1], group, values + 1)
    whole = counts == (ends[:, 1] - ends[:, 0]) * (ends[:, 3] - ends[:, 2])
    found = [np.column_stack([ends, names])[whole]]
    for name, (top, bottom, left, right) in zip(names[~whole], ends[~whole], strict=True):
        for row in range(top, bottom):
            pieces = runs(points[row, left:right] == name) + left
            found.append(np.array([[row, row + 1, first, last, name] for first, last in pieces]).reshape(-1, 5))
    return np.concatenate(found)


def runs(where: NDArray[Any]) -> NDArray[Any]:
    """Returns first and last + 1 of every unbroken run of True, shape (runs, 2)."""
    steps = np.diff(where, prepend=False, append=False)
    return np.flatnonzero(steps).reshape(-1, 2)
