"""Ways through a plane, drawn over its contours: the straight one between two networks, and a curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from collectors.validation import wrong_type

from ..drawing.look import Look
from ..drawing.path import halo
from ..drawing.sheet import begin
from ..drawing.texts import plain
from ..grid.data import LandscapeData
from .contour import CONTOUR

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes

_STROKES = ("--", "-", "-.", ":")


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
                *sheet.frame.place(route[:, 0], route[:, 1]), color=color, linewidth=width, label=name, zorder=3.2,
                linestyle=_STROKES[index % len(_STROKES)], path_effects=halo(width),
            )  # fmt: skip
        sheet.finish()
    return sheet.ax
