"""A landscape as a plotly figure, which notebooks show: map and surface, or a line's profile, with path and marks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.appearance import Appearance, choose_appearance
from ..drawing.best_camera import best_camera
from ..drawing.camera import Camera, CameraChoice, check_camera, plotly_box
from ..drawing.missing import edges
from ..drawing.path import END, PATH, RUN_COLORS, STAR, START, network_marks
from ..drawing.texts import axis_label, metric_text, sampling_notes, short_axis_label, unit_of
from ..drawing.times import path_times
from ..file.checks import PointStatus
from ..scales.frame import choose_frame
from .content import note, title
from .metric_views import MetricView, Picture, literal, metric_menu, metric_views
from .timed_paths import map_marks, map_place
from .timed_traces import TimedRun

if TYPE_CHECKING:
    from ..file.data import LandscapeData


MIME_TYPE = "application/vnd.plotly.v1+json"

# Plotly's names of matplotlib's marks.
_SYMBOLS = {
    "D": "diamond", "^": "triangle-up", "v": "triangle-down", "P": "cross", "X": "x", "h": "hexagon",
}  # fmt: skip
# Contour lines.
_LINES = 14
# Around what a scene holds, as a share of it.
_ROOM = 0.02
# Pieces of the path between two checkpoints.
_PIECES = 12
_EDGE = {"color": "#1a1a1a", "width": 1}
_STAR = {"symbol": "star", "size": 14, "color": STAR["color"]}
_PATH_TEMPLATE = (
    "%{customdata[0]}<br>own {metric} %{customdata[1]:.6g}<br>{metric} at its foot on the {where} %{customdata[2]:.6g}"
    "<br>distance from the {where} %{customdata[3]:.4g}<extra></extra>"
)


def notebook_figure(landscape: LandscapeData, camera: CameraChoice | None = None) -> dict[str, Any] | None:
    """Returns the figure as JSON values: a map and a surface side by side, or a line's profile.

    Where the landscape has several data sets, a menu chooses the metric, or a difference; metrics of one quantity are
    on one scale.

    Args:
        landscape: a plane or a line.
        camera: from where a surface is seen at first, such as "low", "auto" or (azimuth, elevation) in degrees; see
            ``figures.Look``.

    Returns:
        data and layout in plotly's terms; None where there is nothing to explore, because the loss has no finite
        value, is the same everywhere, or a plane has one row or column: the picture says that in words.

    Raises:
        ImportError: plotly is not installed.
        TypeError: ``camera`` has the wrong type.
        ValueError: there is no such camera.
    """
    from plotly import graph_objects, io

    look = choose_appearance(None, "screen", None)
    views = metric_views(landscape)
    if views[0].scale.flat or min(landscape.shape) < 2:
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
        *_status_marks(landscape, look),
        *_path_marks(view, heights),
    ]  # fmt: skip
    ticks = {"tickvals": scale.forward(scale.levels), "ticktext": scale.texts()}
    frame = {**_frame(look), "showgrid": False, "constrain": "domain"}
    box = {"showbackground": False, "showspikes": False, "gridcolor": look.faint, "zeroline": False, "nticks": 6}
    tall = {"tickvals": scale.tall.forward(scale.tall.levels), "ticktext": scale.tall.texts()}
    titles = [literal(axis_label(landscape, axis)) for axis in range(2)]
    names = [short_axis_label(landscape, axis).split(" (")[0] for axis in range(2)]
    proportions, _ = _proportions(landscape)
    scene = _scene(view, proportions, camera)
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
            "domain": {"x": [0.58, 1], "y": [0, 1]}, "aspectmode": "manual", "aspectratio": scene.sides,
            "xaxis": {**box, "title": literal(names[0]), "range": scene.ranges[0]},
            "yaxis": {**box, "title": literal(names[1]), "range": scene.ranges[1]},
            "zaxis": {**box, **tall, "title": "", "range": scene.ranges[2]},
            "camera": scene.camera,
        },
    }  # fmt: skip
    return traces, layout


def _proportions(landscape: LandscapeData) -> tuple[float, tuple[str, ...]]:
    """Returns how long one unit of y is drawn, where x has 1, and what is not to scale, to be said in the title.

    Plotly's maps have axes at a right angle, so oblique directions are drawn sheared, and the title says so.
    """
    assert landscape.y is not None
    frame, filling = choose_frame(landscape, "equal"), choose_frame(landscape, "fill")
    if landscape.geometry is None or frame.geometry is None:
        return float(np.ptp(edges(landscape.x)) / np.ptp(edges(landscape.y))), filling.notes
    return landscape.geometry.second / landscape.geometry.first, tuple(
        text for text in filling.notes if text.startswith("sheared")
    )


@dataclass(frozen=True)
class _Scene:
    """What a scene shows, in plotly's terms.

    Attributes:
        ranges: of x, y and heights.
        sides: the ``aspectratio`` of these ranges.
        camera: the ``camera``.
    """

    ranges: list[list[float]]
    sides: dict[str, float]
    camera: dict[str, dict[str, float]]


def _scene(view: MetricView, proportions: float, camera: Camera | None) -> _Scene:
    """Returns a scene that holds the surface and its marks, and in which the surface has the figures' proportions."""
    landscape = view.landscape
    assert landscape.y is not None
    own = np.array([landscape.x[[0, -1]], landscape.y[[0, -1]], view.scale.tall.height_range])
    spans = own[:, 1] - own[:, 0]
    frame = replace(choose_frame(landscape, "equal"), ratio=float(spans[0] / spans[1] / proportions))
    found, point = landscape.checkpoints, landscape.origin
    marks = np.array([[point.x], [point.y or 0.0]])
    if found is not None and found.y is not None:
        marks = np.hstack([marks, [found.x, found.y]])
    ends = own.copy()
    ends[:2] = np.column_stack([np.minimum(own[:2, 0], marks.min(axis=1)), np.maximum(own[:2, 1], marks.max(axis=1))])
    ends += _ROOM * (ends[:, 1] - ends[:, 0])[:, None] * (-1, 1)
    box = plotly_box(frame.box)
    units = np.array([box[name] for name in "xyz"]) / spans
    seen = (camera or best_camera(landscape, view.metric, view.scale, frame)).of_plotly(box)
    # Plotly's camera counts from the middle of what the scene shows.
    for name, shift in zip("xyz", units * (own.mean(axis=1) - ends.mean(axis=1)), strict=True):
        seen["eye"][name] += float(shift)
        seen["center"][name] += float(shift)
    sides = dict(zip("xyz", (units * (ends[:, 1] - ends[:, 0])).tolist(), strict=True))
    return _Scene(ends.tolist(), sides, seen)


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
        "xaxis": {**frame, "title": literal(axis_label(landscape, 0))},
        "yaxis": {**frame, "title": {"text": literal(scale.tall.label(view.text))}, **ticks},
    }
    return [curve, *_line_marks(view)], layout


def _frame(look: Appearance) -> dict[str, Any]:
    return {"zeroline": False, "ticks": "outside", "tickcolor": look.soft, "linecolor": look.ink, "mirror": True}


def _page(view: MetricView, look: Appearance) -> dict[str, Any]:
    landscape = view.landscape
    scale_notes = () if landscape.y is None else _proportions(landscape)[1]
    said = [
        title(landscape),
        "; ".join([note(landscape), *scale_notes]),
        "; ".join(sampling_notes(landscape, view.metric)),
    ]
    text = "".join([literal(said[0]), *(f"<br><sub>{literal(line, 120)}</sub>" for line in said[1:] if line)])
    return {
        "title": {"text": text, "font": {"size": 15}},
        "font": {"color": look.ink, "size": 11},
        "paper_bgcolor": look.page,
        "plot_bgcolor": look.page,
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": -0.14 if path_times([landscape]) is None else -0.36,
            "yanchor": "top",
            "itemclick": False,
        },
        "margin": {"l": 60, "r": 10, "t": 60 + (15 if said[-1] else 0), "b": 50},
        # Plotly's own template would be 7 kB in every cell.
        "template": None,
    }


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the values as float32, whose seven digits suffice here, unless one would overflow or vanish."""
    with np.errstate(over="ignore", under="ignore"):
        small = values.astype(np.float32)
    same = (np.isfinite(small) == np.isfinite(values)) & ((small == 0) == (values == 0))
    return small if same.all() else values


def _hover(landscape: LandscapeData) -> dict[str, Any]:
    """Returns what a trace over the grid says beside the mouse: the coordinates and every metric, as stored."""
    lines = ["x %{x:.4g}"] if landscape.y is None else ["x %{x:.4g}", "y %{y:.4g}"]
    lines += [
        f"{literal(metric_text(landscape, name, str), 48)} %{{customdata[{index}]:.6g}}"
        for index, name in enumerate(landscape.metrics)
    ]
    values = np.stack([_compact(landscape[name]) for name in landscape.metrics], axis=-1)
    return {"customdata": values, "hovertemplate": "<br>".join(lines) + "<extra></extra>"}


def _line_marks(view: MetricView) -> list[dict[str, Any]]:
    """Returns checkpoints, networks and the origin on a line's profile."""
    landscape, scale = view.landscape, view.scale
    found, point, traces = landscape.checkpoints, landscape.origin, []
    if found is not None and "loss" in found.projected:
        heights = scale.tall.heights(view.projected)
        for index, rows in enumerate(found.paths):
            marker = {"symbol": "diamond", "size": 9, "color": _run_color(index, PATH)}
            name = literal(found.run_name(rows[0]), 32) or "checkpoints"
            traces.append(_mark(f"{name} (projected)", found.x[rows], heights[rows], marker) | _hover_of(view, rows))
        for row, marker in _network_marks(landscape):
            rows = np.array([row])
            name = literal(found.name[row], 32)
            traces.append(_mark(f"{name} (projected)", found.x[rows], heights[rows], marker) | _hover_of(view, rows))
    height = scale.tall.heights(np.array([point.metrics.get(view.metric, np.nan)]))
    return [*traces, _mark(_origin_name(landscape), [point.x], height, _STAR)]


def _path_marks(view: MetricView, heights: NDArray[Any]) -> list[dict[str, Any]]:
    """Returns runs' paths, networks and the origin, on the map and on the surface.

    Args:
        view: of a plane.
        heights: of the surface as drawn, shape (ny, nx).
    """
    landscape, scale = view.landscape, view.scale
    found, point = landscape.checkpoints, landscape.origin
    lift = (scale.forward(scale.high) - scale.forward(scale.low)) / 100
    traces: list[dict[str, Any]] = []
    if found is not None and found.y is not None:
        feet = scale.tall.heights(view.projected) + lift
        for index, rows in enumerate(found.paths):
            traces += _run_marks(view, rows, index, feet[rows], heights + lift)
        for row, marker in _network_marks(landscape):
            rows, about = np.array([row]), _hover_of(view, np.array([row]))
            traces += [
                _mark(literal(found.name[row], 32), found.x[rows], found.y[rows], marker) | about,
                {
                    "type": "scatter3d", "mode": "markers", "x": found.x[rows], "y": found.y[rows], "z": feet[rows],
                    "marker": {"symbol": "diamond", "size": 4, "color": "white", "line": _EDGE}, "showlegend": False,
                    **about,
                },
            ]  # fmt: skip
    origin = scale.tall.heights(np.array([point.metrics.get(view.metric, np.nan)])) + lift
    diamond = {"symbol": "diamond", "size": 5, "color": STAR["color"], "line": _EDGE}
    return [
        *traces,
        _mark(_origin_name(landscape), [point.x], [point.y], _STAR),
        {
            "type": "scatter3d", "mode": "markers", "x": [point.x], "y": [point.y], "z": origin, "hoverinfo": "skip",
            "marker": diamond, "showlegend": False,
        },
    ]  # fmt: skip


def _run_marks(
    view: MetricView, rows: NDArray[Any], index: int, feet: NDArray[Any], heights: NDArray[Any]
) -> list[dict[str, Any]]:
    """Returns the path of one run, with start and end if it has more than one checkpoint."""
    landscape, about = view.landscape, _hover_of(view, rows)
    found = landscape.checkpoints
    assert found is not None
    assert found.y is not None
    xs, ys, color = found.x[rows], found.y[rows], _run_color(index, "white")
    x, y, z = _draped(landscape, xs, ys, feet, heights)
    dots = {"size": 6, "color": color, "line": _EDGE}
    hidden = {"showlegend": False}
    halo = {"color": "rgba(20,20,20,0.75)", "width": 4}
    times = path_times([landscape])
    proportions, _ = _proportions(landscape)
    if times is not None and len(rows) > 1:
        name = literal(found.run_name(rows[0]), 32) or "path"
        ends = _end_marks(xs, ys, shown=index == 0)
        place = map_place(landscape, lambda x, y: (x, proportions * y))
        run = TimedRun(landscape, index, times, name, map_marks(landscape, index, place))
        return run.traces((xs, ys), (x, y, z), _PIECES, ends, lambda some: _hover_of(view, rows[some]))
    name, numbered = literal(found.run_name(rows[0]), 32), len(found.paths) == 1
    traces = [
        {"type": "scatter", "mode": "lines", "x": xs, "y": ys, "hoverinfo": "skip", "line": halo, **hidden},
        {
            "type": "scatter", "mode": "lines+markers", "name": name or "path", "x": xs, "y": ys, "marker": dots,
            "line": {"color": color, "width": 2}, "showlegend": bool(name), **about,
        },
        {
            "type": "scatter3d", "mode": "lines", "x": x, "y": y, "z": z, "hoverinfo": "skip", **hidden,
            "line": {"color": _run_color(index, PATH), "width": 4},
        },
        {
            "type": "scatter3d", "mode": "markers", "x": xs, "y": ys, "z": feet, **hidden, **about,
            "marker": {**dots, "size": 3},
        },
    ]  # fmt: skip
    if len(rows) > 1:
        traces[2:2] = _end_marks(xs, ys, shown=numbered or index == 0)
    return traces


def _end_marks(xs: NDArray[Any], ys: NDArray[Any], *, shown: bool) -> list[dict[str, Any]]:
    end = {"symbol": "circle-open", "size": 15, "color": END["markeredgecolor"], "line": {"width": 2.5}}
    start = {"symbol": "square", "size": 9, "color": START["color"]}
    pair = [_mark("start", xs[:1], ys[:1], start), _mark("end", xs[-1:], ys[-1:], end)]
    return [trace | {"showlegend": shown} for trace in pair]


def _run_color(index: int, first: str) -> str:
    return first if index == 0 else RUN_COLORS[(index - 1) % len(RUN_COLORS)]


def _network_marks(landscape: LandscapeData) -> list[tuple[int, dict[str, Any]]]:
    """Returns the rows of networks of no run with their marks, shaped as in the figures."""
    return [
        (row, {"symbol": _SYMBOLS[style["marker"]], "size": 10, "color": "white", "line": _EDGE})
        for row, style in network_marks(landscape)
    ]


def _origin_name(landscape: LandscapeData) -> str:
    return literal(landscape.origin.label(unit_of(landscape)), 72)


def _status_marks(landscape: LandscapeData, look: Appearance) -> list[dict[str, Any]]:
    """Returns marks where points failed, and where they are interpolated or, if that is less, measured."""
    failed, interpolated, measured = (
        landscape.status == status for status in (PointStatus.FAILED, PointStatus.INTERPOLATED, PointStatus.MEASURED)
    )
    kinds = [("failed", failed, {"symbol": "x", "size": 6, "color": look.soft})]
    if interpolated.sum() > measured.sum():
        name, where = f"measured ({measured.sum():,}, all others interpolated)", measured
        kinds.append((name, where, {"size": 3, "color": "black"}))
    else:
        kinds.append((f"interpolated ({interpolated.sum():,})", interpolated, {"size": 3, "color": "white"}))
    marks = []
    for name, where, marker in kinds:
        rows, columns = np.nonzero(where)
        if len(rows) and landscape.y is not None:
            marks.append(_mark(name, landscape.x[columns], landscape.y[rows], marker))
    return marks


def _mark(name: str, x: Any, y: Any, marker: dict[str, Any]) -> dict[str, Any]:
    marker = {"line": _EDGE if marker["size"] > 6 else {"width": 0}, **marker}
    return {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": y, "marker": marker, "hoverinfo": "skip"}


def _hover_of(view: MetricView, rows: NDArray[Any]) -> dict[str, Any]:
    """Returns what checkpoints and networks say beside the mouse."""
    landscape = view.landscape
    found = landscape.checkpoints
    assert found is not None
    columns = (view.own, view.projected, found.residual)
    labels = [literal(found.label(row, unit_of(landscape)), 48) for row in rows]
    data = [
        [label, *values] for label, *values in zip(labels, *(column[rows].tolist() for column in columns), strict=True)
    ]
    template = _PATH_TEMPLATE.replace("{where}", "line" if landscape.y is None else "plane")
    template = template.replace("{metric}", literal(view.text, 48))
    return {"customdata": data, "hovertemplate": template, "hoverinfo": None}


def _draped(
    landscape: LandscapeData, x: NDArray[Any], y: NDArray[Any], feet: NDArray[Any], heights: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns the path with pieces that follow the surface, where a straight line would run through hills."""
    from scipy.interpolate import RegularGridInterpolator

    assert landscape.y is not None
    steps = np.arange(0, len(x) - 1 + 0.5 / _PIECES, 1 / _PIECES)
    at = np.arange(len(x))
    x, y, chord = (np.interp(steps, at, values) for values in (x, y, feet))
    surface = RegularGridInterpolator((landscape.y, landscape.x), heights, bounds_error=False)
    below = surface(np.stack([y, x], axis=-1))
    # At a checkpoint its own height is measured; beside a gap the surface has none.
    return x, y, np.where((np.arange(len(steps)) % _PIECES == 0) | np.isnan(below), chord, below)
