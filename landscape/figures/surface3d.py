"""A plane as a surface in three dimensions, with its contour lines and the path on the floor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from collectors.network_state import Array
from collectors.validation import check_bool, wrong_type

from .canvas import new_axes
from .legend import draw_legend
from .missing import known, missing_kinds
from .path import EDGE, STAR, START, with_path
from .scales import Clip, Scale, choose_scale, number_text
from .texts import axis_label, flat_note, plain, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..surface import Landscape

_PATH = "#e5383b"
_FLOOR = 0.35
_ELEVATION = 30.0


def plot_surface(
    landscape: Landscape,
    ax: Axes | None = None,
    metric: str = "loss",
    levels: int = 8,
    scale: str = "auto",
    colormap: str = "viridis",
    trajectory: bool = True,
    clip: Clip = None,
) -> Axes:
    """Draws a plane's metric as a surface, seen over its lowest corner.

    The path runs at the heights of its projection on the plane, which the legend says: a checkpoint's own loss
    belongs to a place off the plane.

    Args:
        landscape: a plane; ``metric[j, i]`` is drawn above ``(x[i], y[j])``.
        ax: three-dimensional axes; None makes a figure of its own, which is ``axes.figure``.
        metric: which of the landscape's metrics.
        levels: about how many contour lines and ticks.
        scale: "auto", "log", "linear" or "symlog"; heights are logarithms, ticks say the values.
        colormap: matplotlib's name of the colours.
        trajectory: whether the path and the convergence point are drawn.
        clip: the largest value to tell apart, or (smallest, largest); None chooses from the data.

    Returns:
        The axes.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line, or an argument has a wrong value.
        TypeError: an argument has the wrong type, or ``ax`` is flat.
    """
    if landscape.y is None:
        raise ValueError("plot_surface needs a plane, but the landscape is a line; use plot_profile.")
    check_bool("trajectory", trajectory)
    measured = known(landscape[metric], landscape.status)
    chosen = choose_scale(with_path(landscape, metric, measured) if trajectory else measured, scale, levels, clip)
    own = ax is None
    if ax is None:
        ax = new_axes(7.2, 6.0, projection="3d")
        ax.figure.set_layout_engine("none")  # type: ignore[union-attr]
        ax.set_position((0.03, 0.10, 0.86, 0.82))
    if ax.name != "3d":
        raise wrong_type("ax", "three-dimensional axes (add_subplot(projection='3d'))", ax)
    space = cast(Any, ax)
    heights = chosen.forward(chosen.shown(measured)) if not chosen.empty else np.full(measured.shape, np.nan)
    low, high = _height_range(chosen)
    floor = low - _FLOOR * (high - low)
    space.computed_zorder = False
    space.set_zlim(floor, high)
    _set_limits(space, landscape.x, landscape.y)
    _draw_cells(space, landscape.x, landscape.y, heights, (low, high), colormap)
    if not chosen.flat:
        _draw_floor(space, landscape.x, landscape.y, heights, chosen, floor, colormap)
    if trajectory:
        _draw_path(space, landscape, metric, chosen, floor)
    space.set_zticks(chosen.forward(chosen.levels), labels=chosen.texts())
    space.set_xlabel(axis_label(landscape, 0).replace(" (", "\n("), fontsize=9, labelpad=14)
    space.set_ylabel(axis_label(landscape, 1).replace(" (", "\n("), fontsize=9, labelpad=14)
    space.set_zlabel(chosen.label(plain(metric)), fontsize=9, labelpad=8)
    space.tick_params(labelsize=8)
    space.locator_params(axis="x", nbins=5)
    space.locator_params(axis="y", nbins=5)
    notes = [
        f"{int(where.sum())} points {kind}"
        for kind, where in missing_kinds(landscape[metric], landscape.status).items()
    ]
    if chosen.flat:
        notes.append(flat_note(plain(metric), chosen.low, number_text(chosen.low), measured))
    space.set_title("\n".join([title(landscape), *([", ".join(notes)] if notes else [])]), fontsize="medium", y=1.01)
    space.view_init(elev=_ELEVATION, azim=_azimuth(heights))
    draw_legend(ax, ax.get_legend_handles_labels()[0], outside=own)
    return ax


def _height_range(scale: Scale) -> tuple[float, float]:
    if scale.empty:
        return 0.0, 1.0
    low, high = float(scale.forward(scale.low)), float(scale.forward(scale.high))
    return (low - 0.5, low + 0.5) if scale.flat else (low, high)


def _set_limits(space: Any, x: Array, y: Array) -> None:
    for axis, set_limits in ((x, space.set_xlim), (y, space.set_ylim)):
        half = 0.0 if len(axis) > 1 else 0.5
        set_limits(axis[0] - half, axis[-1] + half)


def _draw_cells(space: Any, x: Array, y: Array, heights: Array, limits: tuple[float, float], colormap: str) -> None:
    """Draws every cell whose four corners have values, and a dot for a value that belongs to no such cell."""
    from matplotlib import colormaps
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

    low, high = limits
    map_colors = colormaps[colormap]
    grid = np.stack([*np.meshgrid(x, y), heights], axis=-1)
    corners = np.stack([grid[:-1, :-1], grid[:-1, 1:], grid[1:, 1:], grid[1:, :-1]], axis=2)
    whole = np.isfinite(corners[..., 2]).all(axis=2)
    used = np.zeros(heights.shape, np.bool_)
    for rows in (slice(None, -1), slice(1, None)):
        for columns in (slice(None, -1), slice(1, None)):
            used[rows, columns] |= whole
    cells = corners[whole]
    if len(cells):
        colors = map_colors((cells[..., 2].mean(axis=1) - low) / (high - low))
        colors[:, :3] *= _shade(cells, np.array([np.ptp(x), np.ptp(y), high - low]))[:, None]
        space.add_collection3d(
            Poly3DCollection(
                cells, facecolors=colors, edgecolors=colors, linewidths=0.2, rasterized=len(cells) > 5000, zorder=2
            )
        )
    alone = grid[np.isfinite(heights) & ~used]
    if len(alone):
        space.scatter(*alone.T, c=map_colors((alone[:, 2] - low) / (high - low)), s=12, depthshade=False, zorder=3)


def _shade(cells: Array, size: Array) -> Array:
    """Returns how bright each cell is, 0 to 1, under a light from above; judged in the box, not in the data."""
    across = (cells[:, 2] - cells[:, 0]) / size
    other = (cells[:, 3] - cells[:, 1]) / size
    normals = np.cross(across, other)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    light = np.array([-0.4, -0.3, 0.87])
    return np.asarray(np.clip(0.72 + 0.28 * (normals @ light), 0, 1))


def _draw_floor(space: Any, x: Array, y: Array, heights: Array, scale: Scale, floor: float, colormap: str) -> None:
    finite = np.isfinite(heights)
    if min(heights.shape) < 2 or not (finite[:-1, :-1] & finite[1:, 1:] & finite[:-1, 1:] & finite[1:, :-1]).any():
        return
    across, up = np.meshgrid(x, y)
    space.contour(
        across, up, np.ma.masked_invalid(heights), levels=scale.forward(scale.levels), zdir="z", offset=floor,
        cmap=colormap, vmin=scale.forward(scale.low), vmax=scale.forward(scale.high), linewidths=0.9, zorder=1,
    )  # fmt: skip


def _draw_path(space: Any, landscape: Landscape, metric: str, scale: Scale, floor: float) -> None:
    def height(values: Any) -> Array:
        values = np.asarray(values, np.float64)
        return np.full(values.shape, np.nan) if scale.empty else scale.forward(scale.shown(values))

    path = landscape.trajectory
    if path is not None and path.y is not None and metric in path.projected and len(path.number):
        up = height(path.projected[metric])
        there = np.flatnonzero(np.isfinite(up))
        x, y, up = path.x[there], path.y[there], up[there]
        space.plot(x, y, np.full(len(x), floor), color=EDGE, linewidth=0.8, linestyle=":", zorder=1.5)
        space.plot(
            x, y, up, color=_PATH, linewidth=1.6, marker="o", markersize=3.5, markeredgecolor=EDGE,
            markeredgewidth=0.5, label=f"trajectory (projected {plain(metric)})", zorder=6,
        )  # fmt: skip
        if len(there) and there[0] == 0:
            unit = plain(landscape.attributes.get("unit") or "checkpoint", 16)
            label = f"start ({unit} {path.number[0]})"
            space.plot(x[:1], y[:1], up[:1], linestyle="none", label=label, zorder=7, **START)
    point = landscape.convergence
    at = float(height(point.metrics.get(metric, math.nan)))
    if math.isfinite(at):
        space.plot([point.x], [point.y], [at], linestyle="none", label="convergence point", zorder=8, **STAR)


def _azimuth(heights: Array) -> float:
    """Returns from where the surface hides least of itself: over the side where it is lowest."""
    finite = np.isfinite(heights)
    if not finite.any():
        return -60.0
    deviation = np.where(finite, heights - heights[finite].mean(), 0.0)
    right = np.linspace(-1, 1, heights.shape[1])
    up = np.linspace(-1, 1, heights.shape[0])[:, None]

    def front(azimuth: float) -> float:
        toward = right * math.cos(math.radians(azimuth)) + up * math.sin(math.radians(azimuth))
        return float((deviation * toward).sum())

    return min((-60.0, 30.0, 120.0, -150.0), key=front)
