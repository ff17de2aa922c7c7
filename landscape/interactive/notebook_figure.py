"""What a notebook shows of a landscape: a plotly figure that the notebook's own renderer draws.

JupyterLab, Notebook and VS Code carry the script that draws the type ``application/vnd.plotly.v1+json``: the cell
holds numbers alone, and nothing is fetched. Beside it the picture is stored. JupyterLab shows that until the mouse
enters it, and in a notebook that is not trusted; what cannot draw the type shows it always.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.network_state import Array

from ..figures.appearance import Appearance, choose_appearance
from ..figures.missing import edges, known
from ..figures.scales import Scale, choose_scale
from ..figures.texts import axis_label, short_axis_label
from .content import note, title
from .notebook_traces import compact, hover, line_marks, literal, path_marks, status_marks

if TYPE_CHECKING:
    from ..surface import Landscape

MIME_TYPE = "application/vnd.plotly.v1+json"
_LINES = 14

Parts = tuple[list[dict[str, Any]], dict[str, Any]]


def notebook_figure(landscape: Landscape) -> dict[str, Any] | None:
    """Returns the figure as JSON values: a map and a surface side by side, or a line's profile.

    Returns:
        data and layout in plotly's terms; None where there is nothing to explore, because the loss has no finite
        value, is the same everywhere, or a plane has one row or column: the picture says that in words.

    Raises:
        ImportError: plotly is not installed.
    """
    from plotly import graph_objects, io

    look = choose_appearance(None, "screen", None)
    values = known(landscape.loss, landscape.status)
    scale = choose_scale(values)
    if scale.flat or min(values.shape) < 2:
        return None
    traces, layout = (_line if landscape.y is None else _plane)(landscape, values, scale, look)
    figure = graph_objects.Figure(traces, {**_page(landscape, look), **layout})
    shown: dict[str, Any] = json.loads(io.to_json(figure, validate=False))
    return shown


def _plane(landscape: Landscape, values: Array, scale: Scale, look: Appearance) -> Parts:
    x, y = landscape.x, landscape.y
    assert y is not None
    low, high = (float(scale.forward(end)) for end in (scale.low, scale.high))
    heights = scale.forward(scale.shown(values))
    lines = {"start": low, "end": high, "size": (high - low) / _LINES}
    grid = {"x": x, "y": y, "coloraxis": "coloraxis", "connectgaps": False}
    still = {"highlight": False}
    traces = [
        {
            **grid, **hover(landscape), "type": "contour", "z": compact(scale.forward(scale.drawn(values))),
            "autocontour": False, "contours": {"coloring": "heatmap", **lines}, "hoverongaps": False,
            "line": {"width": 0.5, "color": "rgba(0,0,0,0.5)"},
        },
        {
            **grid, "type": "surface", "z": compact(heights), "hoverinfo": "skip",
            "contours": {
                "x": still, "y": still,
                "z": {**still, **lines, "show": True, "color": "rgba(0,0,0,0.5)", "width": 1},
            },
            "lighting": {"ambient": 0.72, "diffuse": 0.55, "specular": 0.06, "roughness": 0.75},
        },
        *status_marks(landscape, look),
        *path_marks(landscape, scale, heights),
    ]  # fmt: skip
    ticks = {"tickvals": scale.forward(scale.levels), "ticktext": scale.texts()}
    frame = {**_frame(look), "showgrid": False, "constrain": "domain"}
    box = {"showbackground": False, "showspikes": False, "gridcolor": look.faint, "zeroline": False, "nticks": 6}
    names = [short_axis_label(landscape, axis).split(" (")[0] for axis in range(2)]
    layout = {
        "height": 500,
        "coloraxis": {
            "colorscale": "Viridis", "cmin": low, "cmax": high,
            "colorbar": {
                "title": {"text": scale.label("loss"), "side": "right"}, "x": 0.46, "thickness": 12, "outlinewidth": 0,
                **ticks,
            },
        },
        "xaxis": {**frame, "domain": [0, 0.45], "range": edges(x)[[0, -1]], "title": literal(axis_label(landscape, 0))},
        "yaxis": {**frame, "range": edges(y)[[0, -1]], "title": literal(axis_label(landscape, 1))},
        "scene": {
            "domain": {"x": [0.58, 1], "y": [0, 1]}, "aspectmode": "manual", "aspectratio": {"x": 1, "y": 1, "z": 0.68},
            "xaxis": {**box, "title": literal(names[0])}, "yaxis": {**box, "title": literal(names[1])},
            "zaxis": {**box, **ticks, "title": ""},
            "camera": {"eye": _eye(values), "center": {"x": 0, "y": 0, "z": -0.12}},
        },
    }  # fmt: skip
    return traces, layout


def _line(landscape: Landscape, values: Array, scale: Scale, look: Appearance) -> Parts:
    curve = {
        "type": "scatter", "mode": "lines+markers", "name": "loss", "x": landscape.x, "connectgaps": False,
        "y": compact(scale.forward(scale.shown(values))), "line": {"color": look.series[0], "width": 2},
        "marker": {"size": 5}, **hover(landscape),
    }  # fmt: skip
    frame = {**_frame(look), "gridcolor": look.faint}
    ticks = {"tickvals": scale.forward(scale.levels), "ticktext": scale.texts()}
    layout = {
        "height": 400,
        "xaxis": {**frame, "title": literal(axis_label(landscape, 0))},
        "yaxis": {**frame, "title": scale.label("loss"), **ticks},
    }
    return [curve, *line_marks(landscape, scale)], layout


def _frame(look: Appearance) -> dict[str, Any]:
    return {"zeroline": False, "ticks": "outside", "tickcolor": look.soft, "linecolor": look.ink, "mirror": True}


def _page(landscape: Landscape, look: Appearance) -> dict[str, Any]:
    text = f"{literal(title(landscape))}<br><sub>{literal(note(landscape), 120)}</sub>"
    return {
        "title": {"text": text, "font": {"size": 15}},
        "font": {"color": look.ink, "size": 11},
        "paper_bgcolor": look.page,
        "plot_bgcolor": look.page,
        "legend": {"orientation": "h", "x": 0, "y": -0.14, "yanchor": "top", "itemclick": False},
        "margin": {"l": 60, "r": 10, "t": 60, "b": 50},
        # Plotly's own template would be 7 kB in every cell.
        "template": None,
    }


def _eye(values: Array) -> dict[str, float]:
    """Returns a viewpoint over the corner with the lowest quarter, so that no slope hides the valley."""
    rows, columns = (length // 2 for length in values.shape)
    corners = {
        (1, -1): values[:rows, columns:],
        (-1, -1): values[:rows, :columns],
        (1, 1): values[rows:, columns:],
        (-1, 1): values[rows:, :columns],
    }
    means = {corner: np.nansum(part) / max(np.isfinite(part).sum(), 1) for corner, part in corners.items()}
    right, up = min(means, key=lambda corner: means[corner])
    return {"x": 1.5 * right, "y": 1.5 * up, "z": 1.05}
