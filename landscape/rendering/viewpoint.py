"""Where a viewer stands so that everything just fits into the picture, and where a place lies on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float64


# Of the picture's height, in degrees: a long lens, which bends shapes little.
VIEW_ANGLE = 26.0
_MARGIN = 0.03


@dataclass(frozen=True)
class Viewpoint:
    """A viewer and a picture of width / height ``ratio``; directions have length 1, near and far bound what is seen."""

    eye: Float64[np.ndarray, " 3"]
    right: Float64[np.ndarray, " 3"]
    up: Float64[np.ndarray, " 3"]
    forward: Float64[np.ndarray, " 3"]
    near: float
    far: float
    ratio: float

    def toward(self, points: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        """Returns the directions from places to the viewer, of length 1."""
        away = self.eye - points
        return np.asarray(away / np.linalg.norm(away, axis=-1, keepdims=True))

    def rays(self, columns: int, rows: int) -> Float64[np.ndarray, "rows columns 3"]:
        """Returns the directions in which the middles of a picture's pixels are seen, from the top row down."""
        half = math.tan(math.radians(VIEW_ANGLE / 2))
        across = half * self.ratio * (2 * (np.arange(columns) + 0.5) / columns - 1)
        upwards = half * (1 - 2 * (np.arange(rows) + 0.5) / rows)
        return np.asarray(self.forward + across[None, :, None] * self.right + upwards[:, None, None] * self.up)


def choose_viewpoint(
    toward: Float64[np.ndarray, " 3"], points: Float64[np.ndarray, "n 3"], width: int, height: int
) -> Viewpoint:
    """Returns the nearest viewpoint that sees all, with equal margins; ``toward``, of length 1, is not vertical."""
    forward = -np.asarray(toward, np.float64)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    up = np.cross(right, forward)
    across, upwards, depth = points @ right, points @ up, points @ forward
    half = math.tan(math.radians(VIEW_ANGLE / 2)) * (1 - 2 * _MARGIN)
    places, nearest = [], math.inf
    for values, tangent in ((across, half * width / height), (upwards, half)):
        first, last = float((values - tangent * depth).max()), float((-values - tangent * depth).max())
        places.append((first - last) / 2)
        nearest = min(nearest, -(first + last) / (2 * tangent))
    eye = places[0] * right + places[1] * up + nearest * forward
    near, far = float(depth.min()) - nearest, float(depth.max()) - nearest
    return Viewpoint(eye, right, up, forward, near, far, width / height)
