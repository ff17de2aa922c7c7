"""Grid points without a value, drawn as what they are: pending, failed, or measured and not finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..record.checks import PointStatus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch
    from matplotlib.path import Path


def missing_kinds(
    values: NDArray[Any], status: NDArray[Any], coarse: NDArray[Any] | None = None
) -> dict[str, NDArray[Any]]:
    """Returns where each kind of missing value occurs, by kind; arrays of the grid's shape."""
    pending, failed = status == PointStatus.PENDING, status == PointStatus.FAILED
    kinds = {"pending": pending, "failed": failed, "not finite": ~np.isfinite(values) & ~pending & ~failed}
    if coarse is not None:
        kinds["pending"] = pending & np.isnan(coarse)
    return {kind: where for kind, where in kinds.items() if where.any()}


def edges(axis: NDArray[Any]) -> NDArray[Any]:
    """Returns the n + 1 bounds of the cells around n coordinates."""
    if len(axis) == 1:
        half = 0.5 * max(abs(float(axis[0])), 1.0)
        return np.array([axis[0] - half, axis[0] + half])
    middle = axis[:-1] + np.diff(axis) / 2
    return np.concatenate([[2 * axis[0] - middle[0]], middle, [2 * axis[-1] - middle[-1]]])


def draw_missing(
    ax: Axes,
    corners: tuple[NDArray[Any], NDArray[Any]],
    border: Path,
    kinds: Mapping[str, NDArray[Any]],
    styles: Mapping[str, dict[str, Any]],
) -> list[Patch]:
    """Hatches cells without a value, each kind in its style; ``corners`` are x and y of shape (ny + 1, nx + 1)."""
    from matplotlib.patches import Patch

    entries = []
    for kind, where in kinds.items():
        hatch_cells(ax, corners, border, where, styles[kind], 1.5)
        entries.append(Patch(label=f"{kind} ({int(where.sum())})", linewidth=0, **styles[kind]))
    return entries


def hatch_cells(
    ax: Axes,
    corners: tuple[NDArray[Any], NDArray[Any]],
    border: Path,
    where: NDArray[Any],
    style: Mapping[str, Any],
    zorder: float,
) -> None:
    """Hatches some cells of a plane; ``corners`` and ``border`` are those of ``draw_missing``."""
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
    interpolated = (status == PointStatus.INTERPOLATED) & np.isfinite(values)
    if not interpolated.any():
        return []
    measured = (status == PointStatus.MEASURED) & np.isfinite(values)
    fewer = int(interpolated.sum()) <= int(measured.sum())
    x, y = (axis[interpolated if fewer else measured] for axis in points)
    name = "interpolated" if fewer else "measured"
    rest = "" if fewer else ", all others interpolated"
    return list(
        ax.plot(
            x, y, linestyle="none", marker="o", markersize=size, color="white" if fewer else "black",
            markeredgecolor="black", markeredgewidth=0.15 * size, alpha=0.75, zorder=2.5,
            label=f"{name} ({len(x):,}{rest})",
        )
    )  # fmt: skip


def runs(where: NDArray[Any]) -> NDArray[Any]:
    """Returns first and last + 1 of every unbroken run of True, shape (runs, 2)."""
    steps = np.diff(where, prepend=False, append=False)
    return np.flatnonzero(steps).reshape(-1, 2)
