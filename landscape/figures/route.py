"""The way of a flight: behind a ball that follows a path, above the ground, turning gently.

All places are in units of the surface's box (``Frame.box``), whose floor is about one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Float64


# How far behind the ball and above it the viewer is, and how far ahead of the ball it looks.
_BEHIND, _ABOVE, _AHEAD = 0.42, 0.3, 0.12
# The least height above the ground under the viewer, and of the line of sight over what lies between.
CLEARANCE = 0.06
_SIGHT = 0.015
# A hill on which the viewer would have to climb higher than this hides the ball instead.
_HIGHEST = 1.0
# Along the path: the distance of places, and over how much of it corners are rounded.
_STEP = 0.004
_ROUNDING = 0.05
# Of the flight's time: over how much of it turns and climbs are spread.
_GENTLE = 0.06


@dataclass(frozen=True)
class Route:
    """A flight, one row for each frame.

    Attributes:
        eye: where the viewer is, shape (frames, 3).
        target: what it looks at, shape (frames, 3).
        ball: where the ball is, shape (frames, 3).
        steps: how far the ball is, in checkpoints since the first, shape (frames,).
    """

    eye: Float64[np.ndarray, "frames 3"]
    target: Float64[np.ndarray, "frames 3"]
    ball: Float64[np.ndarray, "frames 3"]
    steps: Float64[np.ndarray, " frames"]


def plan_route(
    path: Float64[np.ndarray, "places 3"],
    steps: Float64[np.ndarray, " places"],
    ground: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]],
    frames: int,
) -> Route:
    """Returns a flight along a path, at even speed but for its first and last moments.

    Args:
        path: places on the surface, in order.
        steps: of each place, in checkpoints since the first.
        ground: returns the height of the surface at x and y; NaN where there is none.
        frames: how many.
    """
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    moment = np.linspace(0, 1, frames)
    at = along[-1] * _eased(moment)
    ball = np.column_stack([np.interp(at, along, column) for column in path.T])
    heading = _heading(path, along, at)
    back = np.column_stack([np.cos(heading), np.sin(heading)])
    eye = np.column_stack([ball[:, :2] - _BEHIND * back, np.zeros(frames)])
    eye[:, :2] = np.column_stack([_smoothed(column, frames) for column in eye[:, :2].T])
    eye[:, 2] = _heights(eye, ball, ground, frames)
    target = ball + np.column_stack([_AHEAD * back, np.zeros(frames)])
    target = np.column_stack([_smoothed(column, frames) for column in target.T])
    return Route(eye, target, ball, np.interp(at, along, steps))


def _eased(moment: NDArray[Any]) -> NDArray[Any]:
    """Returns shares of the way: even speed that begins and ends gently."""
    speed = np.minimum(1, np.minimum(moment, 1 - moment) / 0.12) + 1e-3
    way = np.concatenate([[0.0], np.cumsum((speed[1:] + speed[:-1]) / 2)])
    return np.asarray(way / way[-1])


def _heading(path: NDArray[Any], along: NDArray[Any], at: NDArray[Any]) -> NDArray[Any]:
    """Returns the direction of flight at each place, an angle in radians without jumps."""
    count = max(int(along[-1] / _STEP), 8)
    even = np.linspace(0, along[-1], count)
    width = max(min(_ROUNDING / max(along[-1], 1e-12), 0.25) * count, 1.0)
    rounded = [_blurred(np.interp(even, along, column), width) for column in path[:, :2].T]
    angle = np.unwrap(np.arctan2(*np.gradient(np.array(rounded), axis=1)[::-1]))
    return _smoothed(np.interp(at, even, angle), len(at))


def _heights(
    eye: NDArray[Any], ball: NDArray[Any], ground: Callable[[Any, Any], NDArray[Any]], frames: int
) -> NDArray[Any]:
    """Returns the viewer's height: over the ball, the ground around, and what would hide the ball."""
    wanted = ball[:, 2] + _ABOVE
    for share in np.linspace(0.2, 1.0, 17):
        place = ball + share * (eye - ball)
        below = ground(place[:, 0], place[:, 1])
        sight = ball[:, 2] + (below + _SIGHT - ball[:, 2]) / share
        wanted = np.fmax(wanted, np.minimum(sight, ball[:, 2] + _HIGHEST))
    least = np.full(frames, -np.inf)
    for angle in np.linspace(0, 2 * np.pi, 9):
        around = eye[:, :2] + (CLEARANCE * np.array([np.cos(angle), np.sin(angle)]) if angle else 0.0)
        least = np.fmax(least, ground(around[:, 0], around[:, 1]) + CLEARANCE)
    # The mean of maxima over as many moments is nowhere lower than what is wanted there.
    half = max(int(_GENTLE * frames), 1)
    padded = np.pad(np.fmax(wanted, least), 2 * half, mode="edge")
    highest = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1).max(axis=1)
    weights = np.hanning(2 * half + 3)[1:-1]
    return np.asarray(np.convolve(highest, weights / weights.sum(), mode="valid"))


def _smoothed(values: NDArray[Any], frames: int) -> NDArray[Any]:
    return _blurred(values, max(_GENTLE * frames / 2, 0.5))


def _blurred(values: NDArray[Any], width: float) -> NDArray[Any]:
    """Returns values under a Gaussian of this standard deviation, in samples; the ends go straight on."""
    reach = int(np.ceil(3 * width))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    padded = (
        np.pad(values, reach, mode="reflect", reflect_type="odd")
        if reach < len(values)
        else np.pad(values, reach, mode="edge")
    )
    return np.asarray(np.convolve(padded, weights / weights.sum(), mode="valid"))
