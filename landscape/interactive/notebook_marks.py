"""The marks of a notebook's figure: paths, networks and the origin on map, surface and profile, and what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.appearance import Appearance
from ..drawing.missing import edges
from ..drawing.path import END, STAR, START, Times, marked_text, network_marks, path_times, run_color, strong_color
from ..drawing.texts import unescaped, unit_of
from ..grid.data import LandscapeData
from ..record.checks import PointStatus
from ..scales.frame import choose_frame
from .content import SYMBOLS
from .metric_views import MetricView, literal
from .timed_paths import arrow_colors, colour_scale, hex_colors, map_marks, map_place, plane_path, run_pieces

# Pieces of the path between two checkpoints.
_PIECES = 12
_EDGE = {"color": "#1a1a1a", "width": 1}
_HALO = {"color": "rgba(20,20,20,0.75)", "width": 4}
_SILENT = {"showlegend": False, "hoverinfo": "skip"}
_LINES, _POINTS = {"type": "scatter", "mode": "lines"}, {"type": "scatter", "mode": "markers"}
_SURFACE_LINES, _SURFACE_POINTS = {**_LINES, "type": "scatter3d"}, {**_POINTS, "type": "scatter3d", "showlegend": False}
_DIAMOND = {"symbol": "diamond", "line": _EDGE}
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
    found, traces = landscape.checkpoints, []
    if found is not None and "loss" in found.projected:
        heights = scale.tall.heights(view.of_checkpoints("projected"))
        shown = [
            (
                rows,
                literal(found.run_name(rows[0]), 32) or "checkpoints",
                {**_DIAMOND, "size": 9, "color": run_color(run)},
            )
            for run, rows in enumerate(found.paths)
        ]
        shown += [(rows, literal(found.name[rows[0]], 32), marker) for rows, marker in _network_marks(landscape)]
        for rows, name, marker in shown:
            traces.append(_mark(f"{name} (projected)", found.x[rows], heights[rows], marker) | _hover_of(view, rows))
    return [*traces, _mark(_origin_name(landscape), [landscape.origin.x], view.height_of_origin(), _STAR)]


def path_marks(view: MetricView, heights: NDArray[Any]) -> list[dict[str, Any]]:
    """Returns runs' paths, networks and the origin on a map and on a surface of drawn heights, shape (ny, nx)."""
    landscape, scale = view.landscape, view.scale
    found, point = landscape.checkpoints, landscape.origin
    lift = (scale.forward(scale.high) - scale.forward(scale.low)) / 100
    traces: list[dict[str, Any]] = []
    if found is not None and found.y is not None:
        feet = scale.tall.heights(view.of_checkpoints("projected")) + lift
        for index, rows in enumerate(found.paths):
            traces += _run_marks(view, rows, index, feet[rows], heights + lift)
        for rows, marker in _network_marks(landscape):
            name, about = literal(found.name[rows[0]], 32), _hover_of(view, rows)
            small = {**_DIAMOND, "size": 4, "color": "white"}
            traces += _on_both(name, found.x[rows], found.y[rows], feet[rows], marker, small, about)
    small = {**_DIAMOND, "size": 5, "color": STAR["color"]}
    place = [point.x], [point.y], view.height_of_origin() + lift
    return [*traces, *_on_both(_origin_name(landscape), *place, _STAR, small, {"hoverinfo": "skip"})]


def _on_both(
    name: str, x: Any, y: Any, z: Any, marker: dict[str, Any], small: dict[str, Any], about: dict[str, Any]
) -> list[dict[str, Any]]:
    return [
        _mark(name, x, y, marker) | about,
        {**_SURFACE_POINTS, "x": x, "y": y, "z": z, "marker": small, **about},
    ]


def _run_marks(
    view: MetricView, rows: NDArray[Any], index: int, feet: NDArray[Any], heights: NDArray[Any]
) -> list[dict[str, Any]]:
    """Returns the path of one run, with start and end if it has more than one checkpoint."""
    landscape, about = view.landscape, _hover_of(view, rows)
    times, (found, up) = path_times([landscape]), plane_path(landscape)
    xs, ys, color = found.x[rows], up[rows], run_color(index, "white")
    draped = _draped(landscape, xs, ys, feet, heights)
    name = literal(found.run_name(rows[0]), 32)
    if times is not None and len(rows) > 1:
        return _timed_marks(view, rows, index, draped, times)
    place, dots = {"x": xs, "y": ys}, {"size": 6, "color": color, "line": _EDGE}
    traces = [
        {**_LINES, **place, **_SILENT, "line": _HALO},
        {
            "type": "scatter", "mode": "lines+markers", "name": name or "path", **place, "marker": dots,
            "line": {"color": color, "width": 2}, "showlegend": bool(name), **about,
        },
        {**_SURFACE_LINES, **draped, **_SILENT, "line": {"color": run_color(index), "width": 4}},
        {**_SURFACE_POINTS, **place, "z": feet, **about, "marker": {**dots, "size": 3}},
    ]  # fmt: skip
    if len(rows) > 1:
        traces[2:2] = _end_marks(xs, ys, shown=index == 0)
    return traces


def _timed_marks(
    view: MetricView, rows: NDArray[Any], index: int, draped: dict[str, NDArray[Any]], times: Times
) -> list[dict[str, Any]]:
    """Returns a long path in the colours of time: pieces and arrowheads, for plotly's lines have one colour each."""
    landscape, (found, up) = view.landscape, plane_path(view.landscape)
    proportions, _ = map_proportions(landscape)
    dots, arrows, chevrons = map_marks(landscape, index, map_place(landscape, lambda x, y: (x, proportions * y)))
    xs, ys, numbers = found.x[rows], up[rows], found.number[rows]
    name, colors = literal(found.run_name(rows[0]), 32) or "path", hex_colors(times, index, numbers)
    marked = marked_text([dots])
    # All checkpoints can be pointed at; those without a dot have no size.
    sizes = np.zeros(len(rows))
    sizes[dots.rows] = 5
    gap = np.full((len(arrows), 1), np.nan)
    wings = [np.hstack([chevrons[:, :, axis], gap]).ravel() for axis in (0, 1)]
    feet = draped["z"][::_PIECES]
    lift = np.interp(arrows[:, 0], np.arange(len(rows)), feet)
    return [
        {**_LINES, **_SILENT, "x": xs, "y": ys, "line": {"color": "rgba(20,20,20,0.85)", "width": 5.5}},
        *(
            {
                **_LINES, **_SILENT, "x": xs[first : last + 1], "y": ys[first : last + 1],
                "line": {"color": color, "width": 3},
            }
            for first, last, color in run_pieces(numbers, colors)
        ),
        # The legend's entry.
        {
            **_LINES, "name": name + (f" ({marked})" if marked else ""), "x": [None], "y": [None],
            "line": {"color": strong_color(index), "width": 3},
        },
        {
            **_POINTS, "name": name, "x": xs, "y": ys, "showlegend": False, **_hover_of(view, rows),
            "marker": {"size": sizes, "color": "#ffffff", "line": {**_EDGE, "width": np.where(sizes > 0, 1, 0)}},
        },
        {
            **_POINTS, **_SILENT, "x": arrows[:, 1], "y": arrows[:, 2],
            "marker": {
                "symbol": "arrow", "size": 13, "angle": arrows[:, 3], "line": _EDGE,
                "color": arrow_colors(arrows, colors),
            },
        },
        *_end_marks(xs, ys, shown=index == 0),
        _time_bar(times, index, is_last=index == len(found.paths) - 1),
        {
            **_SURFACE_LINES, **draped, **_SILENT,
            "line": {"color": np.repeat(colors, _PIECES)[: len(draped["x"])].tolist(), "width": 6},
        },
        {
            **_SURFACE_LINES, "x": wings[0], "y": wings[1], "z": np.repeat(lift, 4), **_SILENT, "connectgaps": False,
            "line": {"color": strong_color(index), "width": 6},
        },
        {
            **_SURFACE_POINTS, "x": xs[dots.rows], "y": ys[dots.rows], "z": feet[dots.rows],
            "marker": {"size": 3, "color": "#ffffff", "line": _EDGE}, **_hover_of(view, rows[dots.rows]),
        },
    ]  # fmt: skip


def _time_bar(times: Times, index: int, *, is_last: bool) -> dict[str, Any]:
    """Returns the bar of a run's time under the map; those of several runs lie one under the other."""
    bar = {
        "orientation": "h", "x": 0.225, "len": 0.34, "y": -0.17 - 0.02 * index, "yanchor": "top",
        "thickness": 7, "outlinewidth": 0.5, "xpad": 0, "ypad": 0, "nticks": 6,
        "ticks": "outside" if is_last else "", "ticklen": 3,
        "title": {"text": literal(unescaped(times.label)) if is_last else "", "side": "bottom", "font": {"size": 11}},
    }  # fmt: skip
    return {
        **_POINTS, **_SILENT, "x": [None], "y": [None],
        "marker": {
            "color": [times.low], "cmin": times.low, "cmax": times.high, "showscale": True,
            "colorscale": colour_scale(index),
            "colorbar": bar if is_last else {**bar, "tickvals": []},
        },
    }  # fmt: skip


def _end_marks(xs: NDArray[Any], ys: NDArray[Any], *, shown: bool) -> list[dict[str, Any]]:
    end = {"symbol": "circle-open", "size": 15, "color": END["markeredgecolor"], "line": {"width": 2.5}}
    start = {"symbol": "square", "size": 9, "color": START["color"]}
    pair = [_mark("start", xs[:1], ys[:1], start), _mark("end", xs[-1:], ys[-1:], end)]
    return [trace | {"showlegend": shown} for trace in pair]


def _network_marks(landscape: LandscapeData) -> list[tuple[NDArray[Any], dict[str, Any]]]:
    """Returns the rows of networks of no run, each of shape (1,), with their marks, shaped as in the figures."""
    return [
        (np.array([row]), {"symbol": SYMBOLS[style["marker"]], "size": 10, "color": "white", "line": _EDGE})
        for row, style in network_marks(landscape)
    ]


def _origin_name(landscape: LandscapeData) -> str:
    return literal(landscape.origin.label(unit_of(landscape)), 72)


def status_marks(landscape: LandscapeData, look: Appearance) -> list[dict[str, Any]]:
    """Returns marks where points failed, and where they are interpolated or, if that is less, measured."""
    counts = landscape.status_counts
    measured, interpolated = counts[PointStatus.MEASURED], counts[PointStatus.INTERPOLATED]
    few = (PointStatus.INTERPOLATED, f"interpolated ({interpolated:,})", "white")
    if interpolated > measured:
        few = (PointStatus.MEASURED, f"measured ({measured:,}, all others interpolated)", "black")
    marks = []
    for status, name, marker in (
        (PointStatus.FAILED, "failed", {"symbol": "x", "size": 6, "color": look.soft}),
        (*few[:2], {"size": 3, "color": few[2]}),
    ):
        rows, columns = np.nonzero(landscape.status == status)
        if len(rows) and landscape.y is not None:
            marks.append(_mark(name, landscape.x[columns], landscape.y[rows], marker))
    return marks


def _mark(name: str, x: Any, y: Any, marker: dict[str, Any]) -> dict[str, Any]:
    marker = {"line": _EDGE if marker["size"] > 6 else {"width": 0}, **marker}
    return {**_POINTS, "name": name, "x": x, "y": y, "marker": marker, "hoverinfo": "skip"}


def _hover_of(view: MetricView, rows: NDArray[Any]) -> dict[str, Any]:
    landscape, found = view.landscape, view.landscape.checkpoints
    assert found is not None
    columns = (view.of_checkpoints("metrics"), view.of_checkpoints("projected"), found.residual)
    labels = [literal(found.label(row, unit_of(landscape)), 48) for row in rows]
    data = [list(each) for each in zip(labels, *(column[rows].tolist() for column in columns), strict=True)]
    template = _PATH_TEMPLATE.replace("{where}", "line" if landscape.y is None else "plane")
    template = template.replace("{metric}", literal(view.text, 48))
    return {"customdata": data, "hovertemplate": template, "hoverinfo": None}


def _draped(
    landscape: LandscapeData, x: NDArray[Any], y: NDArray[Any], feet: NDArray[Any], heights: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """Returns the path with pieces that follow the surface, where a straight line would run through hills."""
    from scipy.interpolate import RegularGridInterpolator

    assert landscape.y is not None
    steps = np.arange(0, len(x) - 1 + 0.5 / _PIECES, 1 / _PIECES)
    at = np.arange(len(x))
    x, y, chord = (np.interp(steps, at, values) for values in (x, y, feet))
    surface = RegularGridInterpolator((landscape.y, landscape.x), heights, bounds_error=False)
    below = surface(np.stack([y, x], axis=-1))
    # At a checkpoint its own height is measured; beside a gap the surface has none.
    z = np.where((np.arange(len(steps)) % _PIECES == 0) | np.isnan(below), chord, below)
    return {"x": x, "y": y, "z": z}
