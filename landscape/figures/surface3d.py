"""A plane as a surface in three dimensions, with its contour lines and the path on the floor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from ..drawing import path as marks
from ..drawing.appearance import SMALLEST_TYPE, readable
from ..drawing.camera import FLOOR, best_camera, feet_on_surface
from ..drawing.look import Axes, Look
from ..drawing.missing import coarse_entry, edges, plateaus, washed
from ..drawing.occlusion import Relief
from ..drawing.path import marked, pieces, strong_color
from ..drawing.placement import HEAD
from ..drawing.sheet import Kind, Sheet, draw_picture
from ..drawing.texts import flat_note, metric_text, plain
from ..grid.data import LandscapeData
from ..scales.frame import span
from ..scales.landscape_scale import missing_kinds

_DOT_COLORS = 32


def plot_surface(landscape: LandscapeData, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
    """Draws a plane's metric as a surface, seen from the same place for every file; see ``camera``.

    A run's path is at the heights of its projection on the plane, which the legend says: a checkpoint's own loss
    belongs to a place off the plane. Between two checkpoints it follows the surface. What the surface hides from the
    camera is faint, and the path is dotted there, also after ``axes.view_init``.

    Args:
        landscape: a plane; ``metric[j, i]`` is drawn above ``(x[i], y[j])``.
        ax: three-dimensional axes; None makes a figure of its own, which is ``axes.figure``.
        **look: metric, levels, scale, colormap, trajectory, clip, theme, style, aspect, title, size, camera; see
            ``Look``. On a logarithmic scale heights are logarithms, and ticks say the values.

    Returns:
        The axes.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type, or ``ax`` is flat.
    """
    return draw_picture(SURFACE, landscape, ax, look)


def draw_surface(sheet: Sheet) -> None:
    scale, look = sheet.scale, sheet.appearance
    space = cast(Any, sheet.ax)
    if sheet.own:
        # The layout engine misjudges three-dimensional axes; they are placed when everything around them is there.
        space.figure.set_layout_engine("none")
    heights = scale.heights(sheet.measured)
    low, high = scale.tall.height_range
    floor = low - FLOOR * (high - low)
    space.computed_zorder = False
    space.set_zlim(floor, high)
    across, up = sheet.frame.limits(*map(span, sheet.plane))
    space.set_xlim(*across)
    space.set_ylim(*up)
    width, depth, height = sheet.frame.box
    zoom = 0.84 if look.paper or not sheet.furniture else 1.0
    space.set_box_aspect((width, depth, height * (1 + FLOOR)), zoom=zoom)
    if _draw_cells(sheet, heights, high - low) and not scale.flat:
        space.contour(
            *sheet.frame.mesh(*sheet.plane), np.ma.masked_invalid(heights), levels=scale.forward(scale.levels),
            zdir="z", offset=floor, cmap=readable(sheet.colors, look.theme), vmin=scale.forward(scale.low),
            vmax=scale.forward(scale.high), linewidths=0.9 * look.factor, zorder=1,
        )  # fmt: skip
    _write_labels(sheet)
    camera = sheet.camera or best_camera(sheet.landscape, sheet.metric, scale, sheet.frame)
    camera.place(space)
    if sheet.trajectory:
        _draw_path(sheet, Relief(*sheet.plane, heights, sheet.frame.matrix), floor)
        sheet.note_own_values()
    least = 0.045 * (2 if look.paper or not sheet.furniture else 1) * (high - floor)
    ticks = scale.tall.ticks()
    space.set_zticks(scale.forward(ticks), labels=scale.tall.spaced_texts(scale.tall.forward(ticks), least, ticks))
    kinds = missing_kinds(sheet.values, sheet.status, sheet.coarse)
    notes = [f"{int(where.sum())} points {kind}" for kind, where in kinds.items()]
    notes += [flat_note(sheet.label, scale.low, sheet.measured)] if scale.flat else []
    sheet.write_title(", ".join(notes))
    if not sheet.own:
        space.title.set_y(0.94)


def _write_labels(sheet: Sheet) -> None:
    space, look, size = cast(Any, sheet.ax), sheet.appearance, sheet.appearance.small_size
    small = look.paper or not sheet.furniture
    for axis, setter in ((0, space.set_xlabel), (1, space.set_ylabel)):
        setter(sheet.axis_text(axis, narrow=True), fontsize=size, labelpad=5 if small else 14)
    # The axis of a box has no room for two lines.
    space.set_zlabel(sheet.scale.tall.label(sheet.label), fontsize=size, labelpad=-2 if small else 8)
    space.tick_params(labelsize=max(SMALLEST_TYPE, size - 1), pad=-3 if small else 2)
    for name in ("x", "y"):
        # At the corner where two axes meet their last numbers would touch.
        space.locator_params(axis=name, nbins=4 if small else 5, prune="both")
    if look.own_colors:
        for axis in (space.xaxis, space.yaxis, space.zaxis):
            axis.line.set_color(look.soft)


def _draw_cells(sheet: Sheet, heights: NDArray[Any], height: float) -> bool:
    """Draws each cell whose four corners have values, coarse cells, and dots for values of no cell; is there a cell?"""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

    low, high = sheet.scale.height_range
    space = cast(Any, sheet.ax)
    grid = np.stack([*sheet.frame.mesh(*sheet.plane), heights], axis=-1)
    corners = np.stack([grid[:-1, :-1], grid[:-1, 1:], grid[1:, 1:], grid[1:, :-1]], axis=2)
    whole = np.isfinite(corners[..., 2]).all(axis=2)
    used = np.zeros(heights.shape, np.bool_)
    for rows, columns in itertools.product((slice(None, -1), slice(1, None)), repeat=2):
        used[rows, columns] |= whole
    cells = corners[whole]
    colors = sheet.colors((cells[..., 2].mean(axis=1) - low) / (high - low))
    sizes = np.array([*(np.ptp(grid[..., :2], axis=(0, 1)) / sheet.frame.box[:2]), height])
    colors[:, :3] *= _shade(cells, sizes)[:, None]
    # Plateaus are in the same collection, which is drawn from back to front.
    flat, flat_colors, outlines = _plateaus(sheet, used, (low, high))
    cells, colors, outlines = map(np.concatenate, ((cells, flat), (colors, flat_colors), (colors, outlines)))
    if len(cells):
        paint = {"facecolors": colors, "edgecolors": outlines, "linewidths": 0.2, "zorder": 2}
        space.add_collection3d(Poly3DCollection(cells, rasterized=len(cells) > 5000, **paint))
    alone = grid[np.isfinite(heights) & ~used]
    if len(alone):
        from ..drawing.surface_line import SurfaceLine

        relief = Relief(*sheet.plane, heights, sheet.frame.matrix)
        shares = np.round(_DOT_COLORS * (alone[:, 2] - low) / (high - low)) / _DOT_COLORS
        for share in np.unique(shares):
            style = {"linestyle": "none", "marker": "o", "markersize": 3.5, "color": sheet.colors(share)}
            space.add_line(SurfaceLine(alone[shares == share], relief, label="_alone", zorder=3, **style))
    return bool(whole.any())


def _plateaus(
    sheet: Sheet, used: NDArray[Any], ends: tuple[float, float]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns coarse cells as flat pieces: corners, shape (n, 4, 3), colours of faces and of outlines, each (n, 4)."""
    from matplotlib.colors import to_rgba

    pieces = plateaus(sheet.scale.heights(sheet.coarse), sheet.status, used)
    if not len(pieces):
        return np.empty((0, 4, 3)), np.empty((0, 4)), np.empty((0, 4))
    bottom, top, left, right, index = pieces.T
    # A cell at the border does not reach beyond it.
    x, y = (np.clip(edges(axis), axis[0], axis[-1]) for axis in sheet.plane)
    z = sheet.scale.heights(sheet.measured).reshape(-1)[index]
    ring = [(left, bottom), (right, bottom), (right, top), (left, top)]
    pieces = np.stack([np.column_stack([*sheet.frame.place(x[across], y[up]), z]) for across, up in ring], axis=1)
    look = sheet.appearance
    faces = washed(sheet.colors, look.page)((z - ends[0]) / (ends[1] - ends[0]))
    sheet.entries.append(coarse_entry(sheet))
    return pieces, faces, np.tile(to_rgba(look.soft), (len(pieces), 1))


def _shade(cells: NDArray[Any], size: NDArray[Any]) -> NDArray[Any]:
    """Returns how bright each cell is, 0 to 1, under a light from above, in the proportions of the drawn box."""
    normals = np.cross((cells[:, 2] - cells[:, 0]) / size, (cells[:, 3] - cells[:, 1]) / size)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    light = np.array([-0.4, -0.3, 0.87])
    return np.asarray(np.clip(0.72 + 0.28 * (normals @ light), 0, 1))


def _draw_path(sheet: Sheet, relief: Relief, floor: float) -> None:
    from matplotlib.lines import Line2D

    from ..drawing.surface_line import DOTTED, FAINT, SurfaceLine

    landscape, scale, metric = sheet.landscape, sheet.scale, sheet.metric
    space, factor = cast(Any, sheet.ax), sheet.appearance.factor

    drawn: list[SurfaceLine] = []

    def add(points: NDArray[Any], label: str, zorder: float, kind: Any = SurfaceLine, **style: Any) -> Any:
        drawn.append(space.add_line(kind(points, relief, label=label, zorder=zorder, **style)))
        return drawn[-1]

    def add_mark(points: NDArray[Any], label: str, zorder: float, style: dict[str, Any]) -> None:
        sheet.entries.append(add(points, label, zorder, linestyle="none", **marks.sized(style, factor)))

    found, feet = landscape.checkpoints, feet_on_surface(landscape, metric, scale, sheet.frame)
    if found is not None and feet is not None:
        heights = feet[:, 2]
        for index, whole in sheet.paths:
            rows = whole[np.isfinite(heights[whole])]
            if not len(rows):
                continue
            x, y, _ = feet[rows].T
            below = np.full(len(x), floor)
            space.plot(x, y, below, color=sheet.appearance.soft, linewidth=0.8 * factor, linestyle=":", zorder=1.5)
            label = f"{marks.run_label(landscape, rows)} (projected {metric_text(landscape, metric)})"
            if sheet.times is None or len(rows) < 2:
                _draw_run(add, relief, feet[rows], index, label, sheet)
            else:
                _draw_timed_run(add, relief, feet[rows], found.number[rows], index, label, sheet)
        for at, style, name in ((0, marks.START, "start"), (-1, marks.END, "end")):
            ends = [int(rows[at]) for rows in found.paths if len(rows) > 1 and np.isfinite(heights[rows[at]])]
            if ends and (name == "start" or sheet.times is not None):
                add_mark(feet[ends], name + marks.end_number(landscape, ends), 7, style)
        for row, style in marks.network_marks(landscape):
            if np.isfinite(heights[row]):
                add_mark(feet[[row]], plain(found.name[row], 32), 7, style)
    point = landscape.origin
    at_origin = float(scale.tall.heights(point.metrics.get(metric, math.nan)))
    if math.isfinite(at_origin):
        place = np.column_stack([*sheet.frame.place([point.x], [point.y or 0.0]), [at_origin]])
        add_mark(place, marks.origin_label(landscape), 8, marks.STAR)
    if any(line.get_linestyle() != "None" and line.hidden().any() for line in drawn):
        color = marks.PATH if sheet.times is None else strong_color(0)
        faint: dict[str, Any] = {"linewidth": 1.6 * factor, "linestyle": DOTTED, "alpha": FAINT}
        sheet.entries.append(Line2D([], [], label="behind the surface", color=color, **faint))


def _draw_run(
    add: Callable[..., Any], relief: Relief, points: NDArray[Any], index: int, label: str, sheet: Sheet
) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.lines import Line2D

    from ..drawing.surface_line import SurfaceArrows

    color, factor = marks.run_color(index), sheet.appearance.factor
    stroke: dict[str, Any] = {"color": color, "linewidth": 1.6 * factor}
    dots: dict[str, Any] = {
        "color": color, "marker": "o", "markersize": 3.5 * factor, "markeredgecolor": marks.EDGE,
        "markeredgewidth": 0.5 * factor,
    }  # fmt: skip
    way = relief.path_over(points)
    add(way, "_path", 6, **stroke)
    add(points, label, 6.1, linestyle="none", **dots)
    if len(points) > 1:
        colors = np.tile(to_rgb(color), (len(way), 1))
        add(way, "_arrows", 6.5, kind=SurfaceArrows, colors=colors, head=HEAD * max(factor, 0.75))
    sheet.entries.append(Line2D([], [], label=label, **{**dots, **stroke}))


def _draw_timed_run(
    add: Callable[..., Any], relief: Relief, points: NDArray[Any], numbers: NDArray[Any], index: int, label: str,
    sheet: Sheet,
) -> None:  # fmt: skip
    from mpl_toolkits.mplot3d.proj3d import proj_transform  # type: ignore[import-untyped]

    from ..drawing.surface_line import SurfaceArrows

    times, factor, space = sheet.times, sheet.appearance.factor, cast(Any, sheet.ax)
    assert times is not None
    add(relief.path_over(points), "_path", 6, faint=0.0, color=marks.EDGE, linewidth=1.6 * marks.WIDTH * factor)
    ways, colors = [], []
    for piece, time in pieces(numbers, most=64):
        way, color = relief.path_over(points[piece]), times.colors(index, [time])
        add(way, "_time", 6.1, color=color[0], linewidth=marks.WIDTH * factor)
        ways.append(way)
        colors.append(np.tile(color, (len(way), 1)))
    across, up, _ = proj_transform(*points.T, space.get_proj())
    dots = marked(marks.in_points(space, np.column_stack([across, up])), numbers, marks.DOT * factor)
    # The line has all checkpoints, of which some are marked.
    add(points, label, 6.2, **{**marks.dot_style(factor), "markevery": dots.rows.tolist()})
    colored = {"colors": np.vstack(colors), "head": HEAD * max(factor, 0.75)}
    add(np.vstack(ways), "_arrows", 6.5, kind=SurfaceArrows, **colored)
    sheet.dots.append(dots)
    sheet.entries.append(marks.timed_handle(label, index, factor))


SURFACE = Kind("plot_surface", draw_surface, count=8, size=(7.2, 6.0), paper_height=3.2, projection="3d", heights=True)
