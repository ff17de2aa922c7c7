"""VTK behind one function: lit triangles become pixels, without a window and without a display."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LandscapeRenderingError
from .light import Lamps, lit
from .solids import Solid
from .viewpoint import VIEW_ANGLE, Viewpoint

if TYPE_CHECKING:
    from jaxtyping import UInt8


_MULTI_SAMPLES = 8
# VTK mixes the samples of a pixel by the light that they are: colours to this power.
_GAMMA = 2.2
_SOFTWARE = "vtkOSOpenGLRenderWindow"
_SOFTWARE_LIBRARIES = ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so")
_CULLING = {"both": None, "front": "back", "back": "front"}


def rendered(
    solids: Sequence[Solid], viewpoint: Viewpoint, lamps: Lamps, width: int, height: int
) -> UInt8[np.ndarray, "height width 4"]:
    """Returns what the viewer sees: red, green, blue and opacity, clear where nothing is.

    Args:
        solids: what is there; nearer ones hide what is behind them.
        viewpoint: of the viewer.
        lamps: where the light comes from.
        width: in pixels.
        height: in pixels.

    Raises:
        ImportError: pyvista is not installed.
        LandscapeRenderingError: this machine has no program that draws three dimensions without a window.
    """
    pyvista = _pyvista()
    with _quiet():
        plotter = pyvista.Plotter(off_screen=True, window_size=(width, height), lighting="none")
        try:
            _check_driver(plotter)
            plotter.ren_win.SetMultiSamples(_MULTI_SAMPLES)
            plotter.set_background("black")
            for solid in solids:
                if len(solid.triangles):
                    _add(plotter, pyvista, solid, viewpoint, lamps)
            _place(plotter.camera, viewpoint)
            drawn = plotter.screenshot(None, return_img=True, transparent_background=True)
        finally:
            plotter.close()
    return _with_own_colours(np.asarray(drawn))


def _pyvista() -> Any:
    try:
        import pyvista
    except ImportError as error:
        raise ImportError("plot_hero needs pyvista: pip install 'summary-landscape[vtk]'") from error
    return pyvista


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps VTK from writing about displays that it tries and does not find."""
    from vtkmodules.vtkCommonCore import vtkLogger

    before = vtkLogger.GetCurrentVerbosityCutoff()
    vtkLogger.SetStderrVerbosity(vtkLogger.VERBOSITY_OFF)
    try:
        yield
    finally:
        vtkLogger.SetStderrVerbosity(before)


def _check_driver(plotter: Any) -> None:
    # Without its library VTK's last resort does not fail: it ends the process.
    if type(plotter.ren_win).__name__ == _SOFTWARE and not any(map(_is_there, _SOFTWARE_LIBRARIES)):
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


def _add(plotter: Any, pyvista: Any, solid: Solid, viewpoint: Viewpoint, lamps: Lamps) -> None:
    colors = solid.colors
    if solid.normals is not None:
        toward = viewpoint.toward(solid.vertices)
        colors = lit(colors[:, :3], solid.normals, toward, lamps, solid.sky, solid.lamp)
    mesh = pyvista.PolyData.from_regular_faces(solid.vertices.astype(np.float32), solid.triangles)
    mesh.point_data["colors"] = np.round(255 * colors[:, :3]).astype(np.uint8)
    plotter.add_mesh(
        mesh, scalars="colors", rgb=True, lighting=False, culling=_CULLING[solid.sides], reset_camera=False,
        show_scalar_bar=False, copy_mesh=False,
    )  # fmt: skip


def _place(camera: Any, viewpoint: Viewpoint) -> None:
    camera.position = tuple(viewpoint.eye)
    camera.focal_point = tuple(viewpoint.eye + viewpoint.forward)
    camera.up = tuple(viewpoint.up)
    camera.view_angle = VIEW_ANGLE
    slack = 0.05 * (viewpoint.far - viewpoint.near) + 1e-3
    camera.clipping_range = (max(viewpoint.near - slack, 1e-3), viewpoint.far + slack)


def _with_own_colours(drawn: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns pixels whose colours are not mixed with the black behind them where an edge covers a part of a pixel."""
    found = drawn.copy()
    rows, columns = np.nonzero((drawn[..., 3] > 0) & (drawn[..., 3] < 255))
    part = drawn[rows, columns].astype(np.float32)
    own = part[:, :3] * (255.0 / part[:, 3:]) ** (1 / _GAMMA)
    found[rows, columns, :3] = np.clip(np.round(own), 0, 255)
    return found
