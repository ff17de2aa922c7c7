"""From where a path is seen best: the camera "auto", which is another one for each file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..scales.frame import span
from ..scales.landscape_scale import known
from .camera import CAMERAS, Camera
from .occlusion import Relief
from .path import network_marks

if TYPE_CHECKING:
    from jaxtyping import Float64

    from ..grid.data import LandscapeData
    from ..scales.frame import Frame
    from ..scales.scale import Scale


# Degrees between the places that are tried, all as high as the preset "default".
_STEP = 15


def best_camera(landscape: LandscapeData, metric: str, scale: Scale, frame: Frame) -> Camera:
    """Returns from where the surface hides least of the paths; of equal places, that over the surface's lowest side."""
    assert landscape.y is not None
    heights = scale.heights(known(landscape[metric], landscape.status))
    relief = Relief(landscape.x, landscape.y, heights, frame.matrix)
    (left, right), (bottom, top) = frame.limits(span(landscape.x), span(landscape.y))
    low, high = scale.tall.height_range
    corner, units = np.array([left, bottom, low]), np.array([right - left, top - bottom, high - low]) / frame.box
    path = _marks(landscape, metric, scale, frame, relief)

    def badness(camera: Camera) -> tuple[int, float]:
        eye = corner + units * camera.placed(frame.box)[0]
        # The projection that has no image of the eye alone.
        projection = np.array([[1, 0, 0, -eye[0]], [0, 1, 0, -eye[1]], [0, 0, 0, 0], [0, 0, 1, -eye[2]]])
        return int(relief.hides(path, projection).sum()), _rise_toward(heights, camera)

    first = CAMERAS["default"]
    return min((first.turned(degrees) for degrees in range(0, 360, _STEP)), key=badness)


def feet_on_surface(
    landscape: LandscapeData, metric: str, scale: Scale, frame: Frame
) -> Float64[np.ndarray, "checkpoints 3"] | None:
    """Returns where the checkpoints' feet on the plane are drawn; None where none is on it or has the metric."""
    found = landscape.checkpoints
    if found is None or found.y is None or metric not in found.projected:
        return None
    return np.column_stack([*frame.place(found.x, found.y), scale.tall.heights(found.projected[metric])])


def _marks(landscape: LandscapeData, metric: str, scale: Scale, frame: Frame, relief: Relief) -> NDArray[Any]:
    """Returns places along all runs' paths, the networks of no run and the origin, shape (n, 3)."""
    point, feet = landscape.origin, feet_on_surface(landscape, metric, scale, frame)
    value = scale.tall.heights([point.metrics.get(metric, np.nan)])
    marks = [np.column_stack([*frame.place([point.x], [point.y or 0.0]), value])]
    if feet is not None:
        assert landscape.checkpoints is not None
        runs = [feet[rows[np.isfinite(feet[rows, 2])]] for rows in landscape.checkpoints.paths]
        marks += [relief.path_over(points) for points in runs if len(points)]
        marks += [feet[[row]] for row, _ in network_marks(landscape)]
    return np.concatenate(marks)


def _rise_toward(heights: NDArray[Any], camera: Camera) -> float:
    """Returns how much higher the surface is on the viewer's side than on the other, rounded so that ties are ties."""
    finite = np.isfinite(heights)
    if not finite.any():
        return 0.0
    around = np.where(finite, heights - heights[finite].mean(), 0.0)
    right, up = (np.linspace(-1, 1, count) for count in heights.shape[::-1])
    toward = right * camera.toward[0] + up[:, None] * camera.toward[1]
    return round(float((around * toward).mean() / max(float(np.abs(around).max()), 1e-300)), 6)
