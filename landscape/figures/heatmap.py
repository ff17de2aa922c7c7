"""A plane as its cells, each in the colour of the value that was measured in its middle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .above import draw_above, draw_cells
from .missing import edges
from .sheet import Kind, Look, Sheet, draw_picture

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes

    from ..surface import Landscape


def plot_heatmap(landscape: Landscape, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
    """Draws a plane's metric as a heat map: one cell for each point, nothing smoothed or interpolated between them.

    Arguments and errors are ``plot_contour``'s.
    """
    return draw_picture(HEATMAP, landscape, ax, look)


def draw_heatmap(sheet: Sheet) -> None:
    """Fills a sheet with cells."""
    landscape = sheet.landscape
    assert landscape.y is not None
    across, up = edges(landscape.x), edges(landscape.y)
    sheet.ax.set_xlim(across[0], across[-1])
    sheet.ax.set_ylim(up[0], up[-1])
    if not sheet.scale.empty:
        sheet.mappable = draw_cells(sheet, sheet.scale.drawn(sheet.measured))
    draw_above(sheet, None)


HEATMAP = Kind("plot_heatmap", draw_heatmap)
