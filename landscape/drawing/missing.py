"""Grid points that are not measured, drawn as what they are: without a value, interpolated, or coarse cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..record.checks import PointStatus
from ..sampling.grids import covering_points
from ..scales.frame import span
from ..scales.landscape_scale import missing_kinds
from .sheet import Sheet

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.patches import Patch


# How much of a coarse cell's colour is left; the rest is the page's.
_STRENGTH = 0.55
# More would be a grey veil.
_MOST_DOTS = 4000


def edges(axis: NDArray[Any]) -> NDArray[Any]:
    """Returns the n + 1 bounds of the cells around n coordinates."""
    if len(axis) == 1:
        return span(axis)
    middle = axis[:-1] + np.diff(axis) / 2
    return np.concatenate([[2 * axis[0] - middle[0]], middle, [2 * axis[-1] - middle[-1]]])


def draw_missing(sheet: Sheet) -> None:
    for kind, where in missing_kinds(sheet.values, sheet.status, sheet.coarse).items():
        style = sheet.appearance.missing[kind]
        hatch_cells(sheet, where, style)
        sheet.entries.append(hatched(f"{kind} ({int(where.sum())})", style))


def hatched(label: str, style: Mapping[str, Any]) -> Patch:
    from matplotlib.patches import Patch

    return Patch(label=label, linewidth=0, **style)


def hatch_cells(sheet: Sheet, where: NDArray[Any], style: Mapping[str, Any], zorder: float = 1.5) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    across, up = sheet.frame.mesh(*map(edges, sheet.plane))
    cells = []
    for row in range(len(where)):
        for first, last in runs(where[row]):
            ring = [row, row, row + 1, row + 1, row], [first, last, last, first, first]
            cells.append(Path(np.column_stack([across[ring], up[ring]]), closed=True))
    if cells:
        # One path for all cells: hatching each by itself takes half a minute for a large grid.
        patch = PathPatch(Path.make_compound_path(*cells), linewidth=0, zorder=zorder, **style)
        sheet.ax.add_artist(patch)
        patch.set_clip_path(sheet.border, sheet.ax.transData)


def mark_points(sheet: Sheet) -> None:
    """Marks interpolated points, or the measured ones where these are fewer than these or than coarse cells."""
    ax, (x, y) = sheet.ax, sheet.plane
    interpolated, measured = (
        (sheet.status == kind) & np.isfinite(sheet.values) for kind in (PointStatus.INTERPOLATED, PointStatus.MEASURED)
    )
    count, room = int(measured.sum()), 72 / ax.figure.dpi * min(ax.bbox.width / len(x), ax.bbox.height / len(y))
    size = float(np.clip(0.35 * room, 0.6, 3.5))
    where, color, label = measured, "black", f"measured ({count:,})"
    edge: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.15 * size}
    if not interpolated.any():
        edge = {"markeredgewidth": 0}
        if not 0 < count <= _MOST_DOTS or count >= np.isfinite(sheet.coarse).sum():
            return
    elif interpolated.sum() > count:
        others = "all others" if count + interpolated.sum() == interpolated.size else f"{interpolated.sum():,}"
        label = f"measured ({count:,}, {others} interpolated)"
    else:
        where, color, label = interpolated, "white", f"interpolated ({interpolated.sum():,})"
    across, up = (axis[where] for axis in sheet.frame.mesh(x, y))
    sheet.entries += ax.plot(
        across, up, linestyle="none", marker="o", markersize=size, alpha=0.75, zorder=2.5, color=color, label=label,
        **edge,
    )  # fmt: skip


def coarse_text(shown: NDArray[Any]) -> str:
    return f"coarse: value of the nearest measured point ({int(np.isfinite(shown).sum()):,})"


def draw_cells(sheet: Sheet, values: NDArray[Any], colors: Colormap) -> Any:
    """Draws each value as the cell around its point; returns the mesh."""
    mesh = sheet.ax.pcolormesh(
        *sheet.frame.mesh(*map(edges, sheet.plane)), np.ma.masked_invalid(sheet.scale.drawn(values)),
        norm=sheet.scale.norm(), cmap=colors, zorder=1, rasterized=True,
    )  # fmt: skip
    mesh.set_clip_path(sheet.border, sheet.ax.transData)
    return mesh


def draw_coarse_cells(sheet: Sheet, colors: Colormap) -> None:
    there = np.isfinite(sheet.coarse)
    if there.any():
        draw_cells(sheet, sheet.coarse, washed(colors, sheet.appearance.page))
        hatch_cells(sheet, there, sheet.appearance.coarse)
        sheet.entries.append(coarse_entry(sheet))


def coarse_entry(sheet: Sheet) -> Patch:
    look = sheet.appearance
    return hatched(coarse_text(sheet.coarse), {**look.coarse, "facecolor": washed(sheet.colors, look.page)(0.45)})


def washed(colors: Colormap, page: str) -> Colormap:
    from matplotlib.colors import ListedColormap, to_rgb

    rgb = colors(np.linspace(0, 1, 256))[:, :3]
    return ListedColormap(_STRENGTH * rgb + (1 - _STRENGTH) * np.array(to_rgb(page)))


def plateaus(coarse: NDArray[Any], status: NDArray[Any], used: NDArray[Any]) -> NDArray[Any]:
    """Returns the flat pieces of a surface, see ``blocks``, of which ``used`` has the corners."""
    points = np.where(np.isfinite(coarse), covering_points(status), -1)
    # A point that is no corner of the surface lies on its own plateau.
    indices = np.arange(points.size).reshape(points.shape)
    return blocks(np.where(np.isin(indices, points[points >= 0]) & ~used, indices, points))


def blocks(points: NDArray[Any]) -> NDArray[Any]:
    """Returns rectangles over a grid: first row, last row + 1, first column, last column + 1, point; shape (n, 5)."""
    from scipy.ndimage import find_objects

    whole, pieces = [], []
    # A cell has the flat index of the point whose value it shows, or -1 where it is left out.
    for name, place in enumerate(find_objects(points + 1)):
        if place is not None:
            rows, columns = place
            where = points[place] == name
            if where.all():
                whole.append((rows.start, rows.stop, columns.start, columns.stop, name))
                continue
            for row, line in enumerate(where, rows.start):
                pieces += [(row, row + 1, first, last, name) for first, last in runs(line) + columns.start]
    return np.array(whole + pieces, np.int64).reshape(-1, 5)


def runs(where: NDArray[Any]) -> NDArray[Any]:
    """Returns first and last + 1 of every unbroken run of True, shape (runs, 2)."""
    steps = np.diff(where, prepend=False, append=False)
    return np.flatnonzero(steps).reshape(-1, 2)
