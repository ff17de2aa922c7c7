"""The camera goes around a surface: pictures that differ in nothing but from where it is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_float, check_int

from ...drawing.camera import Camera, best_camera
from ...drawing.canvas import check_size
from ...drawing.look import Look, check_look
from ...drawing.sheet import begin
from ...grid.data import LandscapeData
from ..surface3d import SURFACE, draw_surface

if TYPE_CHECKING:
    from jaxtyping import UInt8


INCHES = (9.6, 5.4)
"""Of a moving picture: at 200 dots per inch it has 1920 x 1080 pixels."""
# The axes leave room for what stands beside them at so many places of the way.
PLACES = 12


def orbit_frames(
    landscape: LandscapeData,
    *,
    turn: float = 360.0,
    seconds: float = 6.0,
    rate: int = 30,
    dpi: int = 100,
    **look: Unpack[Look],
) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """Yields pictures of a surface from a camera that goes around it, each of shape (height, width, 3).

    It begins at the look's camera and keeps its elevation. Of whole turns the last frame is followed by the first, so
    that the film can run in a circle.

    Args:
        landscape: a plane; its runs' paths, if there are any, are drawn whole.
        turn: how far the camera goes, in degrees; counterclockwise as seen from above, or clockwise if negative.
        seconds: how long it takes.
        rate: frames per second.
        dpi: dots per inch; a frame is 9.6 x 5.4 inches, or of the look's size.
        **look: metric, levels, scale, colormap, trajectory, clip, theme, style, aspect, title, size, camera; see
            ``Look``.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    count = frame_count(seconds, rate)
    check_float("turn", turn)
    check_int("dpi", dpi, minimum=20)
    check_look("orbit_frames", look)
    options: Look = {**look, "size": check_size(look.get("size")) or INCHES}
    with begin(SURFACE, landscape, None, options) as sheet:
        sheet.ax.figure.set_dpi(dpi)
        draw_surface(sheet)
        first = sheet.camera or best_camera(landscape, sheet.metric, sheet.scale, sheet.frame)
        sheet.finish([first.turned(each) for each in np.linspace(0, turn, PLACES + 1)])
        yield from frames_from(sheet.ax, [first.turned(each) for each in turns(turn, count)])


def frame_count(seconds: float, rate: int) -> int:
    return max(2, round(check_float("seconds", seconds, minimum=0.05) * check_int("rate", rate, minimum=1)))


def turns(turn: float, count: int) -> list[float]:
    """Returns how far the camera is at each frame, in degrees; the end of whole turns is their beginning."""
    return [float(each) for each in np.linspace(0, turn, count, endpoint=turn == 0 or turn % 360 != 0)]


def frames_from(
    space: Any, cameras: Sequence[Camera | None], move: Callable[[int], Sequence[Any]] = lambda _frame: ()
) -> Iterator[NDArray[Any]]:
    """Yields a frame for each camera, None where the view stays, with what ``move`` returns; all else is drawn once."""
    canvas: Any = space.figure.canvas
    space.set_visible(cameras[0] is None)
    canvas.draw()
    still = canvas.copy_from_bbox(space.figure.bbox)
    space.set_visible(True)
    for frame, camera in enumerate(cameras):
        moving = move(frame)
        canvas.restore_region(still)
        if camera is not None:
            camera.place(space)
            space.draw(canvas.get_renderer())
        for artist in moving:
            artist.axes.draw_artist(artist)
        yield np.asarray(canvas.buffer_rgba())[:, :, :3].copy()
