"""Moving pictures, frame by frame: the optimizer walks over its landscape, or the camera goes around a surface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import UInt8
from collectors.validation import check_choice, check_float, check_int

from ...drawing.appearance import appearance_of
from ...drawing.camera import Camera, best_camera
from ...drawing.canvas import check_size, new_figure
from ...drawing.fitting import settle
from ...drawing.look import Look, check_dimensions, check_look
from ...drawing.occlusion import Relief
from ...drawing.path import STAR, halo, network_marks, run_colors, sized, write_beside
from ...drawing.placement import interpolated
from ...drawing.sheet import Sheet, begin, set_value_axis, shared_scale
from ...drawing.texts import metric_text, plain, unit_of
from ...grid.checkpoints import CheckpointsData
from ...grid.data import LandscapeData
from ...scales.choosing import choose_scale
from ...scales.frame import choose_frame
from ..multiples import PLANE_KINDS, check_landscapes, distinct_titles
from ..surface3d import SURFACE, draw_surface

INCHES = (9.6, 5.4)
"""Of a moving picture: at 200 dots per inch it has 1920 x 1080 pixels."""
# The axes leave room for what stands beside them at so many places of the way.
PLACES = 12
# Pieces of the way since the last checkpoint.
_PIECES = 16


@dataclass(eq=False)
class _Walker:
    """One run: ``places``, shape (n, 2) or (n, 3), are NaN where a height is unknown; ``ball`` and ``way`` move."""

    path: CheckpointsData
    places: NDArray[Any]
    color: str
    way: Any = None
    ball: Any = None
    at: float = 0.0  # in checkpoints since its first


def walk_frames(
    landscape: LandscapeData | Sequence[LandscapeData],
    kind: str = "contour",
    *,
    turn: float = 0.0,
    seconds: float = 6.0,
    rate: int = 30,
    dpi: int = 100,
    **look: Unpack[Look],
) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """Yields pictures of the optimizer walking over the landscape, red, green and blue, shape (height, width, 3).

    Between two checkpoints it walks in a straight line at constant speed. The curves beside it, or below a wide plane,
    are the checkpoints' own metric and, dashed, that of their feet on the plane, at which the path is drawn. Of several
    runs, path and curves have the same colour.

    Several landscapes stand side by side on one scale, with their curves below, and walk on one clock: in each frame
    all are at the same epoch or step, and who has ended waits. Where one counts epochs and another one steps, each has
    gone the same share of its way.

    Args:
        landscape: a plane with a run's path of at least two checkpoints, or a list of such. Several runs walk at once,
            each at its place at that epoch or step; one that has ended waits at its end.
        kind: what it walks over: "contour", "lines", "heatmap" or "surface".
        turn: how far the camera goes around a surface meanwhile, in degrees; 0 leaves it where it is.
        seconds: how long the walk takes.
        rate: frames per second.
        dpi: dots per inch; a frame is 9.6 x 5.4 inches, or of the look's size.
        **look: metric, levels, scale, colormap, clip, theme, style, aspect, title, size, camera; see ``Look``.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: a landscape is a line or has no path, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    chosen = PLANE_KINDS[check_choice("kind", kind, tuple(PLANE_KINDS))]
    count = frame_count(seconds, rate)
    check_int("dpi", dpi, minimum=20)
    check_look("walk_frames", look)
    if not look.get("trajectory", True):
        raise ValueError('trajectory=False must be left out for an animation of the path; move="orbit" needs none.')
    if check_float("turn", turn) and kind != "surface":
        raise ValueError(f'turn must be 0 for kind="{kind}", which is flat; kind="surface" can be turned.')
    each = check_landscapes(landscape)
    several = len(each) > 1
    if turn and several:
        raise ValueError("turn must be 0 for several landscapes, whose cameras stay; one alone can be turned.")
    walks = [_paths(item, f"landscape[{index}]" if several else "the landscape") for index, item in enumerate(each)]
    # What all count, such as epochs, is their clock.
    alike = several and len({unit_of(item) for item in each}) == 1
    clock = np.unique(np.concatenate([found.number[row] for found, rows in walks for row in rows])) if alike else None
    size = check_size(look.get("size")) or INCHES
    options: Look = {**look, "scale": shared_scale(chosen, each, look), "levels": None, "clip": None}
    options |= {"trajectory": False, "size": None}
    titled = several and look.get("title") is None
    headings = [{"heading": name} for name in distinct_titles(each)] if titled else [{}] * len(each)
    solid = chosen.projection is not None
    with appearance_of(options, None).applied():
        figure = new_figure(size, "constrained")
        # The curve of a single landscape is beside it, those of several and that of a wide plane are below.
        wide = not solid and choose_frame(each[0], look.get("aspect", "equal")).bar_below(paper=False)
        below: dict[str, Any] = {"nrows": 2, "ncols": len(each), "height_ratios": (1.9, 1)}
        side: dict[str, Any] = {"ncols": 2, "width_ratios": (1.9 if solid else 1.25, 1)}
        grid = figure.add_gridspec(**below if several or wide else side)
        sheets = []
        for index, (item, heading) in enumerate(zip(each, headings, strict=True)):
            axes: Any = figure.add_subplot(grid[index], projection=chosen.projection)
            with begin(chosen, item, axes, options, furniture=False, avoid_path=True, **heading) as sheet:
                chosen.draw(sheet)
                sheets.append(sheet)
        # Its own legend would take the room that the curve needs.
        first = sheets[0]
        beside = [sheet.ax for sheet in sheets] if several else first.ax
        first.write_bar(beside, pad=0.08 if solid else 0.02, shrink=0.7 if solid else first.share)
        stages = [
            _Stage(*on, grid[len(each) + index], clock) for index, on in enumerate(zip(sheets, walks, strict=True))
        ]
        values = [line.get_ydata() for stage in stages for _, line, _ in stage.curves]
        for stage in stages:
            stage.finish(np.concatenate(values or [np.empty(0)]))
        camera = first.camera or best_camera(each[0], first.metric, first.scale, first.frame)
        cameras = [camera.turned(degrees) for degrees in turns(turn, count)] if turn else []
        yield from _stages_frames(stages, count, cameras, dpi)


def _paths(landscape: LandscapeData, called: str) -> tuple[CheckpointsData, list[NDArray[Any]]]:
    """Returns the checkpoints, and the rows of each run that has at least two."""
    check_dimensions("walk_frames", landscape)
    found = landscape.checkpoints
    paths = [rows for rows in ([] if found is None else found.paths) if len(rows) > 1]
    if found is None or not paths:
        raise ValueError(
            f"walk_frames needs a run's path of at least two checkpoints, but {called} has none; measure a run's "
            'PCA landscape, draw a still picture, or go around its surface with move="orbit".'
        )
    return found, paths


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


class _Stage:
    """Draws what does not move once; each frame draws the walkers over a copy of it."""

    def __init__(
        self, sheet: Sheet, walks: tuple[CheckpointsData, list[NDArray[Any]]], place: Any, clock: NDArray[Any] | None
    ) -> None:
        found, paths = walks
        self.sheet = sheet
        self.figure: Any = sheet.ax.figure
        self.single, solid = len(paths) == 1, sheet.ax.name == "3d"
        heights = sheet.scale.heights(sheet.measured)
        self.relief = Relief(*sheet.plane, heights, sheet.frame.matrix) if solid else None
        feet = self._places(found.x, found.y, found.projected.get(sheet.metric, np.full(len(found.x), np.nan)))
        every = zip(found.paths, run_colors(sheet.landscape), strict=True)
        colors = ["white"] if self.single and not solid else [color for rows, color in every if len(rows) > 1]
        self.walkers = [_Walker(found.part(rows), feet[rows], color) for rows, color in zip(paths, colors, strict=True)]
        # A run that is alone takes equally long from each checkpoint to the next.
        self.own_pace = self.single and clock is None
        own = found.number[paths[0]] if self.single else np.unique(found.number[np.concatenate(paths)])
        self.numbers = own if clock is None else clock
        self.curve = self.figure.add_subplot(place)
        self.unit = plain(unit_of(sheet.landscape))
        self.entries: list[Any] = []
        self._draw_still(found, feet)
        self.curves = self._draw_curves()

    def _places(self, x: Any, y: Any, values: Any) -> NDArray[Any]:
        heights = [] if self.relief is None else [self.sheet.scale.tall.heights(values)]
        return np.column_stack([*self.sheet.frame.place(x, y), *heights])

    def _draw_still(self, found: CheckpointsData, feet: NDArray[Any]) -> None:
        for walker in self.walkers:
            faint = {"color": walker.color, "linewidth": 1.0, "alpha": 0.45, "zorder": 4, "path_effects": halo(1.8)}
            self._add_line(self._way(walker.places), **faint)
        point = self.sheet.landscape.origin
        star = self._places([point.x], [point.y or 0.0], [point.metrics.get(self.sheet.metric, np.nan)])
        networks = network_marks(self.sheet.landscape)
        marks = [(plain(found.name[row], 24), feet[[row]], style) for row, style in networks]
        for name, place, style in [("", star, STAR), *marks]:
            if np.isfinite(place).all():
                self._add_line(place, linestyle="none", zorder=5, **sized(style, 0.9))
                if name and self.relief is None:
                    look: Any = {"color": "white", "zorder": 5, "path_effects": halo(2), "annotation_clip": True}
                    write_beside(self.sheet.ax, name, place[0], (0, 7), 8, va="baseline", **look)

    def _way(self, places: NDArray[Any]) -> NDArray[Any]:
        return places if self.relief is None else self.relief.path_over(places)

    def _add_line(self, places: NDArray[Any], **style: Any) -> Any:
        if self.relief is None:
            return self.sheet.ax.plot(*places.T, **style)[0]
        from ...drawing.surface_line import SurfaceLine

        return self.sheet.ax.add_line(SurfaceLine(places, self.relief, **style))

    def _draw_curves(self) -> list[tuple[_Walker, Any, Any]]:
        """Returns a walker, its curve and the dot on it, for each curve."""
        metric, look, ax = self.sheet.metric, self.sheet.appearance, self.curve
        curves, foot = [], "at its foot on the plane"
        for index, walker in enumerate(self.walkers):
            path = walker.path
            colors, labels = look.series[:2], ["at the checkpoint", foot]
            if not self.single:
                colors, labels = (walker.color,) * 2, [plain(path.run_name(0), 32) or f"run {index + 1}", ""]
            each = (path.metrics.get(metric), path.projected.get(metric))
            for values, stroke, color, label in zip(each, ("-", "--"), colors, labels, strict=True):
                if values is not None and np.isfinite(values).any():
                    (line,) = ax.plot(path.number, values, stroke, color=color, linewidth=1.6, label=label)
                    self.entries += [line] if label else []
                    style: Any = {"color": color, "markeredgecolor": look.page, "markersize": 8}
                    curves.append((walker, line, ax.plot([], [], "o", animated=True, **style)[0]))
        if not self.single and curves:
            self.entries += ax.plot([], [], "--", color=look.soft, linewidth=1.6, label=foot)
        return curves

    def finish(self, values: NDArray[Any]) -> None:
        """Gives the curves axes that hold the values, which are those of all stages, and makes what moves."""
        metric, look, ax = self.sheet.metric, self.sheet.appearance, self.curve
        scale = choose_scale(values, count=8, metric=metric)
        called = metric_text(self.sheet.landscape, metric)
        set_value_axis(ax, scale, called if self.curves else f"no {called} measured on the path yet")
        for _, line, _ in self.curves:
            line.set_ydata(scale.held(line.get_ydata()))
        margin = 0.03 * max(float(np.ptp(self.numbers)), 1.0)
        ax.set_xlim(self.numbers.min() - margin, self.numbers.max() + margin)
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.set_xlabel(self.unit)
        ax.grid(alpha=look.grid_alpha)
        ax.spines[["top", "right"]].set_visible(False)
        if self.curves and look.legend:
            ax.legend(handles=self.entries, frameon=False, loc="best")
        for walker in self.walkers:
            walker.way = self._add_line(
                walker.places[:1], color=walker.color, linewidth=2.0, zorder=6, animated=True, path_effects=halo(3.6)
            )
            walker.ball = self._add_line(
                walker.places[:1], linestyle="none", marker="o", color="#ff4d6d" if self.single else walker.color,
                markeredgecolor="white", markersize=10, markeredgewidth=1.5, zorder=7, animated=True,
                path_effects=halo(2.5),
            )  # fmt: skip
        self.cursor: Any = self.curve.axvline(self.numbers[0], color=look.soft, linewidth=1.0, animated=True)
        # With a text, so that there is room for it.
        self.text: Any = self.curve.set_title(f"{self.unit} {self.numbers[-1]}", animated=True)

    def move(self, moment: float) -> list[Any]:
        """Goes to a place among ``numbers``; returns what has moved."""
        number = float(np.interp(moment, np.arange(len(self.numbers)), self.numbers))
        for walker in self.walkers:
            numbers = walker.path.number
            # Before it begins and after its end it waits.
            walker.at = moment if self.own_pace else float(np.interp(number, numbers, np.arange(len(numbers))))
            places, at, last = walker.places, walker.at, int(walker.at)
            if self.relief is None:
                rest = interpolated(places, [at])
            else:  # the way over the surface since the last checkpoint
                rest = self.relief.along(places, np.linspace(last, at, _PIECES))
            for line, way in ((walker.way, np.vstack([self._way(places[: last + 1]), rest])), (walker.ball, rest[-1:])):
                (line.set_data if self.relief is None else line.set_data_3d)(*way.T)
        self.cursor.set_xdata([number, number])
        for walker, line, dot in self.curves:
            dot.set_data(*interpolated(line.get_xydata(), walker.at)[:, None])
        name = plain(self.walkers[0].path.run_name(0), 32) if self.single else ""
        self.text.set_text(", ".join(part for part in (name, f"{self.unit} {self.numbers[int(moment)]}") if part))
        moving = [artist for walker in self.walkers for artist in (walker.way, walker.ball)]
        return [*moving, self.cursor, *(dot for *_, dot in self.curves), self.text]


def _stages_frames(stages: Sequence[_Stage], count: int, cameras: Sequence[Camera], dpi: int) -> Iterator[NDArray[Any]]:
    """Yields frames in which all go from their first number to their last; without ``cameras`` the view stays."""
    figure = stages[0].figure
    figure.set_dpi(dpi)
    settle(figure, cameras[:: max(1, len(cameras) // PLACES)], grow=False)
    for stage in stages:
        stage.sheet.write_late()
    # The layout engine would place the others anew where one is hidden.
    figure.set_layout_engine("none")
    moments = [np.linspace(0, len(stage.numbers) - 1, count) for stage in stages]

    def move(frame: int) -> list[Any]:
        pairs = zip(stages, moments, strict=True)
        return [artist for stage, at in pairs for artist in stage.move(float(at[frame]))]

    yield from frames_from(stages[0].sheet.ax, cameras or [None] * count, move)
