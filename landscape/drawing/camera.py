"""The camera: every renderer looks from ``DISTANCE`` box diagonals at the middle of the box of surface and floor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from collectors.validation import check_float, wrong_type, wrong_value

if TYPE_CHECKING:
    from jaxtyping import Float64


FLOOR = 0.35
"""Room below a surface for the contour lines on its floor, as a share of the surface's height."""
DISTANCE = 1.5
"""From the viewer to the middle of the box with its floor, in diagonals of that box."""
VIEW_ANGLE = 45.0
"""Of the height of a picture, in degrees; plotly has no other."""
AUTO = "auto"
MOVES = ("walk", "orbit")
"""What moves in a film: the optimizer, or the camera around the surface."""
# Straight from above a viewer has no direction that is up.
_STEEPEST = 89.9
# Matplotlib's viewer is so far away for a focal length of 1.
_MATPLOTLIB_DISTANCE = 10.0


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
        """Returns plotly's camera for a scene whose box is the surface.

        Args:
            box: the scene's ``aspectratio``; see ``plotly_box``.
        """
        sides = [box[name] for name in "xyz"]
        eye, middle = self.placed(sides)
        # Plotly counts from the middle of the box.
        half = np.array(sides) / 2
        named = {"eye": eye - half, "center": middle - half, "up": np.array([0.0, 0.0, 1.0])}
        return {name: dict(zip("xyz", place.tolist(), strict=True)) for name, place in named.items()}

    def of_pyvista(self, bounds: ArrayLike) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
        """Returns pyvista's camera position: where the viewer stands, what it looks at, and what is up.

        Args:
            bounds: of the surface without the floor, in the scene's units: x from and to, y from and to, z from and to.
        """
        ends = np.asarray(bounds, np.float64).reshape(3, 2)
        eye, middle = (ends[:, 0] + place for place in self.placed(ends[:, 1] - ends[:, 0]))
        return tuple(eye.tolist()), tuple(middle.tolist()), (0.0, 0.0, 1.0)

    def placed(self, box: ArrayLike) -> tuple[Float64[np.ndarray, " 3"], Float64[np.ndarray, " 3"]]:
        """Returns where the viewer stands and what it looks at, counted from the box's corner at (0, 0, 0).

        Args:
            box: width, depth and height of the surface without the floor.
        """
        with_floor = np.asarray(box, np.float64) * (1, 1, 1 + FLOOR)
        middle = with_floor / 2 - with_floor * (0, 0, FLOOR / (1 + FLOOR))
        return middle + DISTANCE * float(np.linalg.norm(with_floor)) * self.toward, middle


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


def check_camera(camera: object, name: str = "camera") -> Camera | None:
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
            raise wrong_value(name, _EXPECTED, camera) from None
    elif isinstance(camera, Sequence):
        angles = camera
    else:
        raise wrong_type(name, _EXPECTED, camera)
    if len(angles) != 2:
        raise wrong_value(name, _EXPECTED, camera)
    azimuth, elevation = (check_float(f"{name}[{index}]", angle) for index, angle in enumerate(angles))
    if not -90 <= elevation <= 90:
        raise wrong_value(name, _EXPECTED, camera)
    return Camera(azimuth, elevation)


def offered_cameras(camera: CameraChoice | None) -> tuple[str, Mapping[str, Camera | None]]:
    """Returns the name of the camera that is meant, and all from which a page's reader can choose, by name."""
    chosen = check_camera(camera)
    name = camera_name(chosen)
    return name, {**NAMED, name: chosen}


def camera_name(camera: Camera | None) -> str:
    """Returns the preset's name, or azimuth and elevation as ``check_camera`` reads them."""
    names = [name for name, known in NAMED.items() if known == camera]
    if names or camera is None:
        return names[0]
    return ",".join(np.format_float_positional(angle, trim="-") for angle in (camera.azimuth, camera.elevation))
