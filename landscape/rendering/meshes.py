"""Where a surface and its paths stand in space: a plane's metric as triangles, paths as tubes, networks as balls."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collectors.shapes import Bool, Float64, Int64

from ..drawing.camera import feet_on_surface
from ..drawing.occlusion import Relief
from ..drawing.path import END, STAR, START, end_number, network_marks, origin_label, run_colors, run_label
from ..drawing.texts import printable, unescaped
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


@dataclass(frozen=True)
class PathLine:
    """A run's path, at the heights of its projection on the plane, and on the surface between two checkpoints."""

    name: str  # of the run, or "trajectory"
    color: str  # as in figures, such as "#e5383b"
    rows: Int64[np.ndarray, " k"]  # among the landscape's checkpoints; none without a finite projected value
    values: Float64[np.ndarray, " k"]  # of the metric, projected, as measured
    checkpoints: Float64[np.ndarray, "k 3"]  # their places
    points: Float64[np.ndarray, "m 3"]  # the line through them


@dataclass(frozen=True)
class Mark:
    """A network on the surface: "start", "end", "network" or "origin", its place, and the metric there as measured."""

    kind: str
    name: str
    style: dict[str, Any]
    point: Float64[np.ndarray, " 3"]
    value: float

    @property
    def color(self) -> str:
        return str(self.style["color"] if self.style["color"] != "none" else self.style["markeredgecolor"])


def path_lines(space: Space) -> list[PathLine]:
    """Returns each run's path at its finite projected values, on the surface between them; none without projections."""
    landscape, found = space.landscape, space.landscape.checkpoints
    # A checkpoint's own value belongs to a place off the plane.
    feet = feet_on_surface(landscape, space.metric, space.scale, space.frame)
    if found is None or feet is None:
        return []
    values, lines = found.projected[space.metric], []
    relief = Relief(*space.plane, space.scale.heights(space.values), space.frame.matrix)
    for path, color in zip(found.paths, run_colors(landscape), strict=True):
        rows = path[np.isfinite(feet[path, 2])]
        if len(rows):
            name = unescaped(run_label(landscape, path))
            places, points = (space.from_frame(line) for line in (feet[rows], relief.path_over(feet[rows])))
            lines.append(PathLine(name, color, rows, values[rows], places, points))
    return lines


def path_marks(space: Space) -> list[Mark]:
    """Returns the ends of runs' paths, the networks of no run and the origin, where their value is finite."""
    landscape, metric = space.landscape, space.metric
    found, origin = landscape.checkpoints, landscape.origin
    marks = []

    def add(kind: str, name: str, style: dict[str, Any], x: float, y: float, value: float) -> None:
        point = space.place(x, y, value)
        if np.isfinite(point).all():
            marks.append(Mark(kind, printable(name, 72), style, point, value))

    if found is not None and found.y is not None and metric in found.projected:
        values = found.projected[metric]
        for path in found.paths:
            for kind, row, style in (("start", path[0], START), ("end", path[-1], END)):
                if len(path) > 1:
                    run = found.run_name(row)
                    name = kind + (f" of {run}" if run else "") + unescaped(end_number(landscape, [row]))
                    add(kind, name, style, found.x[row], found.y[row], float(values[row]))
        for row, style in network_marks(landscape):
            add("network", found.name[row], style, found.x[row], found.y[row], float(values[row]))
    value = float(origin.metrics.get(metric, math.nan))
    add("origin", unescaped(origin_label(landscape)), STAR, origin.x, origin.y or 0.0, value)
    return marks


def path_mesh(
    points: Float64[np.ndarray, "m 3"], radius: float, sides: int = 12
) -> tuple[Float64[np.ndarray, "n 3"], Int64[np.ndarray, "t 3"]]:
    """Returns a tube around a line: its vertices, shape (n, 3), and its triangles, outwards, shape (t, 3)."""
    away = np.append(True, np.linalg.norm(np.diff(points, axis=0), axis=1) > 1e-9 * radius)
    points = points[away]
    if len(points) == 1:
        return ball_mesh(points, radius)
    steps = np.diff(points, axis=0)
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    # At a bend the cross-section halves the angle.
    along = np.vstack([steps[:1], steps[:-1] + steps[1:], steps[-1:]])
    lengths = np.linalg.norm(along, axis=1, keepdims=True)
    along = np.where(lengths > 1e-6, along / np.maximum(lengths, 1e-6), np.vstack([steps[:1], steps]))
    aside = _carried(along)
    angles = np.linspace(0, 2 * math.pi, sides, endpoint=False)
    rings = points[:, None] + radius * (
        np.cos(angles)[None, :, None] * aside[:, None] + np.sin(angles)[None, :, None] * np.cross(along, aside)[:, None]
    )
    vertices = np.vstack([rings.reshape(-1, 3), points[:1], points[-1:]])
    ring, starts = np.arange(sides), sides * np.arange(len(points))[:, None]
    after = np.roll(ring, -1)
    first, beside = starts[:-1] + ring, starts[:-1] + after
    walls = np.stack([first, beside, beside + sides, first, beside + sides, first + sides], axis=-1).reshape(-1, 3)
    front = np.column_stack([after, ring, np.full(sides, len(vertices) - 2)])
    back = np.column_stack([starts[-1] + ring, starts[-1] + after, np.full(sides, len(vertices) - 1)])
    return vertices, np.vstack([walls, front, back]).astype(np.int64)


def ball_mesh(
    centres: Float64[np.ndarray, "k 3"], radius: float
) -> tuple[Float64[np.ndarray, "n 3"], Int64[np.ndarray, "t 3"]]:
    """Returns balls: their vertices, shape (n, 3), one ball after the other, and triangles, outwards, shape (t, 3)."""
    corners, faces = _unit_ball()
    vertices = (centres[:, None] + radius * corners).reshape(-1, 3)
    return vertices, (np.arange(len(centres))[:, None, None] * len(corners) + faces).reshape(-1, 3)


@functools.cache
def _unit_ball() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns an octahedron whose faces are divided twice, with vertices moved onto the unit sphere."""
    corners = [tuple(corner) for corner in np.vstack([np.eye(3), -np.eye(3)]).tolist()]
    faces = [(0, 1, 2), (1, 3, 2), (3, 4, 2), (4, 0, 2), (1, 0, 5), (3, 1, 5), (4, 3, 5), (0, 4, 5)]
    for _ in range(2):
        number = {corner: index for index, corner in enumerate(corners)}
        divided = []
        for face in faces:
            middles = []
            for first, second in zip(face, (*face[1:], face[0]), strict=True):
                middle = np.add(corners[first], corners[second])
                point = tuple((middle / np.linalg.norm(middle)).tolist())
                middles.append(number.setdefault(point, len(number)))
            (a, b, c), (ab, bc, ca) = face, middles
            divided += [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
        corners, faces = list(number), divided
    return np.array(corners), np.array(faces, np.int64)


def _carried(along: NDArray[Any]) -> NDArray[Any]:
    """Returns unit vectors at right angles to a line's directions that do not turn around it, shape (m, 3)."""
    axis = np.eye(3)[np.argmin(np.abs(along[0]))]
    found = []
    for direction in along:
        axis = axis - (axis @ direction) * direction
        if np.linalg.norm(axis) < 1e-6:
            axis = np.cross(direction, np.eye(3)[np.argmin(np.abs(direction))])
        axis = axis / np.linalg.norm(axis)
        found.append(axis)
    return np.array(found)
