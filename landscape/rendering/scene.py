"""A landscape as a lit scene of VTK's own means: lamps, contour lines, tubes, glyphs, a translucent shadow."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64, UInt8

from ..drawing.appearance import THEMES, readable
from ..drawing.camera import FLOOR, Camera
from ..drawing.path import EDGE
from ..errors import LandscapeRenderingError
from .meshes import Mark, PathLine, Space, path_lines, path_marks, surface_mesh
from .surface import TUBE, Surface, floor_height

# Of the picture's height, in degrees: a long lens, which bends shapes little; and the share that stays free beside.
_VIEW_ANGLE, _MARGIN = 26.0, 0.03
# Azimuth from the viewer's, elevation, and brightness: the key, the fill, and the sky straight above.
_LAMPS = ((-62.0, 42.0, 0.46), (75.0, 25.0, 0.10), (0.0, 88.0, 0.12))
_MATERIAL: dict[str, Any] = {"ambient": 0.60, "diffuse": 1.0, "specular": 0.15, "specular_power": 40.0}
_LINE, _FLOOR_LINE, _BORDER = 0.0030, 0.0050, 0.0022
# Units of the scene for a point of a mark's size in figures.
_POINT = 0.0062
# The underside is pale: so much of the colours above, and so much white.
_DARKER_LINE, _UNDERSIDE = 0.62, (0.45, 0.36)
# What lies below the surface by at most this share of the heights is moved before it, so that it is seen.
_BURIED = 0.15
# A hill nearer to a mark than this, in the scene's units, is the slope that it stands on and does not hide it.
_SLOPE, _STEPS_ALONG = 0.5, 96
# The floor's shadow: everywhere, more below low places, how soon that fades; how far it reaches and how soft it is.
_FAINT, _DARK, _FADES, _REACH, _SOFT = 0.07, 0.62, 0.42, 0.16, 0.05
_SHADOW_POINTS = 160
# VTK mixes the samples of a pixel by the light that they are: colours to this power.
_GAMMA = 2.2
_SOFTWARE = "vtkOSOpenGLRenderWindow"
_SOFTWARE_LIBRARIES = ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so")


@dataclass(frozen=True)
class Scene:
    """What stands before the viewer of a picture of some pixels; ``theme`` is that of the page behind it."""

    space: Space
    colors: Any
    theme: str
    trajectory: bool
    interpolation: str
    pixels: tuple[int, int]

    def render(self, camera: Camera) -> UInt8[np.ndarray, "height width 4"]:
        """Returns the picture from a camera's direction, as near as shows all, before a clear background."""
        try:
            import pyvista
        except ImportError as error:
            raise ImportError("plot_hero needs pyvista: pip install 'summary-landscape[vtk]'") from error
        with pyvista.vtk_verbosity("off"):
            _check_driver()
            plotter = pyvista.Plotter(off_screen=True, window_size=list(self.pixels), lighting="none")
            # Where a pixel is partly clear, VTK mixes in the background's colour.
            plotter.set_background("black")
            try:
                # It asks for the paths, whose shade lies on the surface.
                eye = self._place_camera(plotter, camera)
                if self._surface is not None:
                    self._add_surface(plotter, self._surface, eye)
                self._add_floor(plotter)
                self._add_points_alone(plotter)
                for line in self._lines:
                    self._add_path(plotter, line, eye)
                for mark in path_marks(self.space) if self.trajectory else ():
                    self._add_mark(plotter, mark, eye)
                for azimuth, elevation, brightness in _LAMPS:
                    lamp = pyvista.Light(intensity=brightness, light_type="scene light")
                    lamp.set_direction_angle(elevation, camera.azimuth + azimuth)
                    plotter.add_light(lamp)
                plotter.enable_anti_aliasing("msaa", multi_samples=8)
                return _unmixed(plotter.screenshot(transparent_background=True, return_img=True))
            finally:
                plotter.close()

    @cached_property
    def _surface(self) -> Surface | None:
        if min(len(axis) for axis in self.space.plane) < 2:
            return None
        return Surface(self.space, self.colors, self.interpolation, max(self.pixels))

    @cached_property
    def _lines(self) -> list[PathLine]:
        """The paths, which follow the drawn surface between two checkpoints."""
        lines = path_lines(self.space) if self.trajectory else []
        if self._surface is None:
            return lines
        found = []
        for line in lines:
            lengths = np.linalg.norm(np.diff(line.checkpoints, axis=0), axis=1)
            counts = np.clip(np.ceil(lengths / (0.5 * TUBE)), 1, 400).astype(int)
            feet = line.checkpoints / self.space.factors + self.space.middle
            found.append(replace(line, points=self.space.from_frame(self._surface.relief.path_over(feet, counts))))
        if any(len(line.points) for line in found) and self._surface.mesh.n_cells:
            self._surface.shade_beside(found)
        return found

    @property
    def _finest(self) -> float:
        """Half of the width of a line that is a little wider than a pixel, in the scene's units."""
        width, height = self.pixels
        return 1.7 / min(height, 0.8 * width)

    @cached_property
    def _corners(self) -> Float64[np.ndarray, "5 3"]:
        """The corners of the floor, the first one once more at the end."""
        places = np.column_stack([self.space.frame.outline(*self.space.plane).vertices, np.zeros(5)])
        return np.asarray(self.space.from_frame(places) * (1, 1, 0) + (0, 0, floor_height(self.space)))

    def _add_surface(self, plotter: Any, surface: Surface, eye: NDArray[Any]) -> None:
        mesh, lines, floor = surface.mesh, surface.lines, floor_height(self.space)
        if not mesh.n_cells:
            return
        _add(plotter, mesh, mesh["color"] * mesh["light"][:, None], culling="back")
        _add(plotter, mesh, _UNDERSIDE[0] * mesh["color"] + _UNDERSIDE[1], culling="front")
        if lines.n_points:
            tubes = lines.tube(radius=max(_LINE, self._finest), n_sides=6)
            _add(plotter, tubes, _DARKER_LINE * tubes["color"] * tubes["light"][:, None])
            feet = lines.copy()
            feet.points[:, 2] = floor
            tubes = feet.tube(radius=max(_FLOOR_LINE, self._finest), n_sides=6)
            colors = readable(self.colors, self.theme)(self.space.shares(tubes["height"]))
            _add(plotter, tubes, colors[:, :3], lighting=False)
        if eye[2] > floor:
            plotter.add_mesh(_shadow(surface, floor), scalars="black", rgba=True, lighting=False)

    def _add_floor(self, plotter: Any) -> None:
        soft, z = THEMES[self.theme]["soft"], floor_height(self.space) + 2 * _FLOOR_LINE
        _add_tube(plotter, self._corners, max(_BORDER, self._finest), color=soft, lighting=False)
        for line in self._lines:
            feet = line.points * (1, 1, 0) + (0, 0, z)
            _add_tube(plotter, feet, max(1.2 * _FLOOR_LINE, self._finest), color=line.color, lighting=False)

    def _add_points_alone(self, plotter: Any) -> None:
        places, shares = self._alone
        if len(places):
            balls = _balls(places, max(1.2 * TUBE, 1.6 * self._finest))
            _add(plotter, balls, self.colors(np.repeat(shares, balls.n_points // len(places)))[:, :3])

    @cached_property
    def _alone(self) -> tuple[Float64[np.ndarray, "k 3"], Float64[np.ndarray, " k"]]:
        """The places of the values that belong to no whole cell, and where these lie among the colours."""
        mesh, (x, y) = surface_mesh(self.space), self.space.plane
        rows, columns = np.nonzero(mesh.alone.reshape(len(y), len(x)))
        return self.space.place(x[columns], y[rows], mesh.values[mesh.alone]), mesh.shares[mesh.alone]

    def _add_path(self, plotter: Any, line: PathLine, eye: NDArray[Any]) -> None:
        points, checkpoints = (self._before_surface(places, eye) for places in (line.points, line.checkpoints))
        _add_tube(plotter, points, TUBE, color=line.color, smooth_shading=True, **_MATERIAL)
        balls = _balls(checkpoints, (1.25 if len(line.checkpoints) > 60 else 1.9) * TUBE)
        plotter.add_mesh(balls, color=line.color, smooth_shading=True, **_MATERIAL)

    def _before_surface(self, places: NDArray[Any], eye: NDArray[Any]) -> NDArray[Any]:
        """Returns places, shape (n, 3); those a little below the drawn surface move before it, towards the viewer."""
        # A checkpoint between four points may be measured lower than these, and the surface would bury it.
        if self._surface is None:
            return places
        frame = places / self.space.factors + self.space.middle
        above = self._surface.relief.heights_at(frame[:, 0], frame[:, 1])
        depth = np.nan_to_num((above - frame[:, 2]) * self.space.factors[2])
        toward = _unit(eye - places)
        deepest = _BURIED * float(np.ptp(self.space.scale.tall.height_range)) * self.space.factors[2]
        buried = (depth > 0) & (depth <= deepest) & (toward[:, 2] > 0.05)
        return np.asarray(places + np.where(buried, depth / np.maximum(toward[:, 2], 0.05), 0.0)[:, None] * toward)

    def _free_way(self, rim: NDArray[Any], toward: NDArray[Any]) -> float:
        """Returns how far a mark moves to the viewer until the slope below does not cut its rim, shape (n, 3)."""
        if self._surface is None:
            return 0.0
        ways = np.linspace(0, _SLOPE, _STEPS_ALONG)
        frame = (rim[:, None] + ways[:, None] * toward) / self.space.factors + self.space.middle
        with np.errstate(invalid="ignore"):
            below = frame[..., 2] < self._surface.relief.heights_at(frame[..., 0], frame[..., 1])
        return float(ways[below.any(axis=0)].max(initial=0.0))

    def _add_mark(self, plotter: Any, mark: Mark, eye: NDArray[Any]) -> None:
        """Adds a mark of figures as a cut stone, or as a ring, that faces the viewer and stands before the slope."""
        import pyvista
        from matplotlib.colors import to_rgb
        from matplotlib.markers import MarkerStyle

        style, radius = mark.style, 0.5 * _POINT * mark.style["markersize"]
        toward = _unit(eye - mark.point)
        right = _unit(np.cross(plotter.camera.up, toward))
        up = np.cross(toward, right)
        angles = np.linspace(0, 2 * math.pi, 12, endpoint=False)
        rim = mark.point + radius * (np.cos(angles)[:, None] * right + np.sin(angles)[:, None] * up)
        pose = np.eye(4)
        way = self._free_way(rim, toward) + 1.5 * radius
        pose[:3] = np.column_stack([right, up, toward, mark.point + way * toward])
        if style["color"] == "none":
            wire = 0.5 * _POINT * style["markeredgewidth"]
            ring = pyvista.ParametricTorus(ringradius=radius, crosssectionradius=wire).transform(pose, inplace=False)
            plotter.add_mesh(ring, color=style["markeredgecolor"], smooth_shading=True, **_MATERIAL)
            return
        marker = MarkerStyle(style["marker"])
        outline = np.asarray(marker.get_path().transformed(marker.get_transform()).to_polygons()[0], np.float64)[:-1]
        outline = outline / np.abs(outline).max()
        number = np.arange(len(outline))
        fan = np.column_stack([np.full(len(outline), len(outline)), number, np.roll(number, -1)])
        # The stone, and behind it a dark plate that is a little larger.
        for size, rise, peak, color in (
            (radius, 0.05 * radius, 0.4 * radius, style["color"]), (radius + 0.5 * _POINT, 0.0, 0.0, EDGE),
        ):  # fmt: skip
            corners = np.vstack([np.column_stack([size * outline, np.full(len(outline), rise)]), (0, 0, peak)])
            stone = pyvista.PolyData.from_regular_faces(corners, fan).transform(pose, inplace=False)
            plotter.add_mesh(stone, color=to_rgb(color), lighting=bool(peak), **_MATERIAL)

    def _place_camera(self, plotter: Any, camera: Camera) -> NDArray[Any]:
        """Moves the viewer as near as everything still fits into the picture, and returns where it stands."""
        seen = [self._corners, self._alone[0]]
        if self._surface is not None:
            seen.append(self._surface.places[np.isfinite(self._surface.heights)])
        seen += [line.points + aside for line in self._lines for aside in (-2 * TUBE, 2 * TUBE)]
        eye, forward = viewpoint(camera, np.concatenate(seen), *self.pixels)
        plotter.camera_position = [tuple(eye), tuple(eye + forward), (0.0, 0.0, 1.0)]
        plotter.camera.view_angle = _VIEW_ANGLE
        return eye


def viewpoint(
    camera: Camera, points: Float64[np.ndarray, "n 3"], width: int, height: int
) -> tuple[Float64[np.ndarray, " 3"], Float64[np.ndarray, " 3"]]:
    """Returns the nearest place that sees all points, with equal margins, and the direction of the view."""
    forward = -camera.toward
    right = _unit(np.cross(forward, (0.0, 0.0, 1.0)))
    up = np.cross(right, forward)
    half = math.tan(math.radians(_VIEW_ANGLE / 2)) * (1 - 2 * _MARGIN)
    across, away = [], []
    for axis, tangent in ((right, half * width / height), (up, half)):
        first, last = ((sign * points @ axis - tangent * points @ forward).max() for sign in (1, -1))
        across.append((first - last) / 2)
        away.append((first + last) / (2 * tangent))
    return across[0] * right + across[1] * up - max(away) * forward, forward


def _check_driver() -> None:
    import vtkmodules.vtkRenderingOpenGL2  # noqa: F401  (it registers itself)
    from vtkmodules import vtkRenderingCore

    # Without its library VTK's last resort does not fail: it ends the process.
    if type(vtkRenderingCore.vtkRenderWindow()).__name__ == _SOFTWARE and not any(map(_is_there, _SOFTWARE_LIBRARIES)):
        raise LandscapeRenderingError(
            "plot_hero needs OpenGL without a display, but this machine has neither EGL nor OSMesa. Install Mesa, "
            "which needs no graphics card: on Debian and Ubuntu 'apt-get install libegl1 libgl1-mesa-dri', on Fedora "
            "'dnf install mesa-libEGL mesa-dri-drivers'."
        )


def _is_there(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _add(plotter: Any, mesh: Any, colors: NDArray[Any], *, lighting: bool = True, **options: Any) -> None:
    shown = mesh.copy(deep=False)
    shown["shown"] = np.round(255 * np.clip(colors, 0, 1)).astype(np.uint8)
    material = _MATERIAL if lighting else {"lighting": False}
    plotter.add_mesh(shown, scalars="shown", rgb=True, **material, **options).prop.interpolation = "Phong"


def _add_tube(plotter: Any, points: NDArray[Any], radius: float, **options: Any) -> None:
    """Adds a tube around a line, shape (n, 3); none where all of it is at one place."""
    import pyvista

    points = points[np.append(True, np.linalg.norm(np.diff(points, axis=0), axis=1) > 1e-6)]
    if len(points) > 1:
        plotter.add_mesh(pyvista.lines_from_points(points).tube(radius=radius), **options)


def _balls(places: NDArray[Any], radius: float) -> Any:
    import pyvista

    return pyvista.PolyData(places).glyph(geom=pyvista.Sphere(radius=radius), scale=False, orient=False)


def _shadow(surface: Surface, floor: float) -> Any:
    """Returns a plane whose opacity is the soft shadow that the surface throws straight down."""
    import pyvista
    from scipy.ndimage import gaussian_filter

    stride = max(1, round(max(surface.whole.shape) / _SHADOW_POINTS))
    whole, places = surface.whole[::stride, ::stride], surface.places[::stride, ::stride]
    side, around = max(whole.shape), round(_REACH * max(whole.shape))
    clearance = (surface.places[:-1:stride, :-1:stride, 2] - floor) / (-floor / FLOOR)
    dark = np.pad(np.where(whole, _FAINT + _DARK * np.exp(-clearance / _FADES), 0.0), around)
    dark = gaussian_filter(dark, _SOFT * side)
    right, up = places[0, 1] - places[0, 0], places[1, 0] - places[0, 0]
    rows, columns = np.indices(dark.shape)[..., None] - around + 0.5
    at = (places[0, 0] + columns * right + rows * up) * (1, 1, 0) + (0, 0, floor - _FLOOR_LINE)
    plane = pyvista.StructuredGrid(*np.moveaxis(at[:, :, None], -1, 0))
    black = np.zeros((dark.size, 4), np.uint8)
    black[:, 3] = np.round(255 * dark.ravel(order="F"))
    plane["black"] = black
    return plane


def _unit(vectors: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def _unmixed(drawn: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns pixels whose colours are not mixed with the black behind them where an edge covers a part of a pixel."""
    found = np.array(drawn)
    rows, columns = np.nonzero((drawn[..., 3] > 0) & (drawn[..., 3] < 255))
    part = drawn[rows, columns].astype(np.float32)
    opaque = part[:, :3] * (255.0 / part[:, 3:]) ** (1 / _GAMMA)
    found[rows, columns, :3] = np.clip(np.round(opaque), 0, 255)
    return found
