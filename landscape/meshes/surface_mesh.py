"""The space in which a surface and its path stand, and a plane's metric in it: triangles, values, colours, normals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collectors.shapes import Bool, Float64, Int64

from ..grid.data import LandscapeData
from ..scales.frame import Frame, choose_frame, span
from ..scales.landscape_scale import known, landscape_scale
from ..scales.scale import Scale

# The sides of a square plane are two units: as large as the cube that Blender starts with.
_UNITS = 2.0


@dataclass(frozen=True)
class Space:
    """The way from a plane and its values to places (x, y, z) with z up, in the proportions of a figure's box.

    The middle of the plane lies at x = y = 0, the lowest height at z = 0. A square plane is 2 wide, 2 deep and 1.11
    high; any other has the same area and height. One unit is meant to be a metre.
    """

    landscape: LandscapeData
    metric: str
    scale: Scale
    frame: Frame
    factors: Float64[np.ndarray, " 3"]  # units for each of the frame's coordinates and the scale's height
    middle: Float64[np.ndarray, " 3"]  # (across, up, height) of the place (0, 0, 0)

    @property
    def plane(self) -> tuple[NDArray[Any], NDArray[Any]]:
        assert self.landscape.y is not None
        return self.landscape.x, self.landscape.y

    @property
    def values(self) -> Float64[np.ndarray, "ny nx"]:
        """The metric at the grid's points, NaN where it is unknown or not finite."""
        return known(self.landscape[self.metric], self.landscape.status)

    def shares(self, heights: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        """Returns where heights of the scale lie among the colours, from 0 to 1."""
        low, high = self.scale.height_range
        return np.clip((heights - low) / (high - low), 0, 1)

    def place(self, x: ArrayLike, y: ArrayLike, values: ArrayLike) -> Float64[np.ndarray, "*shape 3"]:
        """Returns places of points of the plane, at the heights of values; NaN where a value is not finite."""
        across, up = self.frame.place(x, y)
        return self.from_frame(np.stack(np.broadcast_arrays(across, up, self.scale.tall.heights(values)), axis=-1))

    def from_frame(self, points: Float64[np.ndarray, "*shape 3"]) -> Float64[np.ndarray, "*shape 3"]:
        """Returns places of points that are given by the frame's coordinates and the scale's heights."""
        return np.asarray((points - self.middle) * self.factors)


def choose_space(
    landscape: LandscapeData, metric: str = "loss", scale: Scale | None = None, *, aspect: str = "equal"
) -> Space:
    """Returns the space of a plane, by the rules of ``plot_surface``; so is its scale where none is given."""
    if landscape.y is None:
        raise ValueError("a surface needs a plane, but the landscape is a line; draw it with plot_profile.")
    if scale is None:
        scale = landscape_scale(landscape, metric, count=8)
    frame = choose_frame(landscape, aspect)
    (left, right), (bottom, top) = frame.limits(span(landscape.x), span(landscape.y))
    low, high = scale.tall.height_range
    box = np.array(frame.box) * _UNITS
    return Space(
        landscape, metric, scale, frame, box / (right - left, top - bottom, high - low),
        np.array([(left + right) / 2, (bottom + top) / 2, low]),
    )  # fmt: skip


@dataclass(frozen=True)
class SurfaceMesh:
    """The grid's points and the triangles between those that are known; where a value is missing there is a hole."""

    vertices: Float64[np.ndarray, "n 3"]  # all n = ny * nx points, x fastest, z up; z is NaN where the value is
    triangles: Int64[np.ndarray, "m 3"]  # rows of ``vertices``, counter-clockwise seen from above
    values: Float64[np.ndarray, " n"]  # as measured, neither scaled nor clipped, NaN where unknown or not finite
    shares: Float64[np.ndarray, " n"]  # where a value lies among the colours, from 0 to 1, NaN where unknown

    @property
    def used(self) -> Bool[np.ndarray, " n"]:
        """Whether a vertex belongs to a triangle."""
        return np.isin(np.arange(len(self.vertices)), self.triangles)

    @property
    def alone(self) -> Bool[np.ndarray, " n"]:
        return np.asarray(np.isfinite(self.values) & ~self.used)


def surface_mesh(space: Space) -> SurfaceMesh:
    """Returns a plane's surface as triangles: every vertex is a point of the grid, and nothing is smoothed."""
    values = space.values
    x, y = space.plane
    places = space.place(x[None, :], y[:, None], space.scale.shown(values))
    shares = space.shares(space.scale.heights(values))
    return SurfaceMesh(places.reshape(-1, 3), _triangles(places[..., 2]), values.ravel(), shares.ravel())


def vertex_normals(
    vertices: Float64[np.ndarray, "n 3"], triangles: Int64[np.ndarray, "m 3"]
) -> Float64[np.ndarray, "n 3"]:
    """Returns unit vectors, the mean of those of a vertex's triangles by their areas; upwards where it has none."""
    first, second, third = (vertices[corner] for corner in triangles.T)
    # The length of each is twice the triangle's area.
    faces = np.cross(second - first, third - first)
    total = np.zeros_like(vertices)
    for corner in triangles.T:
        np.add.at(total, corner, faces)
    lengths = np.linalg.norm(total, axis=1, keepdims=True)
    return np.where(lengths > 0, total / np.where(lengths > 0, lengths, 1.0), (0.0, 0.0, 1.0))


def _triangles(heights: NDArray[Any]) -> NDArray[np.int64]:
    """Returns two triangles for each cell whose corners have heights, shape (m, 3)."""
    rows, columns = heights.shape
    number = np.arange(rows * columns).reshape(rows, columns)
    corners = [number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]]
    cells = np.stack(corners, axis=-1).reshape(-1, 4)
    at = heights.ravel()[cells]
    whole = np.isfinite(at).all(axis=1)
    cells, at = cells[whole], at[whole]
    # The diagonal with ends more equally high becomes an edge, or valleys and ridges would become rows of teeth.
    upwards = np.abs(at[:, 2] - at[:, 0]) <= np.abs(at[:, 3] - at[:, 1])
    split = np.where(upwards[:, None], cells[:, [0, 1, 2, 0, 2, 3]], cells[:, [0, 1, 3, 1, 2, 3]])
    return np.asarray(split.reshape(-1, 3), np.int64)
