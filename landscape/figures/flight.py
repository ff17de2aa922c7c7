"""A flight over a surface: the camera follows a run's path, looks ahead, and never goes below the ground."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_int

from ..drawing.best_camera import feet_on_surface
from ..drawing.canvas import check_size
from ..drawing.look import Look, check_look
from ..drawing.occlusion import Relief
from ..drawing.path import EDGE, PATH, RUN_COLORS, STAR, START, network_marks, sized
from ..drawing.sheet import Kind, Sheet, begin
from ..drawing.texts import metric_text, plain, title, unit_of
from ..scales.levels import number_text
from .orbit import INCHES, frame_count
from .route import plan_route
from .surface3d import shade
from .terrain import Pieces, Viewer, show, stretches

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import UInt8

    from ..file.data import LandscapeData


# Of the surface along each axis: bilinear between the points of the grid, as the figures of surfaces mean it.
_CELLS = 130
# Paths lie so far above the ground, in units of the box.
_LIFT_OF_PATH = np.array([0.0, 0.0, 0.004])
# Of the picture, for the surface; a line of text is above it, the colour bar beside it.
_ROOM = (0.0, 0.0, 0.9, 0.93)
# Sizes at a distance of 1 from the viewer, in points.
_PATH_WIDTH, _LINE_WIDTH, _MARK, _BALL = 1.6, 0.45, 0.55, 7.0


def fly_frames(
    landscape: LandscapeData, *, seconds: float = 10.0, rate: int = 30, dpi: int = 100, **look: Unpack[Look]
) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """Yields pictures of a flight over the surface behind a ball that follows a run's path, shape (height, width, 3).

    The ball moves at even speed over the surface; the line above the picture says at which checkpoint it is. The camera
    flies behind it and above the ground, looks ahead, and takes turns gently. The ball is faint where a hill hides it.

    Args:
        landscape: a plane with a run's path of at least two checkpoints; of several runs, the one with the most
            checkpoints is followed, and the others are drawn.
        seconds: how long the flight takes.
        rate: frames per second.
        dpi: dots per inch; a frame is 9.6 x 5.4 inches, or of the look's size.
        **look: metric, levels, scale, colormap, clip, theme, style, aspect, title, size; see ``Look``. On a
            logarithmic scale heights are logarithms, and the colour bar says the values.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line or has no path, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    count = frame_count(seconds, rate)
    check_int("dpi", dpi, minimum=20)
    check_look("fly_frames", look)
    if look.get("camera") is not None:
        raise ValueError('camera must be left out for move="fly", whose camera follows the path.')
    options: Look = {**look, "size": check_size(look.get("size")) or INCHES}
    with begin(_FLIGHT, landscape, None, options) as sheet:
        sheet.ax.figure.set_dpi(dpi)
        yield from _Flight(sheet).frames(count)


class _Flight:
    """What is seen on a flight, in units of the surface's box."""

    def __init__(self, sheet: Sheet) -> None:
        landscape, scale = sheet.landscape, sheet.scale
        feet = feet_on_surface(landscape, sheet.metric, scale, sheet.frame)
        found = landscape.checkpoints
        runs = [] if found is None or feet is None else [rows[np.isfinite(feet[rows, 2])] for rows in found.paths]
        self.rows = max(runs, key=len, default=np.empty(0, int))
        if feet is None or len(self.rows) < 2:
            raise ValueError(
                "fly_frames needs a run's path of at least two checkpoints whose values on the plane are known, but "
                'the landscape has none; measure a run\'s PCA landscape, or go around its surface with move="orbit".'
            )
        if min(landscape.shape) < 2:
            raise ValueError(
                f"fly_frames needs at least two points along each axis, but the grid has {landscape.shape}."
            )
        self.sheet, self.feet, self.runs = sheet, feet, runs
        self.relief = Relief(*sheet.plane, scale.heights(sheet.measured), sheet.frame.matrix)
        (left, right), (bottom, top) = sheet.frame.limits(*sheet.plane)
        low, high = scale.tall.height_range
        self.corner = np.array([left, bottom, low])
        self.units = np.array([right - left, top - bottom, high - low]) / sheet.frame.box
        self.pieces = self._ground() + self._lines()
        self.marks = self._marks()

    def frames(self, count: int) -> Iterator[NDArray[Any]]:
        """Yields so many frames."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.collections import PolyCollection

        space: Any = self.sheet.ax
        figure = space.figure
        figure.set_layout_engine("none")
        space.set_position(_ROOM)
        space.set_axis_off()
        ratio = figure.bbox.width * _ROOM[2] / (figure.bbox.height * _ROOM[3])
        space.set(xlim=(-ratio, ratio), ylim=(-1, 1))
        said = self._write_around()
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        still = canvas.copy_from_bbox(figure.bbox)
        ground = space.add_collection(PolyCollection([], joinstyle="round", animated=True), autolim=False)
        marks = [
            (place, space.plot([], [], linestyle="none", zorder=3, animated=True)[0], style)
            for place, style in self.marks
        ]
        ball = space.plot([], [], linestyle="none", zorder=4, animated=True)[0]
        path, steps = self._followed()
        route = plan_route(path, steps, self._height, count)
        look = {"marker": "o", "color": "#ff4d6d", "markeredgecolor": "white", "markeredgewidth": 1.5}
        for eye, target, place, step in zip(route.eye, route.target, route.ball, route.steps, strict=True):
            viewer = Viewer(eye, target)
            show(ground, self.pieces, viewer, ratio)
            for at, line, style in [*marks, (place, ball, {**look, "markersize": _BALL / 0.45})]:
                self._put(line, at, style, viewer)
            said.set_text(self._text(float(step)))
            canvas.restore_region(still)
            for artist in (ground, *(line for _, line, _ in marks), ball, said):
                figure.draw_artist(artist)
            yield np.asarray(canvas.buffer_rgba())[:, :, :3].copy()

    def _boxed(self, places: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((places - self.corner) / self.units)

    def _height(self, x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        """Returns the ground's height, NaN in holes and beyond the grid, all in units of the box."""
        below = self.relief.heights_at(x * self.units[0] + self.corner[0], y * self.units[1] + self.corner[1])
        return np.asarray((below - self.corner[2]) / self.units[2])

    def _fine(self) -> NDArray[Any]:
        """Returns the places of a finer grid, shape (rows, columns, 3), as the axes of a surface have them."""
        axes = []
        for axis in self.sheet.plane:
            pieces = max(1, round(_CELLS / (len(axis) - 1)))
            axes.append(np.interp(np.arange(0, len(axis) - 1 + 0.5 / pieces, 1 / pieces), np.arange(len(axis)), axis))
        places = np.stack(self.sheet.frame.mesh(*axes))
        inside = np.stack(np.meshgrid(*axes))
        own = Relief(*self.sheet.plane, self.relief.heights)
        return np.concatenate([places, own.heights_at(*inside)[None]]).transpose(1, 2, 0)

    def _ground(self) -> Pieces:
        grid = self._fine()
        cells = np.stack([grid[:-1, :-1], grid[:-1, 1:], grid[1:, 1:], grid[1:, :-1]], axis=2)
        cells = cells[np.isfinite(cells[..., 2]).all(axis=2)]
        low, high = self.sheet.scale.height_range
        colors = self.sheet.colors((cells[..., 2].mean(axis=1) - low) / (high - low))
        # In the proportions of a cube, as the surface of a figure.
        sizes = np.array([*self.units[:2], self.units[2] * self.sheet.frame.box[2]])
        colors[:, :3] *= shade(cells, sizes)[:, None]
        return Pieces(self._boxed(cells), colors, np.full(len(cells), np.nan))

    def _lines(self) -> Pieces:
        """Returns contour lines and the runs' paths."""
        from contourpy import contour_generator

        grid, scale = self._fine(), self.sheet.scale
        generator = contour_generator(*np.moveaxis(np.ma.masked_invalid(grid), 2, 0))
        found = stretches(np.empty((0, 3)), "black", 0.0)
        for level in [] if scale.flat else scale.forward(scale.levels).tolist():
            for line in generator.lines(level):
                places = np.column_stack([np.asarray(line), np.full(len(line), level)])
                found += stretches(self._boxed(places), (0, 0, 0, 0.4), _LINE_WIDTH)
        for index, rows in enumerate(self.runs):
            color = PATH if index == 0 else RUN_COLORS[(index - 1) % len(RUN_COLORS)]
            over = self._boxed(self.relief.path_over(self.feet[rows])) + _LIFT_OF_PATH
            found += stretches(over, EDGE, 1.9 * _PATH_WIDTH) + stretches(over + _LIFT_OF_PATH / 4, color, _PATH_WIDTH)
        return found

    def _followed(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Returns places along the path that is followed, and how far each is, in checkpoints since the first."""
        steps = np.linspace(0, len(self.rows) - 1, 40 * (len(self.rows) - 1) + 1)
        return self._boxed(self.relief.along(self.feet[self.rows], steps)) + _LIFT_OF_PATH, steps

    def _marks(self) -> list[tuple[NDArray[Any], dict[str, Any]]]:
        """Returns the places and styles of checkpoints, starts, networks and the origin."""
        landscape, scale = self.sheet.landscape, self.sheet.scale
        marks = []
        for index, rows in enumerate(self.runs):
            color = PATH if index == 0 else RUN_COLORS[(index - 1) % len(RUN_COLORS)]
            dot = {"marker": "o", "color": color, "markeredgecolor": EDGE, "markersize": 5, "markeredgewidth": 0.6}
            marks += [(self.feet[row], dot) for row in rows[1:]]
            marks += [(self.feet[row], sized(START, 1.0)) for row in rows[:1]]
        marks += [
            (self.feet[row], sized(style, 1.2))
            for row, style in network_marks(landscape)
            if np.isfinite(self.feet[row, 2])
        ]
        point = landscape.origin
        height = float(scale.tall.heights(point.metrics.get(self.sheet.metric, np.nan)))
        place = np.array([*np.ravel(self.sheet.frame.place([point.x], [point.y or 0.0])), height])
        marks += [(place, sized(STAR, 1.2))] if np.isfinite(height) else []
        return [(self._boxed(place) + _LIFT_OF_PATH, style) for place, style in marks]

    def _put(self, line: Any, place: NDArray[Any], style: dict[str, Any], viewer: Viewer) -> None:
        """Draws a mark where the viewer sees it, smaller far away, and faint where the surface hides it."""
        from ..drawing.surface_line import FAINT

        (at,), (depth,) = viewer.project(place[None])
        eye = viewer.eye * self.units + self.corner
        projection = np.array([[1, 0, 0, -eye[0]], [0, 1, 0, -eye[1]], [0, 0, 0, 0], [0, 0, 1, -eye[2]]])
        hidden = bool(self.relief.hides((place * self.units + self.corner)[None], projection)[0])
        size = float(np.clip(_MARK / max(depth, 1e-3), 0.25, 1.6))
        line.set(**{**style, "markersize": style["markersize"] * size, "alpha": FAINT if hidden else 1.0})
        line.set_data([at[0]], [at[1]])

    def _write_around(self) -> Any:
        """Draws what does not move, and returns the text that changes."""
        from matplotlib.cm import ScalarMappable

        sheet, look = self.sheet, self.sheet.appearance
        figure: Any = sheet.ax.figure
        heading = title(sheet.landscape) if sheet.heading is None else sheet.heading
        figure.text(0.02, 0.965, heading, va="center", color=look.ink, fontsize=look.text_size)
        sheet.mappable = ScalarMappable(sheet.scale.norm(), sheet.colors)
        sheet.write_bar(sheet.ax, cax=figure.add_axes((0.915, 0.1, 0.014, 0.76)))
        return figure.text(
            _ROOM[2], 0.965, "", va="center", ha="right", color=look.ink, fontsize=look.text_size, animated=True
        )

    def _text(self, step: float) -> str:
        """Returns which checkpoint the ball passed last, and the value at its foot on the plane."""
        landscape = self.sheet.landscape
        found = landscape.checkpoints
        assert found is not None
        row = self.rows[int(step + 1e-9)]
        value = number_text(float(found.projected[self.sheet.metric][row]))
        run = plain(found.run_name(row), 32) if len(self.runs) > 1 else ""
        parts = [run, f"{plain(unit_of(landscape))} {found.number[row]}"]
        return ", ".join(
            [part for part in parts if part]
            + [f"{metric_text(landscape, self.sheet.metric)} {value} at its foot on the plane"]
        )


def _no_still(sheet: Sheet) -> None:
    """A flight has frames alone."""


_FLIGHT = Kind("fly_frames", _no_still, count=8, size=INCHES, heights=True)
