"""Where a plane's points lie in a picture: by their distances in weight space, or filling a square."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collectors.validation import check_choice

from ..grid.data import LandscapeData, PlaneGeometry

if TYPE_CHECKING:
    from matplotlib.path import Path


ASPECTS = ("equal", "fill")
# A plane that is longer than this many times its width fills a square instead: a thinner strip shows nothing.
MOST_ELONGATED = 6.0
# Less than this is not seen, and not said.
_VISIBLE = 1.02
# Room in inches on a screen that a square picture leaves to its axes, and what stands around them.
_SIDE, _AROUND = 4.6, (1.8, 1.2)
_NARROWEST = 5.6
# The colour bar lies below pictures that are wider than this many times their height.
_FLAT, _FLAT_ON_PAPER = 3.0, 1.8


@dataclass(frozen=True)
class Frame:
    """How a plane's coordinates become a picture's, of width / height ``ratio``; without geometry they fill it."""

    geometry: PlaneGeometry | None
    ratio: float
    notes: tuple[str, ...] = ()

    @property
    def oblique(self) -> bool:
        return self.geometry is not None and self.geometry.oblique

    def place(self, x: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns where points of the plane are drawn; x and y may be of any shapes that fit."""
        if self.geometry is not None:
            return self.geometry.distances(x, y)
        across, up = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64))
        return across, up

    @property
    def matrix(self) -> NDArray[Any]:
        """What takes (x, y) to the picture's coordinates, shape (2, 2)."""
        return np.eye(2) if self.geometry is None else self.geometry.to_distances

    def mesh(self, x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns where the points of a grid are drawn, each of shape (ny, nx)."""
        return self.place(x[None, :], y[:, None])

    def limits(self, x: NDArray[Any], y: NDArray[Any]) -> tuple[tuple[float, float], tuple[float, float]]:
        """Returns the picture's ends, left and right, bottom and top, so that it holds the plane from x to y."""
        across, up = self.mesh(x[[0, -1]], y[[0, -1]])
        return (float(across.min()), float(across.max())), (float(up.min()), float(up.max()))

    def outline(self, x: NDArray[Any], y: NDArray[Any]) -> Path:
        """Returns the border of the plane from the first to the last x and y, a parallelogram."""
        from matplotlib.path import Path

        across, up = self.place(x[[0, -1, -1, 0, 0]], y[[0, 0, -1, -1, 0]])
        return Path(np.column_stack([across, up]), closed=True)

    @property
    def box(self) -> tuple[float, float, float]:
        """Width, depth and height of a surface in three dimensions, which is 9 : 9 : 5 for a square plane."""
        root = math.sqrt(self.ratio)
        return root, 1 / root, 5 / 9

    def bar_below(self, *, paper: bool) -> bool:
        """Whether the colour bar lies below the picture, because beside it there is no height for its numbers."""
        return self.ratio > (_FLAT_ON_PAPER if paper else _FLAT)

    def size(self, *, paper: bool) -> tuple[float, float]:
        """Width and height in inches of a figure, on a screen with about the area of a square one."""
        below = 0.65 if self.bar_below(paper=paper) else 0.0
        if paper:
            width = 2.3 + below
            return 3.4, 1.0 + below + min(width / self.ratio, 3.6)
        longest = _SIDE * min(math.sqrt(max(self.ratio, 1 / self.ratio)), 1.6)
        width, height = (longest, longest / self.ratio) if self.ratio > 1 else (longest * self.ratio, longest)
        return max(width + _AROUND[0] - below, _NARROWEST), height + _AROUND[1] + below


def span(axis: NDArray[Any]) -> NDArray[Any]:
    """Returns a grid's coordinates, or those around a single one, which has no width of its own."""
    # Beside a huge coordinate 0.5 would be lost to rounding.
    half = max(0.5, 1e-9 * abs(float(axis[0])))
    return axis if len(axis) > 1 else axis[0] + np.array([-half, half])


def choose_frame(landscape: LandscapeData, aspect: str) -> Frame:
    """Returns how a plane is drawn; the points of a line lie at their coordinates."""
    check_choice("aspect", aspect, ASPECTS)
    geometry = landscape.geometry
    if landscape.y is None:
        return Frame(None, 1.0)
    if geometry is None:
        return Frame(None, 1.0, ("not to scale: lengths of the directions unknown",))
    if not geometry.oblique:
        geometry = replace(geometry, cosine=0.0)
    spans = [span(axis) for axis in (landscape.x, landscape.y)]
    (left, right), (bottom, top) = Frame(geometry, 1.0).limits(*spans)
    ratio = (right - left) / (top - bottom)
    if aspect == "equal" and 1 / MOST_ELONGATED <= ratio <= MOST_ELONGATED:
        return Frame(geometry, ratio)
    lengths = [float(np.ptp(axis)) * norm for axis, norm in zip(spans, (geometry.first, geometry.second), strict=True)]
    notes = []
    stretch = max(lengths) / min(lengths)
    if stretch >= _VISIBLE:
        notes.append(f"axes stretched × {stretch:.3g} along {'y' if lengths[0] > lengths[1] else 'x'}")
    if geometry.oblique:
        notes.append(f"sheared: the directions' cosine is {geometry.cosine_text}")
    return Frame(None, 1.0, tuple(notes))
