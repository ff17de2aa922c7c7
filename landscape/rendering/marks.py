"""Starts, ends, networks and the origin as medals that face the viewer, with the shapes and colours of figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.path import EDGE, END, STAR, START, network_marks
from ..meshes.space import Space
from .solids import Solid, medal, plate, ring
from .viewpoint import Viewpoint

if TYPE_CHECKING:
    from jaxtyping import Float64


# Units of the scene for a point of a mark's size in figures.
_POINT = 0.0062
# Marks stand so many of their radii before the surface, so that it does not cut them.
_BEFORE = 1.5


def mark_solids(
    space: Space, viewpoint: Viewpoint, free_way: Callable[[NDArray[Any], NDArray[Any]], float]
) -> list[Solid]:
    """Returns the marks that a viewer sees; ``free_way(rim, toward)`` is how far to go until no slope cuts the rim."""
    solids = []
    for place, style in _marks(space):
        solids += _mark(place, style, viewpoint, free_way)
    return solids


def _marks(space: Space) -> list[tuple[NDArray[Any], dict[str, Any]]]:
    landscape, metric = space.landscape, space.metric
    found, origin = landscape.checkpoints, landscape.origin
    chosen = [(origin.x, origin.y or 0.0, origin.metrics.get(metric, np.nan), STAR)]
    if found is not None and found.y is not None and metric in found.projected:
        values = found.projected[metric]
        rows = [(path[at], style) for path in found.paths if len(path) > 1 for at, style in ((0, START), (-1, END))]
        rows += network_marks(landscape)
        chosen += [(found.x[row], found.y[row], values[row], style) for row, style in rows]
    placed = [(space.place(x, y, value), style) for x, y, value, style in chosen]
    return [(place, style) for place, style in placed if np.isfinite(place).all()]


def _mark(
    place: Float64[np.ndarray, " 3"], style: dict[str, Any], viewpoint: Viewpoint, free_way: Callable[..., float]
) -> list[Solid]:
    from matplotlib.colors import to_rgba

    radius = 0.5 * _POINT * style["markersize"]
    toward = viewpoint.toward(place[None])[0]
    right = np.cross(viewpoint.up, toward)
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(toward, right), toward])
    angles = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    rim = place + radius * (np.cos(angles)[:, None] * axes[0] + np.sin(angles)[:, None] * axes[1])
    centre = place + (free_way(rim, toward) + _BEFORE * radius) * toward
    if style["color"] == "none":
        wire = 0.5 * _POINT * style["markeredgewidth"]
        shapes = [(ring(radius, wire, centre, axes), style["markeredgecolor"])]
    else:
        outline = radius * _outline(style["marker"])
        grown = outline * (1 + 0.5 * _POINT / radius)
        dark = plate(grown, centre - 0.05 * radius * toward, axes)
        shapes = [(medal(outline, centre, axes), style["color"]), (dark, EDGE)]
    return [
        Solid(vertices, triangles, normals, np.broadcast_to(to_rgba(color), (len(vertices), 4)))
        for (vertices, triangles, normals), color in shapes
    ]


def _outline(marker: str) -> Float64[np.ndarray, "k 2"]:
    """Returns the outline of matplotlib's mark, counter-clockwise, about 1 from its middle."""
    from matplotlib.markers import MarkerStyle

    style = MarkerStyle(marker)
    points = np.asarray(style.get_path().transformed(style.get_transform()).to_polygons()[0], np.float64)[:-1]
    points = points / np.abs(points).max()
    turned = np.roll(points, -1, axis=0)
    area = (points[:, 0] * turned[:, 1] - turned[:, 0] * points[:, 1]).sum()
    return np.asarray(points if area > 0 else points[::-1], np.float64)
