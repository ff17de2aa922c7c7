"""A landscape as a plotly figure, which notebooks show: map and surface, or a line's profile, with path and marks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.appearance import Appearance, appearance_of
from ..drawing.camera import Camera, CameraChoice, best_camera, check_camera, plotly_box
from ..drawing.missing import edges
from ..drawing.path import path_times
from ..drawing.texts import axis_label, metric_text, sampling_notes, short_axis_label, unescaped
from ..grid.data import LandscapeData
from ..record.checks import PointStatus
from ..scales.frame import choose_frame
from .content import note, title
from .metric_views import MetricView, Picture, literal, metric_menu, metric_views
from .notebook_marks import line_marks, map_proportions, path_marks, status_marks

MIME_TYPE = "application/vnd.plotly.v1+json"

# Contour lines.
_LINES = 14
# Around what a scene holds, as a share of it.
_ROOM = 0.02


def notebook_figure(landscape: LandscapeData, camera: CameraChoice | None = None) -> dict[str, Any] | None:
    """Returns the figure as JSON values: a map and a surface side by side, or a line's profile.

    Where the landscape has several data sets, a menu chooses the metric, or a difference; metrics of one quantity are
    on one scale.

    Args:
        landscape: a plane or a line.
        camera: from where a surface is seen at first, such as "low", "auto" or (azimuth, elevation) in degrees; see
            ``figures.Look``.

    Returns:
        data and layout in plotly's terms; None where the picture shows more: the loss has no finite value, or is the
        same everywhere (of a plane to five digits), a plane has one row or column, or some of its points are pending,
        which have coarse cells there alone.

    Raises:
        ImportError: plotly is not installed.
        TypeError: ``camera`` has the wrong type.
        ValueError: there is no such camera.
    """
    from plotly import graph_objects, io

    look = appearance_of({}, None)
    views = metric_views(landscape)
    unfinished = landscape.y is not None and landscape.status_counts[PointStatus.PENDING] > 0
    if unfinished or views[0].is_flat or min(landscape.shape) < 2:
        return None
    seen_from = check_camera(camera)
    pictures = [_picture(view, look, seen_from) for view in views]
    traces, layout = pictures[0]
    if len(views) > 1:
        layout = {**layout, "updatemenus": [metric_menu(views, pictures, look)]}
    figure = graph_objects.Figure(traces, layout)
    shown: dict[str, Any] = json.loads(io.to_json(figure, validate=False))
    return shown


def _picture(view: MetricView, look: Appearance, camera: Camera | None) -> Picture:
    traces, layout = _line(view, look) if view.landscape.y is None else _plane(view, look, camera)
    return traces, {**_page(view, look), **layout}


def _plane(view: MetricView, look: Appearance, camera: Camera | None) -> Picture:
    landscape, values, scale = view.landscape, view.values, view.scale
    x, y = landscape.x, landscape.y
    assert y is not None
    low, high = (float(scale.forward(end)) for end in (scale.low, scale.high))
    heights = scale.heights(values)
    lines = {"start": low, "end": high, "size": (high - low) / _LINES}
    grid = {"x": x, "y": y, "coloraxis": "coloraxis", "connectgaps": False}
    still = {"highlight": False}
    # Software rendering takes half a minute for Plotly's lines on a surface with gaps.
    shown = not np.isnan(heights).any()
    traces = [
        {
            **grid, **_hover(landscape), "type": "contour", "z": _compact(scale.forward(scale.drawn(values))),
            "autocontour": False, "contours": {"coloring": "heatmap", **lines}, "hoverongaps": False,
            "line": {"width": 0.5, "color": "rgba(0,0,0,0.5)"},
        },
        {
            **grid, "type": "surface", "z": _compact(heights), "hoverinfo": "skip",
            "contours": {
                "x": still, "y": still,
                "z": {**still, **lines, "show": bool(shown), "color": "rgba(0,0,0,0.5)", "width": 1},
            },
            "lighting": {"ambient": 0.72, "diffuse": 0.55, "specular": 0.06, "roughness": 0.75},
        },
        *status_marks(landscape, look),
        *path_marks(view, heights),
    ]  # fmt: skip
    ticks = {"tickvals": scale.forward(scale.levels), "ticktext": scale.texts()}
    frame = {**_frame(look), "showgrid": False, "constrain": "domain"}
    box = {"showbackground": False, "showspikes": False, "gridcolor": look.faint, "zeroline": False, "nticks": 6}
    tall = {"tickvals": scale.tall.forward(scale.tall.levels), "ticktext": scale.tall.texts()}
    titles = [literal(unescaped(axis_label(landscape, axis))) for axis in range(2)]
    names = [unescaped(short_axis_label(landscape, axis)).split(" (")[0] for axis in range(2)]
    proportions, _ = map_proportions(landscape)
    ranges, sides, seen = _scene(view, proportions, camera)
    layout = {
        "height": 500,
        "coloraxis": {
            "colorscale": "RdBu" if view.diverging else "Viridis", "cmin": low, "cmax": high,
            "colorbar": {
                "title": {"text": literal(scale.label(view.text)), "side": "right"}, "x": 0.46, "thickness": 12,
                "outlinewidth": 0, **ticks,
            },
        },
        "xaxis": {**frame, "domain": [0, 0.45], "range": edges(x)[[0, -1]], "title": titles[0]},
        "yaxis": {
            **frame, "range": edges(y)[[0, -1]], "title": titles[1], "scaleanchor": "x", "scaleratio": proportions,
        },
        "scene": {
            "domain": {"x": [0.58, 1], "y": [0, 1]}, "aspectmode": "manual", "aspectratio": sides,
            "xaxis": {**box, "title": literal(names[0]), "range": ranges[0]},
            "yaxis": {**box, "title": literal(names[1]), "range": ranges[1]},
            "zaxis": {**box, **tall, "title": "", "range": ranges[2]},
            "camera": seen,
        },
    }  # fmt: skip
    return traces, layout


def _scene(
    view: MetricView, proportions: float, camera: Camera | None
) -> tuple[list[Any], dict[str, float], dict[str, dict[str, float]]]:
    """Returns ranges of x, y and heights that hold surface and marks, their ``aspectratio``, and plotly's camera."""
    landscape = view.landscape
    assert landscape.y is not None
    grid = np.array([landscape.x[[0, -1]], landscape.y[[0, -1]], view.scale.tall.height_range])
    spans = grid[:, 1] - grid[:, 0]
    frame = replace(choose_frame(landscape, "equal"), ratio=float(spans[0] / spans[1] / proportions))
    found, point = landscape.checkpoints, landscape.origin
    marks = np.array([[point.x], [point.y or 0.0]])
    if found is not None and found.y is not None:
        marks = np.hstack([marks, [found.x, found.y]])
    ends = grid.copy()
    ends[:2] = np.column_stack([np.minimum(grid[:2, 0], marks.min(axis=1)), np.maximum(grid[:2, 1], marks.max(axis=1))])
    ends += _ROOM * (ends[:, 1] - ends[:, 0])[:, None] * (-1, 1)
    box = plotly_box(frame.box)
    units = np.array([box[name] for name in "xyz"]) / spans
    seen = (camera or best_camera(landscape, view.metric, view.scale, frame)).of_plotly(box)
    # Plotly's camera counts from the middle of what the scene shows.
    for name, shift in zip("xyz", units * (grid.mean(axis=1) - ends.mean(axis=1)), strict=True):
        seen["eye"][name] += float(shift)
        seen["center"][name] += float(shift)
    # The surface has the figures' proportions.
    sides = dict(zip("xyz", (units * (ends[:, 1] - ends[:, 0])).tolist(), strict=True))
    return ends.tolist(), sides, seen


def _line(view: MetricView, look: Appearance) -> Picture:
    landscape, values, scale = view.landscape, view.values, view.scale
    curve = {
        "type": "scatter", "mode": "lines+markers", "name": literal(view.text), "x": landscape.x, "connectgaps": False,
        "y": _compact(scale.heights(values)), "line": {"color": look.series[0], "width": 2},
        "marker": {"size": 5}, **_hover(landscape),
    }  # fmt: skip
    frame = {**_frame(look), "gridcolor": look.faint}
    ticks = {"tickvals": scale.tall.forward(scale.tall.levels), "ticktext": scale.tall.texts()}
    layout = {
        "height": 400,
        "xaxis": {**frame, "title": literal(unescaped(axis_label(landscape, 0)))},
        "yaxis": {**frame, "title": {"text": literal(scale.tall.label(view.text))}, **ticks},
    }
    return [curve, *line_marks(view)], layout


def _frame(look: Appearance) -> dict[str, Any]:
    return {"zeroline": False, "ticks": "outside", "tickcolor": look.soft, "linecolor": look.ink, "mirror": True}


def _page(view: MetricView, look: Appearance) -> dict[str, Any]:
    landscape = view.landscape
    scale_notes = () if landscape.y is None else map_proportions(landscape)[1]
    lines = ["; ".join([note(landscape), *scale_notes]), "; ".join(sampling_notes(landscape, view.metric))]
    below = -0.14 if path_times([landscape]) is None else -0.36
    text = "".join([literal(title(landscape)), *(f"<br><sub>{literal(line, 120)}</sub>" for line in lines if line)])
    return {
        "title": {"text": text, "font": {"size": 15}},
        "font": {"color": look.ink, "size": 11},
        "paper_bgcolor": look.page,
        "plot_bgcolor": look.page,
        "legend": {"orientation": "h", "x": 0, "y": below, "yanchor": "top", "itemclick": False},
        "margin": {"l": 60, "r": 10, "t": 60 + (15 if lines[-1] else 0), "b": 50},
        # Plotly's own template would be 7 kB in every cell.
        "template": None,
    }


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the values as float32 if its seven digits distinguish them, and none would overflow or vanish."""
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore", under="ignore"):
        small = values.astype(np.float32)
        narrow = finite.size and 0 < np.ptp(finite) < 1e-4 * np.abs(finite).max()
    same = (np.isfinite(small) == np.isfinite(values)) & ((small == 0) == (values == 0))
    return values if narrow or not same.all() else small


def _hover(landscape: LandscapeData) -> dict[str, Any]:
    """Returns what a trace over the grid says beside the mouse: the coordinates and every metric, as stored."""
    lines = ["x %{x:.4g}"] if landscape.y is None else ["x %{x:.4g}", "y %{y:.4g}"]
    lines += [
        f"{literal(metric_text(landscape, name, str), 48)} %{{customdata[{index}]:.6g}}"
        for index, name in enumerate(landscape.metrics)
    ]
    values = np.stack([_compact(landscape[name]) for name in landscape.metrics], axis=-1)
    return {"customdata": values, "hovertemplate": "<br>".join(lines) + "<extra></extra>"}
