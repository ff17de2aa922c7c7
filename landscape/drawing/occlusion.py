"""What a surface hides: which points of a path lie behind it, seen from a camera."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Bool, Float64

from .placement import interpolated

# A mark lies on the surface where it is not farther below it than this share of the range of heights: between grid
# points the drawn surface is interpolated, and a measured minimum lies a little lower.
LIFT = 0.03
# Pieces of the path in a cell of the grid, and the most between two checkpoints.
_PIECES_IN_CELL = 4
_MOST_PIECES = 64
# Points whose rays are followed together; bounds the memory.
_TOGETHER = 1024


@dataclass(frozen=True)
class Relief:
    """A surface over an ascending grid, bilinear in each cell, with holes at NaN corners; places are the axes'."""

    x: Float64[np.ndarray, " nx"]
    y: Float64[np.ndarray, " ny"]
    heights: Float64[np.ndarray, "ny nx"]  # as drawn
    # What takes (x, y) of the grid to the axes' coordinates: an oblique plane is drawn as one.
    matrix: Float64[np.ndarray, "2 2"] = field(default_factory=lambda: np.eye(2))

    def heights_at(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Returns the surface's heights, of the arguments' shape; NaN in holes and beyond the grid."""
        x, y = np.tensordot(np.linalg.inv(self.matrix), np.stack([x, y]), 1)
        if min(self.heights.shape) < 2:
            return np.full(np.shape(x), np.nan)
        inside = (x >= self.x[0]) & (x <= self.x[-1]) & (y >= self.y[0]) & (y <= self.y[-1])
        return np.where(inside, self._in_cell(*self._cell(x, y), x, y), np.nan)

    def path_over(self, points: Float64[np.ndarray, "n 3"], counts: NDArray[Any] | None = None) -> NDArray[Any]:
        """Returns a path through points, each so many pieces after the last, shape (m, 3); see ``along``."""
        if len(points) < 2:
            return points.copy()
        if counts is None:
            places = self._on_grid(points)
            steps = [float(np.ptp(axis)) / max(len(axis) - 1, 1) or 1.0 for axis in (self.x, self.y)]
            cells = np.hypot(*(np.diff(places[:, axis]) / step for axis, step in enumerate(steps)))
            counts = np.clip(np.ceil(_PIECES_IN_CELL * np.nan_to_num(cells)), 1, _MOST_PIECES).astype(int)
        at = np.concatenate([[0], np.cumsum(counts)])
        return self.along(points, np.interp(np.arange(at[-1] + 1), at, np.arange(len(points))))

    def along(self, points: Float64[np.ndarray, "n 3"], steps: Float64[np.ndarray, " m"]) -> NDArray[Any]:
        """Returns places at ``steps`` (0 to n - 1) of a path through points that follows the surface; shape (m, 3)."""
        above = points[:, 2] - self.heights_at(points[:, 0], points[:, 1])
        path = interpolated(points, steps)
        # How far points lie off the surface is spread over the stretches beside them, so that the path meets all.
        follows = self.heights_at(path[:, 0], path[:, 1]) + np.interp(steps, np.arange(len(points)), above)
        path[:, 2] = np.where(np.isnan(follows), path[:, 2], follows)
        exact = steps == np.round(steps)
        path[exact] = points[steps[exact].astype(int)]
        return path

    def hides(
        self, points: Float64[np.ndarray, "n 3"], projection: Float64[np.ndarray, "4 4"]
    ) -> Bool[np.ndarray, " n"]:
        """Returns which points the surface hides from ``Axes3D.get_proj``'s camera; none with a NaN is hidden."""
        found = np.zeros(len(points), np.bool_)
        if min(self.heights.shape) < 2 or not np.isfinite(self.heights).any():
            return found
        known = np.flatnonzero(np.isfinite(points).all(axis=1))
        lifted = self._on_grid(points) + np.array([0.0, 0.0, self.lift])
        projection = projection.copy()
        projection[:, :2] = projection[:, :2] @ self.matrix
        for start in range(0, len(known), _TOGETHER):
            chosen = known[start : start + _TOGETHER]
            rays = _toward_camera(lifted[chosen], projection)
            if not projection[3, :3].any():
                # Parallel ones must be so long that they leave the grid, whichever side they enter it from.
                sizes = np.array([np.ptp(self.x), np.ptp(self.y), max(100 * self.lift, np.finfo(np.float64).tiny)])
                rays = rays * (100 / np.max(np.abs(rays[0]) / sizes))
            found[chosen] = self._meets(lifted[chosen], rays)
        return found

    @property
    def lift(self) -> float:
        """How far above itself a point on the surface counts as free."""
        return LIFT * float(np.nanmax(self.heights) - np.nanmin(self.heights))

    def _meets(self, points: NDArray[Any], rays: NDArray[Any]) -> NDArray[Any]:
        """Returns which rays meet the surface; points and rays have the shape (n, 3), rays end at the camera."""
        with np.errstate(divide="ignore", invalid="ignore"):
            lines = np.hstack(
                [(axis - points[:, [index]]) / rays[:, [index]] for index, axis in enumerate((self.x, self.y))]
            )
        # A ray meets each cell between two grid lines that it crosses.
        crossed = np.where((lines > 0) & (lines < 1), lines, 1.0)
        times = np.sort(np.hstack([np.zeros((len(points), 1)), crossed, np.ones((len(points), 1))]), axis=1)
        middle = (times[:, :-1] + times[:, 1:]) / 2
        x, y = (points[:, [axis]] + middle * rays[:, [axis]] for axis in range(2))
        there = (times[:, 1:] > times[:, :-1]) & (x > self.x[0]) & (x < self.x[-1]) & (y > self.y[0]) & (y < self.y[-1])
        row, piece = np.nonzero(there)
        cell = self._cell(x[row, piece], y[row, piece])

        def above(at: NDArray[Any]) -> NDArray[Any]:
            place = points[row] + at[:, None] * rays[row]
            return np.asarray(place[:, 2] - self._in_cell(*cell, place[:, 0], place[:, 1]))

        first, half, last = (above(at[row, piece]) for at in (times[:, :-1], middle, times[:, 1:]))
        # Along a line a bilinear cell is a parabola, which three values fix.
        bend, slope = first - 2 * half + last, last - first
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            turn = np.where(np.abs(slope) < 2 * np.abs(bend), half - slope / (8 * bend) * slope, half)
        # A ray may run below the surface and not meet it: it comes through a hole, or under the edge of the grid.
        meets = (np.minimum(first, np.minimum(turn, last)) < 0) & (np.maximum(first, np.maximum(turn, last)) >= 0)
        return np.bincount(row[meets], minlength=len(points)) > 0

    def _on_grid(self, points: NDArray[Any]) -> NDArray[Any]:
        """Returns places of the axes as places of the grid, shape (n, 3)."""
        return np.column_stack([points[:, :2] @ np.linalg.inv(self.matrix).T, points[:, 2]])

    def _cell(self, x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        columns = np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, len(self.x) - 2)
        rows = np.clip(np.searchsorted(self.y, y, side="right") - 1, 0, len(self.y) - 2)
        return rows, columns

    def _in_cell(self, rows: NDArray[Any], columns: NDArray[Any], x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        across = (x - self.x[columns]) / (self.x[columns + 1] - self.x[columns])
        up = (y - self.y[rows]) / (self.y[rows + 1] - self.y[rows])
        low = self.heights[rows, columns] * (1 - across) + self.heights[rows, columns + 1] * across
        high = self.heights[rows + 1, columns] * (1 - across) + self.heights[rows + 1, columns + 1] * across
        return np.asarray(low * (1 - up) + high * up)


def _toward_camera(points: NDArray[Any], projection: NDArray[Any]) -> NDArray[Any]:
    """Returns the way from each point to the camera, shape (n, 3); in a parallel projection, a way across the page."""
    across, up, depth, weight = projection
    if weight[:3].any():
        # The camera is the one place without an image.
        rows = np.array([across, up, weight])
        return np.asarray(np.linalg.solve(rows[:, :3], -rows[:, 3]) - points)
    way = np.cross(across[:3], up[:3])
    way *= -np.sign(way @ depth[:3] * weight[3])
    return np.broadcast_to(way, points.shape)
