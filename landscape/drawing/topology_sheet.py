"""What the pictures of minima alone share: the sheet that they begin with, and the scale of its values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..scales.choosing import choose_scale
from ..scales.frame import Frame
from ..scales.landscape_scale import known
from ..scales.scale import EXTREME, Scale
from ..topology.topology import Topology, find_topology
from ..topology.words import left_out_text
from .look import Look, check_look
from .sheet import Kind, Sheet, begin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..grid.data import LandscapeData


@contextlib.contextmanager
def begin_topology(
    kind: Kind, landscape: LandscapeData, ax: Axes | None, persistence: float | None, look: Look
) -> Iterator[tuple[Sheet, Topology]]:
    """Checks the options, finds the minima, and yields a sheet whose scale spans them and the saddles between them."""
    check_look(kind.function, look)
    metric = look.get("metric", "loss")
    found = find_topology(landscape, metric, persistence)
    if not found.minima and not found.flat:
        raise ValueError(f"{kind.function} needs a landscape with a finite value of {metric}, but this one has none.")
    look = {**look, "scale": topology_scale(found, landscape, look), "levels": None, "clip": None}
    # Without a path in the picture there are no times to explain.
    with begin(replace(kind, plane=landscape.y is not None), landscape, ax, look, times=None) as sheet:
        # The axes are values, so nothing is to scale or not.
        sheet.frame = Frame(None, 1.0)
        yield sheet, found


def topology_scale(found: Topology, landscape: LandscapeData, look: Look) -> Scale:
    wanted = look.get("scale", "auto")
    if isinstance(wanted, Scale):
        return wanted
    heights = [minimum.value for minimum in found.minima] + [saddle.value for saddle in found.saddles]
    if found.flat:
        heights = [float(np.nanmin(known(landscape[found.metric], landscape.status)))]
    values = np.clip(heights, -EXTREME, EXTREME)
    values[(values > 0) & (values < 1 / EXTREME)] = 1 / EXTREME
    # Nothing here is an outlier: each value is a minimum or a saddle.
    ends = None if np.ptp(values) == 0 else (float(values.min()), float(values.max()))
    clip = look.get("clip") or ends
    return choose_scale(values, wanted, look.get("levels"), clip, count=8, metric=found.metric)


def truth(landscape: LandscapeData, found: Topology) -> str:
    """Returns what the minima in a picture are minima of, and of what not; and which points have no value."""
    cut = "line" if landscape.y is None else "plane"
    left_out = left_out_text(found)
    return f"minima of the grid on this {cut}, not of the network" + (f"\n{left_out} left out" if left_out else "")


def draw_flat(sheet: Sheet) -> None:
    """Says that all values are the same, in place of minima, of which there are none."""
    sheet.ax.set_xticks([])
    sheet.ax.set_yticks([])
    sheet.write_flat_note()


def nothing(sheet: Sheet) -> None:
    """Draws nothing: pictures of minima alone need them beside the sheet, and are drawn by their own functions."""
