"""A landscape as a scene: the surface, the contour lines on its floor, runs' paths as tubes, and networks as marks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.appearance import THEMES, readable
from ..drawing.camera import Camera
from ..drawing.occlusion import Relief
from ..meshes.path_mesh import PathLine, path_lines, path_mesh
from ..meshes.space import Space
from .between_points import refine, refine_axis
from .floor import Shadow, floor_shadow, floor_solids, level_lines
from .light import Lamps, lamp_seen, lamps_beside, sky_seen
from .marks import mark_solids
from .renderer import rendered
from .solids import Solid, balls, grid_normals, grid_triangles, joined, level_line, smooth_normals
from .viewpoint import Viewpoint, choose_viewpoint

if TYPE_CHECKING:
    from jaxtyping import Float64, UInt8


# Steps of the drawn surface for each pixel of the picture's longer side.
_STEPS_PER_PIXEL = 0.2
_MOST_STEPS = 1024
# Light and shade are computed on a grid of about so many points a side, and lie smoothly between them.
_LIGHT_POINTS = 256
_TUBE = 0.0125
# What lies below the surface by at most this share of the heights is seen through it.
_BURIED = 0.15
# A hill nearer to a mark than this, in the scene's units, is the slope that it stands on and does not hide it.
_SLOPE, _STEPS_ALONG = 0.5, 96
_LINE = 0.0030
_DARKER_LINE = 0.62
# The underside is pale: so much of the colours above, and so much white.
_UNDERSIDE = (0.45, 0.36)


@dataclass(frozen=True)
class Scene:
    """What stands before the viewer, the same for every camera.

    Attributes:
        theme: "light" or "dark", of the page behind the picture.
        factor: steps of the drawn surface in each step of the grid.
        finest: the smallest half of a line's width, in the scene's units.
    """

    space: Space
    colors: Any
    theme: str
    trajectory: bool
    interpolation: str
    factor: int
    finest: float = 0.0

    def render(self, camera: Camera, width: int, height: int) -> UInt8[np.ndarray, "height width 4"]:
        """Returns the picture from a camera's direction, as near as shows all; frames of a film come from one scene."""
        viewpoint = self.viewpoint(camera, width, height)
        lamps = lamps_beside(camera.azimuth)
        solids = [*self._surface(lamps), *self._floor, *self._alone]
        if self.trajectory:
            solids += [*self._tubes(viewpoint), *mark_solids(self.space, viewpoint, self._free_way)]
        drawn = rendered(solids, viewpoint, lamps, width, height)
        # A single row or column has no surface, and so no shadow.
        if min(self._heights.shape) < 2:
            return drawn
        return _over(drawn, self._shadow.seen(viewpoint, width, height))

    def viewpoint(self, camera: Camera, width: int, height: int) -> Viewpoint:
        """Returns where the viewer of a picture stands."""
        seen = [self._places.reshape(-1, 3)[:: max(self.factor, 1)], self._floor[0].vertices]
        seen += [solid.vertices for solid in self._alone]
        seen += [line.points + aside for line in self._lines for aside in (-2 * _TUBE, 2 * _TUBE)]
        points = np.concatenate(seen)
        return choose_viewpoint(camera.toward, points[np.isfinite(points).all(axis=1)], width, height)

    @cached_property
    def _axes(self) -> tuple[NDArray[Any], NDArray[Any]]:
        x, y = self.space.plane
        return refine_axis(x, self.factor), refine_axis(y, self.factor)

    @property
    def _coarse(self) -> int:
        """How many steps of the drawn surface are one where it is seen from below."""
        return next(step for step in (4, 3, 2, 1) if self.factor % step == 0)

    @cached_property
    def _heights(self) -> Float64[np.ndarray, "my mx"]:
        """Heights of the scale at the drawn surface's vertices."""
        space = self.space
        return refine(*space.plane, space.scale.heights(space.values), self.factor, self.interpolation)

    @cached_property
    def _places(self) -> Float64[np.ndarray, "my mx 3"]:
        across, up = self.space.frame.mesh(*self._axes)
        return self.space.from_frame(np.stack([across, up, self._heights], axis=-1))

    @cached_property
    def _filled(self) -> Float64[np.ndarray, "my mx 3"]:
        """The surface with its holes filled from beside, from which only light and shade are computed."""
        from scipy.ndimage import distance_transform_edt

        missing = np.isnan(self._heights)
        if not missing.any() or missing.all():
            return self._places
        nearest = distance_transform_edt(missing, return_distances=False, return_indices=True)
        places = self._places.copy()
        places[..., 2] = places[..., 2][tuple(nearest)]
        return places

    @cached_property
    def _normals(self) -> Float64[np.ndarray, "my mx 3"]:
        from scipy.ndimage import gaussian_filter

        places = self._filled
        if self.factor > 1:
            # Facets of a coarse grid would be seen as stripes of light; places stay where they are.
            places = places.copy()
            places[..., 2] = gaussian_filter(places[..., 2], 0.7 * self.factor, mode="nearest")
        return grid_normals(places)

    @cached_property
    def _shares(self) -> NDArray[Any]:
        """Where the heights lie among the colours, from 0 to 1."""
        low, high = self.space.scale.height_range
        return np.clip((self._heights - low) / (high - low), 0, 1)

    @cached_property
    def _light_grid(self) -> tuple[NDArray[Any], NDArray[Any], tuple[NDArray[Any], NDArray[Any]]]:
        """Heights on the grid for light and shade, what takes its steps to the scene, and its rows and columns."""
        rows, columns = self._heights.shape
        stride = max(1, round(max(rows, columns) / _LIGHT_POINTS))
        picked = [np.unique(np.append(np.arange(0, count, stride), count - 1)) for count in (rows, columns)]
        places = self._places[np.ix_(*picked)]
        corner = self._places[..., :2]
        to_world = np.column_stack(
            [(corner[0, -1] - corner[0, 0]) / (columns - 1), (corner[-1, 0] - corner[0, 0]) / (rows - 1)]
        )
        return places[..., 2], stride * to_world, (picked[0], picked[1])

    def _spread(self, shares: NDArray[Any]) -> NDArray[Any]:
        """Returns values of the grid for light and shade at the surface's vertices, shape (n,)."""
        from scipy.ndimage import gaussian_filter

        found = gaussian_filter(shares, 0.8, mode="nearest")
        for picked, count in zip(self._light_grid[2], self._heights.shape, strict=True):
            if len(picked) > 1:
                at = np.interp(np.arange(count), picked, np.arange(len(picked)))
                first = np.minimum(at.astype(int), len(picked) - 2)
                share = (at - first)[:, None]
                found = found[first] * (1 - share) + found[first + 1] * share
            found = found.T
        return np.asarray(found).ravel()

    @cached_property
    def _sky(self) -> NDArray[Any]:
        seen = self._spread(sky_seen(*self._light_grid[:2]))
        return seen if not self.trajectory else seen * self._beside_tubes

    @cached_property
    def _beside_tubes(self) -> NDArray[Any]:
        """How much light comes to the surface beside the tubes that lie on it, shape (n,)."""
        from scipy.ndimage import gaussian_filter

        rows, columns = self._heights.shape
        shade = np.zeros((rows, columns))
        x, y = self._axes
        for line in self._lines:
            frame = line.points / self.space.factors + self.space.middle
            places = frame[:, :2] @ np.linalg.inv(self.space.frame.matrix).T
            inside = (places >= (x[0], y[0])).all(axis=1) & (places <= (x[-1], y[-1])).all(axis=1)
            at = np.interp(places[inside, 1], y, np.arange(rows)), np.interp(places[inside, 0], x, np.arange(columns))
            shade[np.round(at[0]).astype(int), np.round(at[1]).astype(int)] = 1.0
        if not shade.any():
            return np.ones(rows * columns)
        step = float(np.linalg.norm(self._light_grid[1], axis=0).mean()) * len(self._light_grid[2][0]) / rows
        width = 1.3 * _TUBE / step
        shade = gaussian_filter(shade, width, mode="nearest") * width * np.sqrt(2 * np.pi)
        return np.asarray(1 - 0.55 * np.clip(shade, 0, 1).ravel())

    def _surface(self, lamps: Lamps) -> list[Solid]:
        known = np.isfinite(self._heights)
        triangles = grid_triangles(known)
        if not len(triangles):
            return []
        vertices = np.nan_to_num(self._places.reshape(-1, 3))
        normals, sky = self._normals.reshape(-1, 3), self._sky
        lamp = self._spread(lamp_seen(*self._light_grid[:2], lamps.lamp))
        colors = self.colors(np.nan_to_num(self._shares).ravel())
        grey = colors.copy()
        grey[:, :3] = _UNDERSIDE[0] * colors[:, :3] + _UNDERSIDE[1]
        # A hole's edges are those of the grid's cells, so nothing is lost where few of the steps between are kept.
        below = np.arange(known.size).reshape(known.shape)[:: self._coarse, :: self._coarse]
        return [
            Solid(vertices, triangles, normals, colors, sky, lamp, "front"),
            Solid(
                vertices[below.ravel()], grid_triangles(known.ravel()[below]), -normals[below.ravel()],
                grey[below.ravel()], 0.8, 0.35, "back",
            ),
            *self._surface_lines,
        ]  # fmt: skip

    @cached_property
    def _surface_lines(self) -> list[Solid]:
        """The contour lines on the surface itself, in a darker shade of its colours."""
        parts = []
        for share, points in level_lines(self.space, self._axes, self._heights):
            color = np.array(self.colors(share))
            color[:3] *= _DARKER_LINE
            vertices, triangles, normals = level_line(points, max(_LINE, self.finest))
            parts.append((vertices, triangles, normals, np.broadcast_to(color, (len(vertices), 4))))
        if not parts:
            return []
        vertices, triangles, _, colors = joined(parts)
        # They have the light of the surface that they lie on.
        from scipy.ndimage import map_coordinates

        frame = vertices / self.space.factors + self.space.middle
        places = frame[:, :2] @ np.linalg.inv(self.space.frame.matrix).T
        x, y = self._axes
        at = np.array([np.interp(places[:, 1], y, np.arange(len(y))), np.interp(places[:, 0], x, np.arange(len(x)))])
        normals = np.stack(
            [map_coordinates(self._normals[..., axis], at, order=1, mode="nearest") for axis in range(3)], axis=1
        )
        sky = map_coordinates(self._sky.reshape(self._heights.shape), at, order=1, mode="nearest")
        return [Solid(vertices, triangles, normals, colors, sky, sky)]

    @cached_property
    def _floor(self) -> list[Solid]:
        theme = THEMES[self.theme]
        colors = readable(self.colors, self.theme)
        return floor_solids(self.space, self._axes, self._heights, colors, theme, self._lines, self.finest)

    @cached_property
    def _shadow(self) -> Shadow:
        return floor_shadow(self.space, self._axes, self._heights)

    @cached_property
    def _alone(self) -> list[Solid]:
        """A ball for each value that belongs to no whole cell."""
        values = self.space.scale.heights(self.space.values)
        finite = np.isfinite(values)
        used = np.zeros(values.shape, np.bool_)
        used.ravel()[grid_triangles(finite).ravel()] = True
        rows, columns = np.nonzero(finite & ~used)
        if not len(rows):
            return []
        x, y = self.space.plane
        places = self.space.place(x[columns], y[rows], self.space.values[rows, columns])
        low, high = self.space.scale.height_range
        vertices, triangles, normals = balls(places, max(1.2 * _TUBE, 1.6 * self.finest))
        colors = self.colors(np.clip((values[rows, columns] - low) / (high - low), 0, 1))
        return [Solid(vertices, triangles, normals, np.repeat(colors, len(vertices) // len(places), axis=0))]

    @cached_property
    def _lines(self) -> list[PathLine]:
        """The paths, which follow the drawn surface between two checkpoints."""
        if not self.trajectory:
            return []
        from dataclasses import replace

        space, found = self.space, []
        for line in path_lines(space):
            lengths = np.linalg.norm(np.diff(line.checkpoints, axis=0), axis=1)
            counts = np.clip(np.ceil(lengths / (0.5 * _TUBE)), 1, 400).astype(int)
            at = np.concatenate([[0], np.cumsum(counts)])
            steps = np.interp(np.arange(at[-1] + 1), at, np.arange(len(at)))
            feet = line.checkpoints / space.factors + space.middle
            found.append(replace(line, points=space.from_frame(self._relief.along(feet, steps))))
        return found

    def _tubes(self, viewpoint: Viewpoint) -> list[Solid]:
        from matplotlib.colors import to_rgba

        solids = []
        for line in self._lines:
            many = len(line.checkpoints) > 60
            color = np.array(to_rgba(line.color))
            points, checkpoints = (
                self._before_surface(places, viewpoint) for places in (line.points, line.checkpoints)
            )
            if len(points) > 1:
                vertices, triangles = path_mesh(points, _TUBE)
                solids.append(_of_one_color(vertices, triangles, smooth_normals(vertices, triangles), color))
            solids.append(_of_one_color(*balls(checkpoints, (1.25 if many else 1.9) * _TUBE), color))
        return solids

    def _before_surface(self, places: NDArray[Any], viewpoint: Viewpoint) -> NDArray[Any]:
        """Returns places, shape (n, 3); those a little below the drawn surface move before it, towards the viewer."""
        # A checkpoint between four points may be measured lower than these, and the surface would bury it.
        frame = places / self.space.factors + self.space.middle
        above = self._relief.heights_at(frame[:, 0], frame[:, 1])
        depth = np.nan_to_num((above - frame[:, 2]) * self.space.factors[2])
        toward = viewpoint.toward(places)
        deepest = _BURIED * float(np.ptp(self.space.scale.tall.height_range)) * self.space.factors[2]
        buried = (depth > 0) & (depth <= deepest) & (toward[:, 2] > 0.05)
        ways = np.where(buried, depth / np.maximum(toward[:, 2], 0.05), 0.0)
        return np.asarray(places + ways[:, None] * toward)

    def _free_way(self, rim: NDArray[Any], toward: NDArray[Any]) -> float:
        """Returns how far a mark moves to the viewer until the slope below does not cut its rim, shape (n, 3)."""
        ways = np.linspace(0, _SLOPE, _STEPS_ALONG)
        frame = (rim[:, None] + ways[:, None] * toward) / self.space.factors + self.space.middle
        with np.errstate(invalid="ignore"):
            below = frame[..., 2] < self._relief.heights_at(frame[..., 0], frame[..., 1])
        return float(ways[below.any(axis=0)].max(initial=0.0))

    @cached_property
    def _relief(self) -> Relief:
        return Relief(*self._axes, self._heights, self.space.frame.matrix)


def finest_line(width: int, height: int) -> float:
    """Returns half of the width of a line that is a little wider than a pixel, in the scene's units."""
    return 1.7 / min(height, 0.8 * width)


def choose_factor(space: Space, width: int, height: int) -> int:
    """Returns into how many steps each step of the grid is divided, so that no facet is seen."""
    steps = max(max(len(axis) for axis in space.plane) - 1, 1)
    wanted = min(_STEPS_PER_PIXEL * max(width, height), _MOST_STEPS)
    return max(1, round(wanted / steps))


def _of_one_color(vertices: NDArray[Any], triangles: NDArray[Any], normals: NDArray[Any], color: NDArray[Any]) -> Solid:
    return Solid(vertices, triangles, normals, np.broadcast_to(color, (len(vertices), 4)))


def _over(drawn: NDArray[np.uint8], shadow: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns a picture with a black shadow of some opacity behind it."""
    found = drawn.copy()
    rows, columns = np.nonzero((drawn[..., 3] < 255) & (shadow > 0))
    part, behind = drawn[rows, columns].astype(np.float32), shadow[rows, columns].astype(np.float32)
    opacity = part[:, 3] + behind * (1 - part[:, 3] / 255)
    found[rows, columns, :3] = np.round(part[:, :3] * (part[:, 3] / opacity)[:, None])
    found[rows, columns, 3] = np.round(opacity)
    return found
