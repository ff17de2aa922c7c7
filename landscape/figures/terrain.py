"""A surface as it looks from close by, with its contour lines and paths: the farthest piece is drawn first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Float64


# Of the height of a picture, in degrees.
VIEW_ANGLE = 50.0
# What is nearer to the viewer than this is not drawn, in units of the box.
_NEAREST = 0.02
# Lines are drawn over the ground that is up to so much nearer.
_OVER = 0.02


@dataclass(frozen=True)
class Pieces:
    """What lies on the ground: cells, and stretches of lines, which are cells without an area.

    Attributes:
        corners: shape (pieces, 4, 3), in units of the box.
        colors: red, green, blue and opacity, shape (pieces, 4).
        widths: of the edges, in points at a distance of 1; NaN for cells, whose edges are thin.
    """

    corners: Float64[np.ndarray, "pieces 4 3"]
    colors: Float64[np.ndarray, "pieces 4"]
    widths: Float64[np.ndarray, " pieces"]

    def __add__(self, other: Pieces) -> Pieces:
        """Returns both together."""
        return Pieces(
            np.concatenate([self.corners, other.corners]),
            np.concatenate([self.colors, other.colors]),
            np.concatenate([self.widths, other.widths]),
        )


def stretches(line: NDArray[Any], color: Any, width: float) -> Pieces:
    """Returns a line as pieces; places with a NaN interrupt it.

    Args:
        line: places, shape (n, 3).
        color: of matplotlib.
        width: in points at a distance of 1.
    """
    from matplotlib.colors import to_rgba

    ends = np.stack([line[:-1], line[1:]], axis=1)
    ends = ends[np.isfinite(ends).all(axis=(1, 2))]
    corners = ends[:, [0, 1, 1, 0]]
    return Pieces(corners, np.tile(to_rgba(color), (len(ends), 1)), np.full(len(ends), width))


class Viewer:
    """Where somebody stands and looks at: from places to the picture, whose height is 2."""

    def __init__(self, eye: NDArray[Any], target: NDArray[Any]) -> None:
        ahead = (target - eye) / np.linalg.norm(target - eye)
        right = np.cross(ahead, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        self.eye = eye
        self._axes = np.array([right, np.cross(right, ahead), ahead])
        self._scale = 1 / math.tan(math.radians(VIEW_ANGLE / 2))

    def project(self, places: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns places in the picture, shape (..., 2), and how far ahead they are; what is behind has no place."""
        seen = (places - self.eye) @ self._axes.T
        depth = seen[..., 2]
        with np.errstate(divide="ignore", invalid="ignore"):
            flat = self._scale * seen[..., :2] / depth[..., None]
        return np.where((depth > _NEAREST)[..., None], flat, np.nan), depth


def show(collection: Any, pieces: Pieces, viewer: Viewer, ratio: float) -> None:
    """Makes a ``PolyCollection`` show pieces, the nearest over the others.

    Args:
        collection: on axes from -ratio to ratio and from -1 to 1.
        pieces: what there is.
        viewer: from where.
        ratio: of the picture's width to its height.
    """
    flat, _ = viewer.project(pieces.corners)
    with np.errstate(invalid="ignore"):
        inside = (flat[..., 0].max(axis=1) > -ratio) & (flat[..., 0].min(axis=1) < ratio)
        inside &= (flat[..., 1].max(axis=1) > -1) & (flat[..., 1].min(axis=1) < 1)
    chosen = np.flatnonzero(inside)
    distance = np.linalg.norm(pieces.corners[chosen].mean(axis=1) - viewer.eye, axis=1)
    is_line = np.isfinite(pieces.widths[chosen])
    order = np.argsort(is_line * _OVER - distance, kind="stable")
    chosen, distance, is_line = chosen[order], distance[order], is_line[order]
    collection.set_verts(flat[chosen])
    collection.set_facecolor(pieces.colors[chosen])
    collection.set_edgecolor(pieces.colors[chosen])
    collection.set_linewidth(np.where(is_line, np.clip(pieces.widths[chosen] / distance, 0.2, 6.0), 0.35))
