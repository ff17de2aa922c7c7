"""The persistence diagram: how deep each minimum of the grid is, also those that do not count."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..drawing.look import Look
from ..drawing.path import sized
from ..drawing.sheet import Kind, Sheet, begin_topology, draw_flat, nothing, truth
from ..drawing.texts import plain
from ..topology.topology import Topology
from ..topology.words import letter, shallow_text
from .minima import MINIMUM, minima_label
from .profile import set_value_axis

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes

    from ..grid.data import LandscapeData


# Axes cannot end at infinity.
_LARGEST = 1e300


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
    with begin_topology(PERSISTENCE, landscape, ax, persistence, look) as (sheet, found):
        if found.flat:
            draw_flat(sheet)
        else:
            _draw_diagram(sheet, found)
        sheet.write_title(truth(landscape, found))
        sheet.finish()
    return sheet.ax


def _draw_diagram(sheet: Sheet, found: Topology) -> None:
    ax, look, scale = sheet.ax, sheet.appearance, sheet.scale
    shallow = found.pairs[~found.counted]
    _shape_axes(sheet)
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
    if len(shallow):
        sheet.entries += ax.plot(
            *shallow.T, "o", color=look.soft, markersize=3 * look.factor, zorder=2,
            label=plain(shallow_text(found, sheet.landscape), 120),
        )  # fmt: skip
    births = np.array([minimum.value for minimum in found.minima])
    deaths = np.array([minimum.value + minimum.persistence for minimum in found.minima])
    ends = np.isfinite(deaths)
    label = minima_label(found, sheet.landscape).split("\n")[0]
    sheet.entries += ax.plot(
        births, np.where(ends, deaths, never), linestyle="none", label=label, zorder=4, **sized(MINIMUM, look.factor)
    )
    ax.axhline(never, color=look.soft, linestyle=":", linewidth=look.factor, zorder=1)
    ax.text(
        0.99, never, "no lower one to reach", transform=ax.get_yaxis_transform(), ha="right", va="bottom",
        fontsize=look.number_size, color=look.ink,
    )  # fmt: skip
    for place, (birth, death) in enumerate(zip(births, deaths, strict=True)):
        ax.annotate(
            letter(place), (birth, death if math.isfinite(death) else never), xytext=(-7.5 * look.factor, 0),
            textcoords="offset points", ha="center", va="center", fontsize=look.number_size, color=look.ink, zorder=5,
        )  # fmt: skip
    ax.set_xlabel(scale.label(f"{sheet.label} at the minimum"))
    ax.set_ylabel(scale.label(f"{sheet.label} at the saddle"))
    ax.grid(alpha=0.25 if look.theme == "light" else 0.6)


def _shape_axes(sheet: Sheet) -> None:
    ax, scale = sheet.ax, sheet.scale
    if scale.flat:
        room = 0.5 * abs(scale.low) or 0.5
        ax.set_xlim(scale.low - room, scale.low + room)
        return
    set_value_axis(ax, scale)
    ax.set_xscale(ax.get_yscale(), **({"linthresh": scale.threshold} if scale.kind == "symlog" else {}))
    ax.set_xticks(scale.levels, labels=scale.texts())
    ax.set_xticks([], minor=True)
    ax.set_xlim(*ax.get_ylim())


PERSISTENCE = Kind("plot_persistence", nothing, count=8, size=(5.6, 5.2), paper_height=3.4)
