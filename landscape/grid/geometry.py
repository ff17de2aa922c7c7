"""Lengths and angles on a plane: how its coordinates become distances in weight space."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from jaxtyping import Float64

# Below this cosine (0.06 degrees from a right angle) a picture of 1,000 pixels would be sheared by less than one.
_RIGHT_ANGLE = 1e-3


@dataclass(frozen=True)
class PlaneGeometry:
    """The metric of a plane: point (x, y) is the origin plus x times the first direction plus y times the second.

    Orthonormal coordinates (u, v) have the same origin: u runs along the first direction, v at a right angle to it on
    the side of the second. Two points are as far apart in (u, v) as their networks are in weight space.

    Attributes:
        first: Euclidean length of the first direction, positive.
        second: of the second direction, positive.
        cosine: of the angle between them, from -1 to 1, both excluded.
    """

    first: float
    second: float
    cosine: float = 0.0

    @property
    def gram(self) -> Float64[np.ndarray, "2 2"]:
        """The directions' inner products; a step (dx, dy) has the squared length (dx, dy) gram (dx, dy)."""
        mixed = self.first * self.second * self.cosine
        return np.array([[self.first**2, mixed], [mixed, self.second**2]])

    @property
    def oblique(self) -> bool:
        """Whether the directions are so far from a right angle that a picture shows it."""
        return abs(self.cosine) >= _RIGHT_ANGLE

    @property
    def to_distances(self) -> Float64[np.ndarray, "2 2"]:
        """The matrix that takes (x, y) to (u, v); its transpose times itself is ``gram``."""
        sine = math.sqrt(1 - self.cosine**2)
        return np.array([[self.first, self.second * self.cosine], [0.0, self.second * sine]])

    def distances(
        self, x: ArrayLike, y: ArrayLike
    ) -> tuple[Float64[np.ndarray, "*shape"], Float64[np.ndarray, "*shape"]]:
        """Returns orthonormal coordinates u and v of points of the plane; x and y may be of any shapes that fit."""
        (along, shear), (_, across) = self.to_distances
        x, y = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64))
        return np.asarray(along * x + shear * y), np.asarray(across * y)

    def coordinates(
        self, u: ArrayLike, v: ArrayLike
    ) -> tuple[Float64[np.ndarray, "*shape"], Float64[np.ndarray, "*shape"]]:
        """Returns the plane's coordinates x and y of points given by orthonormal coordinates."""
        (along, shear), (_, across) = self.to_distances
        u, v = np.broadcast_arrays(np.asarray(u, np.float64), np.asarray(v, np.float64))
        y = v / across
        return np.asarray((u - shear * y) / along), np.asarray(y)


def plane_geometry(norms: Float64[np.ndarray, " d"], cosine: float | None) -> PlaneGeometry | None:
    """Returns the metric of a plane; None where lengths or angle are not known, or span no plane."""
    known = len(norms) == 2 and cosine is not None and bool(np.isfinite(norms).all()) and bool((norms > 0).all())
    if not known or cosine is None or not abs(cosine) < 1:
        return None
    return PlaneGeometry(float(norms[0]), float(norms[1]), float(cosine))
