"""What a notebook's figure draws beside the values: the path, marks, and what appears beside the mouse."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.network_state import Array

from ..figures.path import END, PATH, STAR, START
from ..figures.scales import Scale
from ..landscape_data import PointStatus

if TYPE_CHECKING:
    from ..figures.appearance import Appearance
    from ..surface import Landscape

_EDGE = {"color": "#1a1a1a", "width": 1}
_STAR = {"symbol": "star", "size": 14, "color": STAR["color"]}
_PIECES = 12
_PATH_TEMPLATE = (
    "%{customdata[0]}<br>own loss %{customdata[1]:.6g}<br>loss on the plane %{customdata[2]:.6g}"
    "<br>distance from the plane %{customdata[3]:.4g}<extra></extra>"
)


def literal(text: object, limit: int = 72) -> str:
    """Returns text that plotly writes as it is: it knows a few HTML tags, and formulas between dollar signs."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    if len(shown) > limit:
        shown = shown[: limit - 3] + "..."
    # In a template, %{...} is a variable.
    return html.escape(shown, quote=False).replace("$", "&#36;").replace("%{", "%&#123;")


def compact(values: Array) -> Array:
    """Returns the values with seven digits, more than are shown, unless one of them would overflow or vanish."""
    with np.errstate(over="ignore", under="ignore"):
        small = values.astype(np.float32)
    same = (np.isfinite(small) == np.isfinite(values)) & ((small == 0) == (values == 0))
    return small if same.all() else values


def hover(landscape: Landscape) -> dict[str, Any]:
    """Returns what a trace over the grid says beside the mouse: the coordinates and every metric, as stored."""
    lines = ["x %{x:.4g}"] if landscape.y is None else ["x %{x:.4g}", "y %{y:.4g}"]
    lines += [f"{literal(name, 32)} %{{customdata[{index}]:.6g}}" for index, name in enumerate(landscape.metrics)]
    values = np.stack([compact(landscape[name]) for name in landscape.metrics], axis=-1)
    return {"customdata": values, "hovertemplate": "<br>".join(lines) + "<extra></extra>"}


def line_marks(landscape: Landscape, scale: Scale) -> list[dict[str, Any]]:
    """Returns the checkpoints and the convergence point on a line's profile."""
    path, point, traces = landscape.trajectory, landscape.convergence, []
    if path is not None and "loss" in path.projected:
        marker = {"symbol": "diamond", "size": 9, "color": PATH}
        heights = scale.forward(scale.shown(path.projected["loss"]))
        traces.append(_mark("checkpoints (projected)", path.x, heights, marker) | _path_hover(landscape))
    height = scale.forward(scale.shown(np.array([point.metrics.get("loss", np.nan)])))
    return [*traces, _mark("convergence point", [point.x], height, _STAR)]


def path_marks(landscape: Landscape, scale: Scale, heights: Array) -> list[dict[str, Any]]:
    """Returns the path and the convergence point, on the map and on the surface.

    Args:
        landscape: a plane.
        scale: of the loss.
        heights: of the surface as drawn, shape (ny, nx).
    """
    path, point = landscape.trajectory, landscape.convergence
    lift = (scale.forward(scale.high) - scale.forward(scale.low)) / 100
    traces: list[dict[str, Any]] = []
    if path is not None and path.y is not None and len(path.number):
        about = _path_hover(landscape)
        projected = path.projected.get("loss", np.full(len(path.number), np.nan))
        feet = scale.forward(scale.shown(projected)) + lift
        x, y, z = _draped(landscape, path.x, path.y, feet, heights + lift)
        dots = {"size": 6, "color": "white", "line": _EDGE}
        hidden = {"showlegend": False}
        halo = {"color": "rgba(20,20,20,0.75)", "width": 4}
        end = {"symbol": "circle-open", "size": 15, "color": END["markeredgecolor"], "line": {"width": 2.5}}
        traces += [
            {"type": "scatter", "mode": "lines", "x": path.x, "y": path.y, "hoverinfo": "skip", "line": halo, **hidden},
            {
                "type": "scatter", "mode": "lines+markers", "name": "path", "x": path.x, "y": path.y, "marker": dots,
                "line": {"color": "white", "width": 2}, **hidden, **about,
            },
            _mark("start", path.x[:1], path.y[:1], {"symbol": "square", "size": 9, "color": START["color"]}),
            _mark("end", path.x[-1:], path.y[-1:], end),
            {
                "type": "scatter3d", "mode": "lines", "x": x, "y": y, "z": z, "hoverinfo": "skip", **hidden,
                "line": {"color": PATH, "width": 4},
            },
            {
                "type": "scatter3d", "mode": "markers", "x": path.x, "y": path.y, "z": feet, **hidden, **about,
                "marker": {**dots, "size": 3},
            },
        ]  # fmt: skip
    origin = scale.forward(scale.shown(np.array([point.metrics.get("loss", np.nan)]))) + lift
    diamond = {"symbol": "diamond", "size": 5, "color": STAR["color"], "line": _EDGE}
    return [
        *traces,
        _mark("convergence point", [point.x], [point.y], _STAR),
        {
            "type": "scatter3d", "mode": "markers", "x": [point.x], "y": [point.y], "z": origin, "hoverinfo": "skip",
            "marker": diamond, "showlegend": False,
        },
    ]  # fmt: skip


def status_marks(landscape: Landscape, look: Appearance) -> list[dict[str, Any]]:
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


def _path_hover(landscape: Landscape) -> dict[str, Any]:
    path, unit = landscape.trajectory, literal(landscape.attributes.get("unit") or "checkpoint", 16)
    assert path is not None
    unknown = np.full(len(path.number), np.nan)
    columns = (path.metrics.get("loss", unknown), path.projected.get("loss", unknown), path.residual)
    rows = zip(path.number.tolist(), *(column.tolist() for column in columns), strict=True)
    data = [[f"{unit} {number}", *values] for number, *values in rows]
    return {"customdata": data, "hovertemplate": _PATH_TEMPLATE, "hoverinfo": None}


def _draped(landscape: Landscape, x: Array, y: Array, feet: Array, heights: Array) -> tuple[Array, Array, Array]:
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
