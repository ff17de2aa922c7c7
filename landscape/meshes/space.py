"""The space in which a surface and its path stand: where a point of the plane lies in it, and how high a value is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collectors.shapes import Float64

from ..grid.data import LandscapeData
from ..scales.choosing import Clip
from ..scales.frame import Frame, choose_frame, span
from ..scales.landscape_scale import known, landscape_scale
from ..scales.levels import Levels
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
    landscape: LandscapeData,
    metric: str = "loss",
    scale: str | Scale = "auto",
    levels: Levels = None,
    clip: Clip = None,
    *,
    aspect: str = "equal",
    path: bool = True,
) -> Space:
    """Returns the space of a plane, by the rules of ``plot_surface``."""
    if landscape.y is None:
        raise ValueError("a surface needs a plane, but the landscape is a line; draw it with plot_profile.")
    if not isinstance(scale, Scale):
        scale = landscape_scale(landscape, metric, scale, levels, clip, count=8, path=path)
    frame = choose_frame(landscape, aspect)
    (left, right), (bottom, top) = frame.limits(span(landscape.x), span(landscape.y))
    low, high = scale.tall.height_range
    box = np.array(frame.box) * _UNITS
    return Space(
        landscape, metric, scale, frame, box / (right - left, top - bottom, high - low),
        np.array([(left + right) / 2, (bottom + top) / 2, low]),
    )  # fmt: skip
