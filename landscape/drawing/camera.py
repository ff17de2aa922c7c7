"""The camera: every renderer looks from ``DISTANCE`` box diagonals at the middle of the box of surface and floor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collectors.shapes import Float64
from collectors.validation import check_float, wrong_type, wrong_value

from ..grid.data import LandscapeData
from ..scales.frame import Frame, span
from ..scales.landscape_scale import known
from ..scales.scale import Scale
from .occlusion import Relief
from .path import network_marks

FLOOR = 0.35
"""Room below a surface for the contour lines on its floor, as a share of the surface's height."""
DISTANCE = 1.5
"""From the viewer to the middle of the box with its floor, in diagonals of that box."""
AUTO = "auto"
MOVES = ("walk", "orbit")
"""What moves in a film: the optimizer, or the camera around the surface."""
# Straight from above a viewer has no direction that is up.
_STEEPEST = 89.9
# Matplotlib's viewer is so far away for a focal length of 1.
_MATPLOTLIB_DISTANCE = 10.0
# Degrees between the places that "auto" tries, all as high as the preset "default".
_STEP = 15


@dataclass(frozen=True)
class Camera:
    """A direction from which a surface is seen.

    Attributes:
        azimuth: in degrees, around the surface: 0 is the side of the largest x, 90 that of the largest y, -90 that of
            the smallest y. It is an angle of the picture, whose box may be longer than wide.
        elevation: in degrees above the horizon, from -90 to 90.
    """

    azimuth: float
    elevation: float

    @property
    def toward(self) -> Float64[np.ndarray, " 3"]:
        """Where the viewer stands, seen from the middle of the box, as a direction of length 1."""
        around = math.radians(self.azimuth)
        up = math.radians(float(np.clip(self.elevation, -_STEEPEST, _STEEPEST)))
        return np.array([math.cos(up) * math.cos(around), math.cos(up) * math.sin(around), math.sin(up)])

    def turned(self, degrees: float) -> Camera:
        """Returns the camera after it went so far around the surface, counterclockwise as seen from above."""
        return replace(self, azimuth=self.azimuth + degrees)

    def place(self, space: Any) -> None:
        """Makes three-dimensional axes of matplotlib look from here, whose box has its final proportions."""
        space.view_init(elev=self.elevation, azim=self.azimuth)
        # A focal length moves the viewer, and keeps the size of what is in the middle. The box has its own units.
        diagonal = float(np.linalg.norm(space._box_aspect))
        space.set_proj_type("persp", focal_length=DISTANCE * diagonal / _MATPLOTLIB_DISTANCE)

    def of_plotly(self, box: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Returns plotly's camera for a scene whose ``aspectratio``, as of ``plotly_box``, is the surface's."""
        sides = [box[name] for name in "xyz"]
        eye, middle = self.placed(sides)
        # Plotly counts from the middle of the box.
        half = np.array(sides) / 2
        named = {"eye": eye - half, "center": middle - half, "up": np.array([0.0, 0.0, 1.0])}
        return {name: dict(zip("xyz", place.tolist(), strict=True)) for name, place in named.items()}

    def placed(self, box: ArrayLike) -> tuple[Float64[np.ndarray, " 3"], Float64[np.ndarray, " 3"]]:
        """Returns where the viewer stands and what it looks at, from the corner of a box without its floor."""
        with_floor = np.asarray(box, np.float64) * (1, 1, 1 + FLOOR)
        middle = with_floor / 2 - with_floor * (0, 0, FLOOR / (1 + FLOOR))
        return middle + DISTANCE * float(np.linalg.norm(with_floor)) * self.toward, middle


def place_ticks(ax: Any) -> None:
    """Puts ticks and labels of 3D axes where the projection takes them, which is computed when they are drawn."""
    from matplotlib import __version_info__ as version

    ax.apply_aspect()
    ax.M = ax.get_proj()
    if version < (3, 11, 2):  # which asks ticks and labels themselves
        renderer = ax.figure._get_renderer()
        with renderer._draw_disabled():
            for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
                axis.draw(renderer)


def plotly_box(box: ArrayLike) -> dict[str, float]:
    """Returns a surface's width, depth and height as plotly's ``aspectratio``, its floor as long as a unit square's."""
    sides = np.asarray(box, np.float64)
    return dict(zip("xyz", (sides * math.sqrt(2) / math.hypot(*sides[:2])).tolist(), strict=True))


CAMERAS = {
    "default": Camera(-60.0, 35.0),
    "front": Camera(-90.0, 20.0),
    "side": Camera(0.0, 20.0),
    "above": Camera(-60.0, 65.0),
    "low": Camera(-60.0, 12.0),
}
"""The presets by name; "auto" is one too, which looks for the best view of the path."""
NAMED: Mapping[str, Camera | None] = {**CAMERAS, AUTO: None}
"""All names of cameras; the one that must be looked for is None."""
CameraChoice: TypeAlias = "Camera | str | tuple[float, float]"
_EXPECTED = (
    f"one of {', '.join(NAMED)}, or azimuth and elevation in degrees such as -60,30, the elevation from -90 to 90"
)


def check_camera(camera: object) -> Camera | None:
    """Returns the camera of a preset's name, of (azimuth, elevation) in degrees or of their text; None for "auto"."""
    if camera is None:
        return CAMERAS["default"]
    if isinstance(camera, Camera):
        angles: Sequence[object] = (camera.azimuth, camera.elevation)
    elif isinstance(camera, str):
        word = camera.strip().lower()
        if word in NAMED:
            return NAMED[word]
        try:
            angles = [float(part) for part in word.split(",")]
        except ValueError:
            raise wrong_value("camera", _EXPECTED, camera) from None
    elif isinstance(camera, Sequence):
        angles = camera
    else:
        raise wrong_type("camera", _EXPECTED, camera)
    if len(angles) != 2:
        raise wrong_value("camera", _EXPECTED, camera)
    azimuth, elevation = (check_float(f"camera[{index}]", angle) for index, angle in enumerate(angles))
    if not -90 <= elevation <= 90:
        raise wrong_value("camera", _EXPECTED, camera)
    return Camera(azimuth, elevation)


def offered_cameras(camera: CameraChoice | None) -> tuple[str, Mapping[str, Camera | None]]:
    """Returns the name of the camera that is meant, and all from which a page's reader can choose, by name."""
    chosen = check_camera(camera)
    names = [name for name, known in NAMED.items() if known == chosen]
    if chosen is not None and not names:
        # Azimuth and elevation as ``check_camera`` reads them.
        angles = (chosen.azimuth, chosen.elevation)
        names = [",".join(np.format_float_positional(angle, trim="-") for angle in angles)]
    return names[0], {**NAMED, names[0]: chosen}


def best_camera(landscape: LandscapeData, metric: str, scale: Scale, frame: Frame) -> Camera:
    """Returns from where the surface hides least of the paths; of equal places, that over the surface's lowest side."""
    assert landscape.y is not None
    heights = scale.heights(known(landscape[metric], landscape.status))
    relief = Relief(landscape.x, landscape.y, heights, frame.matrix)
    (left, right), (bottom, top) = frame.limits(span(landscape.x), span(landscape.y))
    low, high = scale.tall.height_range
    corner, units = np.array([left, bottom, low]), np.array([right - left, top - bottom, high - low]) / frame.box
    # Places along all runs' paths, the networks of no run and the origin, shape (n, 3).
    point, feet = landscape.origin, feet_on_surface(landscape, metric, scale, frame)
    value = scale.tall.heights([point.metrics.get(metric, np.nan)])
    marks = [np.column_stack([*frame.place([point.x], [point.y or 0.0]), value])]
    if feet is not None:
        assert landscape.checkpoints is not None
        runs = [feet[rows[np.isfinite(feet[rows, 2])]] for rows in landscape.checkpoints.paths]
        marks += [relief.path_over(points) for points in runs if len(points)]
        marks += [feet[[row]] for row, _ in network_marks(landscape)]
    path = np.concatenate(marks)

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


def _rise_toward(heights: NDArray[Any], camera: Camera) -> float:
    """Returns how much higher the surface is on the viewer's side than on the other, rounded so that ties are ties."""
    finite = np.isfinite(heights)
    if not finite.any():
        return 0.0
    around = np.where(finite, heights - heights[finite].mean(), 0.0)
    right, up = (np.linspace(-1, 1, count) for count in heights.shape[::-1])
    toward = right * camera.toward[0] + up[:, None] * camera.toward[1]
    return round(float((around * toward).mean() / max(float(np.abs(around).max()), 1e-300)), 6)
