"""Ways between two networks: on one axis, each with its rise above its chord, or over the contours of a plane."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from collectors.validation import wrong_type, wrong_value

from ..drawing.look import Axes, Look
from ..drawing.path import halo, stroke
from ..drawing.sheet import Kind, Sheet, begin, set_value_axis, shared_scale
from ..drawing.texts import axis_label, barrier_text, between, metric_text, network_name, plain, value_notes
from ..grid.data import LandscapeData
from ..grid.differences import chord_of, highest_rise
from ..scales.landscape_scale import known, missing_kinds
from ..scales.scale import Scale
from .contour import CONTOUR
from .profile import mark_missing

_ENDS = 0.02
_ROUTE_STROKES = ("--", "-", "-.", ":")


def plot_barriers(
    ways: Mapping[str, LandscapeData] | LandscapeData, ax: Axes | None = None, **look: Unpack[Look]
) -> Axes:
    """Draws a metric along one or several ways between two networks, each with its barrier as an arrow from its chord.

    Args:
        ways: name to a line or a curve that was measured from 0 to 1, such as {"straight": ..., "curved": ...}; or one
            of them.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        **look: metric, levels, scale, clip, theme, style, title, size; see ``Look``. The scale is linear by default,
            because a barrier is a difference.

    Returns:
        The axes.

    Raises:
        KeyError: a landscape has no such metric.
        ValueError: a landscape is a plane or does not go from 0 to 1, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    named = {"": ways} if isinstance(ways, LandscapeData) else ways
    if not isinstance(named, Mapping) or not all(isinstance(item, LandscapeData) for item in named.values()):
        raise wrong_type("ways", "a dict from names to landscapes of lines", ways)
    if not named:
        raise wrong_value("ways", "at least one way between two networks", {})
    lines, metric = list(named.values()), look.get("metric", "loss")
    for line in lines:
        chord_of(line, metric)  # raises for what is no way
    scale = barriers_scale(lines, look)
    chosen: Look = {**look, "scale": scale, "levels": None, "clip": None}
    notes = list(dict.fromkeys(note for line in lines for note in value_notes(line, metric)))
    with begin(BARRIERS, lines[0], ax, chosen, estimates=notes) as sheet:
        set_value_axis(sheet.ax, scale.tall, sheet.label)
        for index, (name, line) in enumerate(named.items()):
            _draw_way(sheet, index, plain(str(name), 32), line)
        sheet.ax.set_xlim(-_ENDS, 1 + _ENDS)
        same_pair = len({between(line, 0) for line in lines}) == 1
        sheet.ax.set_xlabel(axis_label(lines[0], 0) if same_pair else "from the first network to the second")
        sheet.ax.grid(alpha=sheet.appearance.grid_alpha)
        architectures = {plain(network_name(line.attributes) or "", 40) for line in lines}
        # The points of all ways are counted and marked together.
        sheet.status = np.concatenate([line.status for line in lines])
        missing = missing_kinds(np.concatenate([line[metric] for line in lines]), sheet.status)
        mark_missing(sheet, np.concatenate([line.x for line in lines]), missing)
        usual = None if same_pair else architectures.pop() if len(architectures) == 1 else ""
        sheet.write_title(usual=usual)
        if scale.flat:
            sheet.write_flat_note()
        sheet.finish()
    return sheet.ax


def plot_routes(
    landscape: LandscapeData, routes: Mapping[str, ArrayLike], ax: Axes | None = None, **look: Unpack[Look]
) -> Axes:
    """Draws a plane's contours, and over them the ways that run in it.

    Args:
        landscape: a plane, such as that of ``path.plane()``.
        routes: name to coordinates on it, shape (points, 2), such as ``path.routes()``.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        **look: see ``plot_contour``.

    Returns:
        The axes.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    expected = "a dict from names to coordinates, each of shape (points, 2)"
    if not isinstance(routes, Mapping):
        raise wrong_type("routes", expected, routes)
    places = {plain(str(name), 32): np.asarray(route, np.float64) for name, route in routes.items()}
    if not all(route.ndim == 2 and route.shape[1] == 2 for route in places.values()):
        raise ValueError(f"routes must be {expected}, but got {[route.shape for route in places.values()]}.")
    with begin(CONTOUR, landscape, ax, look) as sheet:
        CONTOUR.draw(sheet)
        for index, (name, route) in enumerate(places.items()):
            width, color = 2 * sheet.appearance.factor, sheet.appearance.series[index % len(sheet.appearance.series)]
            sheet.entries += sheet.ax.plot(
                *sheet.frame.place(*route.T), color=color, linewidth=width, label=name, zorder=3.2,
                linestyle=_ROUTE_STROKES[index % len(_ROUTE_STROKES)], path_effects=halo(width),
            )  # fmt: skip
        sheet.finish()
    return sheet.ax


def barriers_scale(lines: Sequence[LandscapeData], look: Look) -> Scale:
    """Returns the scale of several ways: the user's, or one that spans all, which is linear unless another is asked."""
    if isinstance(scale := look.get("scale"), Scale):
        return scale
    return shared_scale(BARRIERS, lines, {"scale": "linear", **look, "trajectory": True})


def _draw_way(sheet: Sheet, index: int, name: str, line: LandscapeData) -> None:
    look, ax, metric = sheet.appearance, sheet.ax, sheet.metric
    color, line_style = look.series[index % len(look.series)], stroke(index)
    values, rise, height_of = known(line[metric], line.status), highest_rise(line, metric), sheet.scale.tall.held
    label = (f"{name}: " if name else f"{metric_text(line, metric)}, ") + barrier_text(rise)
    sheet.entries += ax.plot(
        line.x, height_of(values), color=color, linestyle=line_style, linewidth=1.5 * look.factor, marker="o",
        markersize=2.5 * look.factor, label=label, zorder=3,
    )  # fmt: skip
    stderr = line.metrics.get("loss_stderr") if metric == "loss" else None
    if stderr is not None and np.isfinite(stderr).any():
        ax.fill_between(line.x, values - stderr, values + stderr, color=color, alpha=0.2, linewidth=0, zorder=1)
    ax.plot(line.x, height_of(chord_of(line, metric)), color=color, linestyle=":", linewidth=look.factor, zorder=2)
    if rise.height > 0 and math.isfinite(rise.height):
        arrow = {"arrowstyle": "<->", "color": color, "linewidth": look.factor, "shrinkA": 0.0, "shrinkB": 0.0}
        ax.annotate("", (rise.at, rise.chord + rise.height), (rise.at, rise.chord), arrowprops=arrow, zorder=4)


# What draws it takes all ways, not one sheet.
BARRIERS = Kind("plot_barriers", lambda _: None, plane=False, count=8, size=(6.4, 4.4), paper_height=2.5, heights=True)
