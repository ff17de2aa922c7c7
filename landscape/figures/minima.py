"""The minima of a grid: as marks on a picture, and as diagrams of how deep each is and which saddle joins which."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..drawing.look import Axes, Look, check_look
from ..drawing.path import EDGE, halo, sized, write_beside
from ..drawing.sheet import Kind, Sheet, begin, set_value_axis, topology_scale
from ..drawing.texts import plain
from ..grid.data import LandscapeData
from ..scales.frame import Frame
from ..scales.levels import number_text
from ..topology.topology import Minimum, Topology, counted_minima, find_topology, left_out_text, letter, shallow_text

MINIMUM: dict[str, Any] = {"marker": "v", "color": "#b6ff3c", "markeredgecolor": EDGE, "markersize": 9}
SADDLE: dict[str, Any] = {"marker": "X", "color": "#ff9de2", "markeredgecolor": EDGE, "markersize": 7.5}
# Axes cannot end at infinity.
_LARGEST = 1e300
_MOST_PLACES = 8
_MOST_LETTERS = 26


def draw_minima(sheet: Sheet) -> None:
    """Marks minima, with letters from the lowest on, and saddles on a sheet; does nothing where none were asked for."""
    found, size = sheet.topology, sheet.appearance.number_size
    if found is None:
        return
    for points, style, label in marks_of(found, sheet.landscape, furnished=sheet.furniture):
        if points:
            x, y = _places(sheet, points).T
            sheet.mark(x, y, label, style, 6.5, clip_on=False)

    def write_letters() -> None:
        places = _places(sheet, found.minima)
        style = {"fontweight": "bold", "color": MINIMUM["color"], "zorder": 8, "path_effects": halo(0.3 * size)}
        for index, (place, shift) in enumerate(zip(places, _letter_shift(sheet, places).tolist(), strict=True)):
            write_beside(sheet.ax, letter(index), place, shift, size, **style)

    sheet.late.append(write_letters)


def marks_of(
    found: Topology, landscape: LandscapeData, *, furnished: bool = True
) -> list[tuple[Sequence[Any], dict[str, Any], str]]:
    between = "saddle between them" if len(found.saddles) == 1 else "saddles between them"
    label = minima_label(found, landscape, furnished=furnished)
    return [(found.saddles, SADDLE, between), (found.minima, MINIMUM, label)]


def minima_label(found: Topology, landscape: LandscapeData, *, furnished: bool = True) -> str:
    # A legend that several pictures share says no numbers.
    if not furnished:
        return "minima of the grid, not of the network"
    lines = [f"{counted_minima(len(found.minima))} of the grid, not of the network", shallow_text(found, landscape)]
    return plain("; ".join(filter(None, lines)), 240).replace("; ", "\n")


def minima_pixels(sheet: Sheet) -> NDArray[Any]:
    """Returns boxes (left, bottom, right, top) in pixels around the marks and their letters, which must stay free."""
    found = sheet.topology
    pixels = sheet.ax.transData.transform(_places(sheet, [] if found is None else [*found.minima, *found.saddles]))
    half = 12 * sheet.appearance.factor * sheet.ax.figure.dpi / 72
    return np.hstack([pixels - half, pixels + half])


def letter_pixels(sheet: Sheet) -> NDArray[Any]:
    """Returns boxes (left, bottom, right, top) in pixels around the letters, over which no name may be written."""
    places = _places(sheet, [] if sheet.topology is None else sheet.topology.minima)
    pixel = sheet.ax.figure.dpi / 72
    pixels = sheet.ax.transData.transform(places) + _letter_shift(sheet, places) * pixel
    half = 0.6 * sheet.appearance.number_size * pixel
    return np.hstack([pixels - half, pixels + half])


def _letter_shift(sheet: Sheet, places: NDArray[Any]) -> NDArray[Any]:
    """Returns where minima's letters lie, in points from their marks: towards the middle, so never beyond the axes."""
    middle = np.reshape(sheet.ax.get_window_extent().extents, (2, 2)).mean(axis=0)
    return np.where(sheet.ax.transData.transform(places) > middle, -1, 1) * 7.5 * sheet.appearance.factor


def _places(sheet: Sheet, points: Sequence[Any]) -> NDArray[Any]:
    x, y, values = (np.array([getattr(point, name) for point in points], float) for name in ("x", "y", "value"))
    return np.column_stack([x, sheet.scale.tall.held(values)] if sheet.landscape.y is None else sheet.frame.place(x, y))


def plot_persistence(
    landscape: LandscapeData, ax: Axes | None = None, *, persistence: float | None = None, **look: Unpack[Look]
) -> Axes:
    """Draws each minimum of the grid over its value, at the height of the saddle that leads to a lower one.

    How far a point lies above the diagonal is its barrier. Minima that count have letters, as on a contour; the others
    are dots. The lowest minimum has no such saddle and stands at the top. A flat
    grid has no minima, and the picture says so.

    Args:
        landscape: a plane or a line.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        persistence: a minimum counts if its barrier is higher than this; None: as in ``Landscape.topology``.
        **look: metric, levels, scale, clip, theme, style, title, size; see ``Look``.

    Returns:
        The axes.

    Raises:
        KeyError: the landscape has no such metric.
        TypeError: an argument is unknown or has the wrong type.
        ValueError: the metric has no finite value, or an argument has a wrong value.

    Source: Edelsbrunner, Letscher and Zomorodian 2002.
    """
    return _draw(PERSISTENCE, landscape, ax, persistence, look)


def _draw(kind: Kind, landscape: LandscapeData, ax: Axes | None, persistence: float | None, look: Look) -> Axes:
    """Draws minima and what joins them, or that there are none, on a scale that spans minima and saddles."""
    check_look(kind.function, look)
    metric, cut = look.get("metric", "loss"), "line" if landscape.y is None else "plane"
    found = find_topology(landscape, metric, persistence)
    if not found.minima and not found.flat:
        raise ValueError(f"{kind.function} needs a landscape with a finite value of {metric}, but this one has none.")
    look = {**look, "scale": topology_scale(found, landscape, look), "levels": None, "clip": None}
    # Without a path in the picture there are no times to explain.
    with begin(replace(kind, plane=landscape.y is not None), landscape, ax, look, times=None) as sheet:
        # The axes are values, so nothing is to scale or not.
        sheet.frame, sheet.topology = Frame(None, 1.0), found
        if found.flat:
            sheet.ax.set(xticks=[], yticks=[])
            sheet.write_flat_note()
        else:
            kind.draw(sheet)
        left_out = f"\n{text} left out" if (text := left_out_text(found)) else ""
        sheet.write_title(f"minima of the grid on this {cut}, not of the network{left_out}")
        sheet.finish()
    return sheet.ax


def _draw_diagram(sheet: Sheet) -> None:
    ax, look, scale, found = sheet.ax, sheet.appearance, sheet.scale, sheet.topology
    assert found is not None
    set_value_axis(ax, scale, f"{sheet.label} at the saddle")
    if scale.flat:
        room = 0.5 * abs(scale.low) or 0.5
        ax.set_xlim(scale.low - room, scale.low + room)
    else:
        ax.set_xscale(ax.get_yscale(), **({"linthresh": scale.threshold} if scale.kind == "symlog" else {}))
        ax.set_xticks(scale.levels, labels=scale.texts())
        ax.set_xticks([], minor=True)
        ax.set_xlim(*ax.get_ylim())
    low, high = ax.get_xlim()
    # Above the last value there is room for what never ends.
    bottom, top = scale.forward([low, high])
    heights = np.minimum(top + np.array([0.06, 0.12]) * (top - bottom), scale.forward(_LARGEST))
    never, end = map(float, scale.height_values(heights))
    ax.set_ylim(low, end)
    line = np.geomspace(low, high, 2) if scale.kind == "log" else np.array([low, high])
    ax.plot(line, line, color=look.soft, linewidth=look.factor, zorder=1)
    if found.persistence:
        steps = scale.height_values(np.linspace(scale.forward(low), scale.forward(high), 200))
        sheet.entries += ax.plot(
            steps, steps + found.persistence, color=look.soft, linestyle="--", linewidth=look.factor, zorder=1,
            label=f"barrier of {found.persistence:.3g}",
        )  # fmt: skip
    if len(shallow := scale.held(found.pairs[~found.counted])):
        label = plain(shallow_text(found, sheet.landscape), 120)
        sheet.entries += ax.plot(*shallow.T, "o", color=look.soft, markersize=3 * look.factor, zorder=2, label=label)
    births = np.array([minimum.value for minimum in found.minima])
    deaths = births + [minimum.persistence for minimum in found.minima]
    ends = np.where(np.isfinite(deaths), deaths, never)
    label = minima_label(found, sheet.landscape).split("\n")[0]
    births = scale.held(births)
    sheet.mark(births, ends, label, MINIMUM, 4)
    ax.axhline(never, color=look.soft, linestyle=":", linewidth=look.factor, zorder=1)
    ax.text(
        0.99, never, "no lower one to reach", transform=ax.get_yaxis_transform(), ha="right", va="bottom",
        fontsize=look.number_size, color=look.ink,
    )  # fmt: skip
    for place, point in enumerate(zip(births, ends, strict=True)):
        write_beside(ax, letter(place), point, (-7.5 * look.factor, 0), look.number_size, color=look.ink, zorder=5)
    ax.set_xlabel(scale.label(f"{sheet.label} at the minimum"))
    ax.grid(alpha=look.grid_alpha)


def plot_merge_tree(
    landscape: LandscapeData, ax: Axes | None = None, *, persistence: float | None = None, **look: Unpack[Look]
) -> Axes:
    """Draws which minima of the grid are joined by which saddle.

    Each minimum is a line that begins at its value and rises to the saddle where its basin meets that of a lower
    minimum; the number beside it, such as +0.4, is its barrier. The line of the lowest one goes on to the top. A path
    between two minima must climb to the height at which their lines are joined. Minima that do not count are left out.
    Arguments and errors are ``plot_persistence``'s, and what a flat grid shows.
    """
    return _draw(MERGE_TREE, landscape, ax, persistence, look)


def leaf_order(found: Topology) -> list[int]:
    """Returns the minima from left to right, so that no two lines cross; each part of the grid by itself."""
    count = len(found.minima)
    leaves = {place: [place] for place in range(count)}
    for row, (first, second) in enumerate(found.merge_tree.tolist()):
        # The basin of the lower minimum stands on the left, so that its lowest one is its leftmost.
        left, right = sorted((leaves.pop(first), leaves.pop(second)))
        leaves[count + row] = left + right
    return [place for part in sorted(leaves.values()) for place in part]


def _draw_tree(sheet: Sheet) -> None:
    ax, look, scale, found = sheet.ax, sheet.appearance, sheet.scale, sheet.topology
    assert found is not None
    set_value_axis(ax, scale.tall, sheet.label)
    order = leaf_order(found)
    across = {place: index for index, place in enumerate(order)}
    ax.set_xlim(-0.7, len(order) - 0.3)
    if scale.flat:
        ax.set_ylim(scale.low - 0.5, scale.low + 0.5)
    top = ax.get_ylim()[1]
    color, width = look.series[0], 1.6 * look.factor
    ends = {saddle.joins[0]: saddle for saddle in found.saddles}
    for place, minimum in enumerate(found.minima):
        x, saddle = across[place], ends.get(place)
        foot, height = scale.held([minimum.value, top if saddle is None else saddle.value])
        ax.plot([x, x], [foot, height], color=color, linewidth=width, zorder=2, solid_capstyle="round")
        if saddle is not None:
            ax.plot([across[saddle.joins[1]], x], [height, height], color=color, linewidth=width, zorder=2)
    if len(order) == 1:
        middle = (0, (found.minima[0].value + top) / 2)
        style = {"ha": "left", "color": look.ink}
        write_beside(ax, "the only minimum: nothing joins", middle, (6, 0), look.number_size, **style)
    size = look.factor * (1.0 if len(order) <= _MOST_LETTERS else 0.35)
    columns = [across[saddle.joins[0]] for saddle in found.saddles], [across[place] for place in range(len(order))]
    for (points, style, label), places in zip(marks_of(found, sheet.landscape), columns, strict=True):
        if points:
            barriers = " (+ barrier)" if points is found.saddles and _has_places(sheet, order) else ""
            heights = scale.held([point.value for point in points])
            sheet.entries += ax.plot(
                places, heights, linestyle="none", label=label + barriers, zorder=4, **sized(style, size)
            )
    ax.grid(axis="y", alpha=look.grid_alpha)
    _write_names(sheet, found, order)


def _write_names(sheet: Sheet, found: Topology, order: list[int]) -> None:
    """Writes letters and places below the tree, and the barriers beside it, as far as they have room."""
    ax, look = sheet.ax, sheet.appearance
    if len(order) > _MOST_LETTERS:
        ax.set_xticks([])
        ax.set_xlabel(f"{len(order)} minima")
        return
    places = [found.minima[place] for place in order]
    named = _has_places(sheet, order)
    texts = [
        letter(place) + (f"\n({', '.join(_coordinates(sheet.landscape, point))})" if named else "")
        for place, point in zip(order, places, strict=True)
    ]
    ax.set_xticks(range(len(order)), labels=texts)
    ax.set_xlabel("minima, the lowest is A" + (" (below it its coordinates)" if named else ""))
    if not named:
        return
    for index, minimum in enumerate(places):
        if math.isfinite(minimum.persistence):
            place, barrier = (index, minimum.value + minimum.persistence), float(f"{minimum.persistence:.3g}")
            style = {"ha": "left", "va": "top", "color": look.ink}
            write_beside(ax, f"+{number_text(barrier)}", place, (4, -3), look.number_size, **style)


def _has_places(sheet: Sheet, order: list[int]) -> bool:
    """Whether there is room for the coordinates of minima, and for barriers."""
    return len(order) <= (_MOST_PLACES // 2 if sheet.appearance.paper else _MOST_PLACES)


def _coordinates(landscape: LandscapeData, point: Minimum) -> list[str]:
    """Returns the coordinates of a minimum as text; what an axis's rounding left of a zero is one."""
    pairs = ((point.x, landscape.x), (point.y, landscape.y))
    return [
        f"{0.0 if abs(value) < 1e-9 * np.ptp(axis) else value:.2g}"
        for value, axis in pairs
        if value is not None and axis is not None
    ]


MERGE_TREE = Kind("plot_merge_tree", _draw_tree, count=8, size=(6.4, 4.4), paper_height=2.9)
PERSISTENCE = Kind("plot_persistence", _draw_diagram, count=8, size=(5.6, 5.2), paper_height=3.4)
