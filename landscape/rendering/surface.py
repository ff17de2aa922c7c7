"""The drawn surface: smooth or straight between the points of a grid, with contour lines, colours, and light."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64

from ..drawing.camera import FLOOR
from ..drawing.occlusion import Relief
from .meshes import PathLine, Space

INTERPOLATIONS = ("smooth", "linear")
TUBE = 0.0125
# Steps of the surface for each pixel of the picture's longer side, so that no facet is seen.
_STEPS_PER_PIXEL, _MOST_STEPS = 0.2, 1024
# Of ambient occlusion: points a side, directions, and how many points away that is which hides the sky.
_LIGHT_POINTS, _DIRECTIONS, _REACHES = 192, 16, (1, 2, 3, 4, 6, 8, 11, 15, 21, 29, 40, 56, 78, 110)
# Colours of a screen are brightness to the power of 1 / 2.2.
_GAMMA = 2.2


class Surface:
    """What is drawn of a landscape with at least two points along each axis; a cell without a value is open."""

    def __init__(self, space: Space, colors: Any, interpolation: str, pixels: int) -> None:
        import pyvista
        from scipy.ndimage import distance_transform_edt

        self.space = space
        values = space.scale.heights(space.values)
        known = np.isfinite(values)
        steps = min(_STEPS_PER_PIXEL * pixels, _MOST_STEPS)
        factor = max(1, round(steps / (max(values.shape) - 1)))
        x, y = (np.interp(np.arange((len(a) - 1) * factor + 1) / factor, np.arange(len(a)), a) for a in space.plane)
        self.axes = x, y  # of the vertices, mx and my of them
        nearest = distance_transform_edt(~known, return_distances=False, return_indices=True)
        filled = between(space.plane, values[tuple(nearest)], self.axes, interpolation)
        cells = known[:-1, :-1] & known[:-1, 1:] & known[1:, :-1] & known[1:, 1:]
        # Which cells are drawn, shape (my - 1, mx - 1).
        self.whole = np.repeat(np.repeat(cells, factor, axis=0), factor, axis=1)
        number = np.arange(filled.size).reshape(filled.shape)
        corners = np.stack([number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]], axis=-1)[self.whole]
        # VTK would divide a cell in one way for the lines and in the other one for the picture.
        corners = corners[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)
        # Of the scale, shape (my, mx), NaN in open cells; places, in the scene's units, are filled from beside there.
        self.heights = np.where(np.isin(number, corners), filled, np.nan)
        self.relief = Relief(x, y, self.heights, space.frame.matrix)  # which a path follows
        self.places = space.from_frame(np.stack([*space.frame.mesh(x, y), filled], axis=-1))
        # About how far neighbours are apart on the plane, in the scene's units.
        self.step = float(np.linalg.norm((self.places[1, 1] - self.places[0, 0])[:2])) / math.sqrt(2)
        self.mesh = pyvista.PolyData.from_regular_faces(self.places.reshape(-1, 3), corners)
        self.lines = pyvista.PolyData()  # the contour lines on the mesh, with the same values
        if not len(corners):
            return
        self.mesh["height"] = filled.ravel()
        self.mesh["color"] = colors(space.shares(filled.ravel()))[:, :3]
        self.mesh["light"] = self._light().ravel()
        self.mesh.point_data.active_normals = self._normals(0.7 * factor).reshape(-1, 3)
        if not space.scale.flat:
            levels = list(space.scale.forward(space.scale.levels))
            self.lines = self.mesh.contour(levels, scalars="height").strip()

    def shade_beside(self, lines: Sequence[PathLine]) -> None:
        """Takes light from the surface beside the tubes that lie on it."""
        from scipy.ndimage import gaussian_filter

        (x, y), shade = self.axes, np.zeros(self.heights.shape)
        for line in lines:
            frame = line.points / self.space.factors + self.space.middle
            across, up = np.linalg.inv(self.space.frame.matrix) @ frame[:, :2].T
            inside = (across >= x[0]) & (across <= x[-1]) & (up >= y[0]) & (up <= y[-1])
            at = (np.interp(to[inside], axis, np.arange(len(axis))) for to, axis in ((up, y), (across, x)))
            shade[tuple(np.round(index).astype(int) for index in at)] = 1.0
        width = 1.3 * TUBE / self.step
        shade = gaussian_filter(shade, width, mode="nearest") * width * math.sqrt(2 * math.pi)
        self.mesh["light"] *= 1 - 0.55 * np.clip(shade.ravel(), 0, 1)

    def _normals(self, blur: float) -> Float64[np.ndarray, "my mx 3"]:
        from scipy.ndimage import gaussian_filter

        # Facets of a coarse grid would be seen as stripes of light; places stay where they are.
        places = self.places.copy()
        places[..., 2] = gaussian_filter(places[..., 2], blur, mode="nearest")
        found = np.cross(np.gradient(places, axis=1), np.gradient(places, axis=0))
        return np.asarray(found / np.linalg.norm(found, axis=-1, keepdims=True))

    def _light(self) -> Float64[np.ndarray, "my mx"]:
        """Returns how bright the surface is, at most 1, by the share of the sky that each place sees."""
        from scipy.ndimage import gaussian_filter, map_coordinates

        stride = max(1, round(max(self.heights.shape) / _LIGHT_POINTS))
        places, holes = self.places[::stride, ::stride], np.isnan(self.heights[::stride, ::stride])
        columns = (self.places[0, 1] - self.places[0, 0])[:2]
        rows = (self.places[1, 0] - self.places[0, 0])[:2]
        seen = sky_seen(np.where(holes, np.nan, places[..., 2]), stride * np.column_stack([columns, rows]))
        at = np.indices(self.heights.shape) / stride
        found = map_coordinates(gaussian_filter(seen, 0.8), at, order=1, mode="nearest")
        return np.asarray(found ** (1 / _GAMMA))


def between(
    grid: tuple[NDArray[Any], NDArray[Any]],
    values: Float64[np.ndarray, "ny nx"],
    axes: tuple[NDArray[Any], NDArray[Any]],
    interpolation: str,
) -> Float64[np.ndarray, "my mx"]:
    """Returns values at finer axes (x, y): bilinear, or the mean of two monotone cubics (Fritsch and Butland 1984)."""
    from scipy.interpolate import PchipInterpolator, make_interp_spline

    def along(axis: int, given: NDArray[Any]) -> NDArray[Any]:
        at = grid[1 - axis]
        made = make_interp_spline(at, given, 1, axis=axis) if linear else PchipInterpolator(at, given, axis=axis)
        return np.asarray(made(axes[1 - axis]))

    # Along x then y and along y then x differ, and a picture must not depend on which axis is called x.
    linear = interpolation == "linear"
    return np.asarray(0.5 * (along(0, along(1, values)) + along(1, along(0, values))))


def sky_seen(
    heights: Float64[np.ndarray, "ny nx"], to_world: Float64[np.ndarray, "2 2"]
) -> Float64[np.ndarray, "ny nx"]:
    """Returns the share of the sky each point sees; ``to_world`` takes grid steps (columns, rows) to heights' units."""
    # A hole hides nothing, and neither does what lies beyond the plane.
    lowest = np.nanmin(heights)
    solid = np.where(np.isnan(heights), lowest, heights)
    (rows, columns), around = solid.shape, max(_REACHES)
    padded, sky = np.pad(solid, around, constant_values=lowest), np.zeros(solid.shape)
    for turn in 2 * math.pi * np.arange(_DIRECTIONS) / _DIRECTIONS:
        way = np.linalg.solve(to_world, (math.cos(turn), math.sin(turn)))
        way /= np.abs(way).max()
        slopes = np.zeros(solid.shape)
        for reach in _REACHES:
            right, up = (round(part * reach) for part in way)
            there = padded[around + up : around + up + rows, around + right : around + right + columns]
            np.maximum(slopes, (there - solid) / np.linalg.norm(to_world @ (right, up)), out=slopes)
        sky += 1 / (1 + slopes**2) / _DIRECTIONS
    return sky


def floor_height(space: Space) -> float:
    return -FLOOR * float(np.ptp(space.scale.tall.height_range) * space.factors[2])
