"""The marks of a notebook's figure: paths, networks and the origin on map, surface and profile, and what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.missing import edges
from ..drawing.path import END, PATH, RUN_COLORS, STAR, START, network_marks
from ..drawing.texts import unit_of
from ..drawing.times import path_times
from ..record.checks import PointStatus
from ..scales.frame import choose_frame
from .metric_views import MetricView, literal
from .timed_paths import map_marks, map_place
from .timed_traces import TimedRun

if TYPE_CHECKING:
    from ..drawing.appearance import Appearance
    from ..grid.data import LandscapeData


# Plotly's names of matplotlib's marks.
_SYMBOLS = {
    "D": "diamond", "^": "triangle-up", "v": "triangle-down", "P": "cross", "X": "x", "h": "hexagon",
}  # fmt: skip
# Pieces of the path between two checkpoints.
_PIECES = 12
_EDGE = {"color": "#1a1a1a", "width": 1}
_STAR = {"symbol": "star", "size": 14, "color": STAR["color"]}
_PATH_TEMPLATE = (
    "%{customdata[0]}<br>own {metric} %{customdata[1]:.6g}<br>{metric} at its foot on the {where} %{customdata[2]:.6g}"
    "<br>distance from the {where} %{customdata[3]:.4g}<extra></extra>"
)


def map_proportions(landscape: LandscapeData) -> tuple[float, tuple[str, ...]]:
    """Returns how long a unit of y is where that of x is 1, and what is not to scale; plotly shears oblique planes."""
    assert landscape.y is not None
    frame, filling = choose_frame(landscape, "equal"), choose_frame(landscape, "fill")
    if landscape.geometry is None or frame.geometry is None:
        return float(np.ptp(edges(landscape.x)) / np.ptp(edges(landscape.y))), filling.notes
    return landscape.geometry.second / landscape.geometry.first, tuple(
        text for text in filling.notes if text.startswith("sheared")
    )


def line_marks(view: MetricView) -> list[dict[str, Any]]:
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


def path_marks(view: MetricView, heights: NDArray[Any]) -> list[dict[str, Any]]:
    """Returns runs' paths, networks and the origin on a map and on a surface of drawn heights, shape (ny, nx)."""
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
    proportions, _ = map_proportions(landscape)
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


def status_marks(landscape: LandscapeData, look: Appearance) -> list[dict[str, Any]]:
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
