"""The floor below a surface: its contour lines, the border of the plane, the paths' feet, and a soft shadow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.camera import FLOOR
from ..meshes.path_mesh import PathLine
from ..meshes.space import Space
from ..scales.frame import span
from .solids import Solid, joined, level_line
from .viewpoint import Viewpoint

if TYPE_CHECKING:
    from jaxtyping import Float64


_LINE = 0.0050
_BORDER = 0.0022
# How opaque the shadow is everywhere, how much more below the lowest places, and how soon that fades with the height.
_FAINT, _DARK, _FADES = 0.07, 0.62, 0.42
# How far the shadow reaches beyond the plane, and how soft it is, as shares of the plane's sides.
_REACH, _SOFT = 0.16, 0.05
_SHADOW_POINTS = 160
_SHADOW_PIXELS = 6


def floor_height(space: Space) -> float:
    """Returns where the floor lies, in the scene's units."""
    low, high = space.scale.tall.height_range
    return -FLOOR * (high - low) * float(space.factors[2])


def level_lines(
    space: Space, axes: tuple[NDArray[Any], NDArray[Any]], heights: Float64[np.ndarray, "my mx"]
) -> Iterator[tuple[float, Float64[np.ndarray, "m 3"]]]:
    """Yields the contour lines of a surface where they lie on it, each with its place among the colours, 0 to 1."""
    scale = space.scale
    if scale.flat or min(heights.shape) < 2:
        return
    from contourpy import contour_generator

    x, y = space.frame.mesh(*axes)
    found = contour_generator(x, y, np.ma.masked_invalid(heights))
    low, high = scale.height_range
    for height in scale.forward(scale.levels):
        lines: Any = found.lines(height)
        for line in lines:
            away = np.append(True, np.any(np.diff(line, axis=0) != 0, axis=1))
            places = np.column_stack([line[away], np.full(int(away.sum()), height)])
            if len(places) > 1:
                yield float((height - low) / (high - low)), space.from_frame(places)


def floor_solids(
    space: Space,
    axes: tuple[NDArray[Any], NDArray[Any]],
    heights: Float64[np.ndarray, "my mx"],
    colors: Any,
    theme: Mapping[str, Any],
    paths: Sequence[PathLine],
    finest: float,
) -> list[Solid]:
    """Returns the floor, first its border, which a viewer must see whole; lines are at least twice ``finest`` wide."""
    from matplotlib.colors import to_rgba

    z = floor_height(space)
    x, y = map(span, axes)
    corners = np.column_stack([*space.frame.place(x[[0, -1, -1, 0, 0]], y[[0, 0, -1, -1, 0]]), np.zeros(5)])
    border = space.from_frame(corners)
    border[:, 2] = z
    solids = [_lines([border], [np.array(to_rgba(theme["soft"]))], max(_BORDER, finest))]
    levels = list(level_lines(space, axes, heights))
    for _, points in levels:
        points[:, 2] = z
    if levels:
        solids.append(
            _lines(
                [points for _, points in levels], [np.array(colors(share)) for share, _ in levels], max(_LINE, finest)
            )
        )
    feet = []
    for path in paths:
        points = path.points.copy()
        points[:, 2] = z + 2 * _LINE
        points = points[np.append(True, np.linalg.norm(np.diff(points, axis=0), axis=1) > 1e-5)]
        if len(points) > 1:
            feet.append((points, np.array(to_rgba(path.color))))
    if feet:
        solids.append(_lines([points for points, _ in feet], [color for _, color in feet], max(1.2 * _LINE, finest)))
    return solids


def _lines(lines: Sequence[NDArray[Any]], colors: Sequence[NDArray[Any]], radius: float) -> Solid:
    parts = []
    for points, color in zip(lines, colors, strict=True):
        vertices, triangles, normals = level_line(points, radius)
        parts.append((vertices, triangles, normals, np.broadcast_to(color, (len(vertices), 4))))
    vertices, triangles, _, shades = joined(parts)
    return Solid(vertices, triangles, None, shades)


@dataclass(frozen=True)
class Shadow:
    """The soft shadow that a surface throws straight down; holes let light through, low places are darker.

    Attributes:
        height: of the floor, in the scene's units.
        corner: of the shadow, shape (2,), in the scene's units.
        to_world: takes steps of the shadow's grid, (columns, rows), to the scene's units, shape (2, 2).
        opacity: from 0 to 1.
    """

    height: float
    corner: Float64[np.ndarray, " 2"]
    to_world: Float64[np.ndarray, "2 2"]
    opacity: Float64[np.ndarray, "rows columns"]

    def seen(self, viewpoint: Viewpoint, width: int, height: int) -> NDArray[np.uint8]:
        """Returns the shadow's opacity in each pixel, from 0 to 255, shape (height, width); 0 as seen from below."""
        from PIL import Image
        from scipy.ndimage import map_coordinates

        if viewpoint.eye[2] <= self.height:
            return np.zeros((height, width), np.uint8)
        # It is soft everywhere, so few pixels tell all.
        rows, columns = (max(2, round(count / _SHADOW_PIXELS)) for count in (height, width))
        rays = viewpoint.rays(columns, rows)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = (self.height - viewpoint.eye[2]) / rays[..., 2]
        places = viewpoint.eye[:2] + np.where(times > 0, times, np.nan)[..., None] * rays[..., :2]
        steps = (places - self.corner) @ np.linalg.inv(self.to_world).T
        at = np.nan_to_num(steps[..., ::-1], nan=-1e9).reshape(-1, 2).T
        found = map_coordinates(self.opacity, at, order=1, mode="constant").reshape(rows, columns)
        small = Image.fromarray(np.round(255 * found).astype(np.uint8))
        return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


def floor_shadow(space: Space, axes: tuple[NDArray[Any], NDArray[Any]], heights: NDArray[Any]) -> Shadow:
    """Returns the shadow on the floor; ``axes`` are the coordinates x and y of the surface's vertices."""
    from scipy.ndimage import gaussian_filter

    shares = (1 + 2 * _REACH) * np.linspace(-0.5, 0.5, _SHADOW_POINTS) + 0.5
    x, y = (axis[0] + (axis[-1] - axis[0]) * shares for axis in axes)
    columns, rows = (
        np.clip(np.round(np.interp(values, axis, np.arange(len(axis)))), 0, len(axis) - 1).astype(int)
        for values, axis in ((x, axes[0]), (y, axes[1]))
    )
    inside = ((y >= axes[1][0]) & (y <= axes[1][-1]))[:, None] & ((x >= axes[0][0]) & (x <= axes[0][-1]))
    above = heights[np.ix_(rows, columns)]
    covered = inside & np.isfinite(above)
    low, high = space.scale.tall.height_range
    clearance = np.where(covered, (above - low) / (high - low) + FLOOR, 0.0)
    dark = np.where(covered, _FAINT + _DARK * np.exp(-clearance / _FADES), 0.0)
    corners = space.from_frame(np.stack([*space.frame.mesh(x[[0, -1]], y[[0, -1]]), np.zeros((2, 2))], axis=-1))
    sides = np.column_stack([corners[0, 1] - corners[0, 0], corners[1, 0] - corners[0, 0]])[:2]
    soft = gaussian_filter(dark, _SOFT / (1 + 2 * _REACH) * _SHADOW_POINTS, mode="constant")
    return Shadow(floor_height(space), corners[0, 0, :2], sides / (_SHADOW_POINTS - 1), soft)
