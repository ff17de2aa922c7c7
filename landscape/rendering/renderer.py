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


def rendered(
    solids: Sequence[Solid], viewpoint: Viewpoint, lamps: Lamps, width: int, height: int
) -> UInt8[np.ndarray, "height width 4"]:
    """Returns what the viewer sees, in pixels: red, green, blue and opacity, clear where nothing is."""
    core = _vtk()
    with _quiet():
        window = core.vtkRenderWindow()
        _check_driver(window)
        renderer = core.vtkRenderer()
        renderer.SetBackground(0, 0, 0)
        renderer.SetBackgroundAlpha(0)
        for solid in solids:
            if len(solid.triangles):
                renderer.AddActor(_actor(core, solid, viewpoint, lamps))
        _place(renderer.GetActiveCamera(), viewpoint)
        window.SetOffScreenRendering(1)
        window.SetAlphaBitPlanes(1)
        window.SetMultiSamples(_MULTI_SAMPLES)
        window.SetSize(width, height)
        window.AddRenderer(renderer)
        try:
            drawn = _pixels(window)
        finally:
            window.Finalize()
    return _with_own_colours(drawn)


def _vtk() -> Any:
    """Returns VTK's core, ready to draw; pyvista's own plotter would load all of matplotlib's pyplot."""
    try:
        import vtkmodules.vtkRenderingOpenGL2  # noqa: F401  (it registers itself)
        from vtkmodules import vtkRenderingCore
    except ImportError as error:
        raise ImportError("plot_hero needs pyvista: pip install 'summary-landscape[vtk]'") from error
    return vtkRenderingCore


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


def _check_driver(window: Any) -> None:
    # Without its library VTK's last resort does not fail: it ends the process.
    if type(window).__name__ == _SOFTWARE and not any(map(_is_there, _SOFTWARE_LIBRARIES)):
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


def _actor(core: Any, solid: Solid, viewpoint: Viewpoint, lamps: Lamps) -> Any:
    from vtkmodules.util import numpy_support
    from vtkmodules.vtkCommonCore import vtkPoints
    from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData

    arrays: Any = numpy_support
    colors = solid.colors[:, :3]
    if solid.normals is not None:
        toward = viewpoint.toward(solid.vertices)
        colors = lit(colors, solid.normals, toward, lamps, solid.sky, solid.lamp)
    points, cells, mesh = vtkPoints(), vtkCellArray(), vtkPolyData()
    points.SetData(arrays.numpy_to_vtk(np.ascontiguousarray(solid.vertices, np.float32), deep=True))
    cells.SetData(3, arrays.numpy_to_vtkIdTypeArray(np.ascontiguousarray(solid.triangles.ravel(), np.int64), deep=True))
    shown = arrays.numpy_to_vtk(np.ascontiguousarray(np.round(255 * colors), np.uint8), deep=True)
    mesh.SetPoints(points)
    mesh.SetPolys(cells)
    mesh.GetPointData().SetScalars(shown)
    mapper, actor = core.vtkPolyDataMapper(), core.vtkActor()
    mapper.SetInputData(mesh)
    actor.SetMapper(mapper)
    look = actor.GetProperty()
    look.LightingOff()
    look.SetBackfaceCulling(solid.sides == "front")
    look.SetFrontfaceCulling(solid.sides == "back")
    return actor


def _place(camera: Any, viewpoint: Viewpoint) -> None:
    camera.SetPosition(*viewpoint.eye)
    camera.SetFocalPoint(*(viewpoint.eye + viewpoint.forward))
    camera.SetViewUp(*viewpoint.up)
    camera.SetViewAngle(VIEW_ANGLE)
    slack = 0.05 * (viewpoint.far - viewpoint.near) + 1e-3
    camera.SetClippingRange(max(viewpoint.near - slack, 1e-3), viewpoint.far + slack)


def _pixels(window: Any) -> NDArray[np.uint8]:
    """Returns what a window shows, from the top row down."""
    from vtkmodules.util import numpy_support
    from vtkmodules.vtkCommonCore import vtkUnsignedCharArray

    arrays: Any = numpy_support
    window.Render()
    width, height = window.GetSize()
    values = vtkUnsignedCharArray()
    window.GetRGBACharPixelData(0, 0, width - 1, height - 1, 0, values)
    return np.array(arrays.vtk_to_numpy(values).reshape(height, width, 4)[::-1])


def _with_own_colours(drawn: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns pixels whose colours are not mixed with the black behind them where an edge covers a part of a pixel."""
    found = drawn.copy()
    rows, columns = np.nonzero((drawn[..., 3] > 0) & (drawn[..., 3] < 255))
    part = drawn[rows, columns].astype(np.float32)
    opaque = part[:, :3] * (255.0 / part[:, 3:]) ** (1 / _GAMMA)
    found[rows, columns, :3] = np.clip(np.round(opaque), 0, 255)
    return found
