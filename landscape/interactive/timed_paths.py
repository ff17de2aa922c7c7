"""Long paths on the page and in a notebook's figure: which checkpoints have dots and numbers, where arrowheads lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.path import RAMPS, Marked, Times, marked, marked_text, numbered, path_times, pieces
from ..drawing.placement import along, arrow_places, most_telling, place_labels
from ..grid.checkpoints import CheckpointsData
from ..grid.data import LandscapeData

# About the size of a map on the page, in points of 1/72 inch: plotly moves nothing when the reader zooms.
MAP = 320.0
DOT = 4.0
_PIECES = 40
_HEAD = 13.0
# Of the numbers beside a path, in points: the size of the type, how far they stand from it, and the marks at its ends.
_TYPE, _GAP, _END = 8.0, 6.5, 6.0
# A map that is as high as it is wide has less than its usual width.
_SMALL = 0.65
# Of a chevron on a surface: how far its ends lie behind its tip, and beside the path.
_BACK, _ASIDE = 0.9, 0.55


def times_content(landscape: LandscapeData, places: dict[str, Callable[..., Any]]) -> dict[str, Any] | None:
    """Returns JSON values from which the page draws paths in the colours of time; None where all paths are short."""
    times = path_times([landscape])
    if times is None or landscape.y is None:
        return None
    found, _ = plane_path(landscape)
    runs = range(len(found.paths))
    drawn = {aspect: [map_marks(landscape, run, place) for run in runs] for aspect, place in places.items()}
    colours = [hex_colors(times, run, found.number[rows]) for run, rows in enumerate(found.paths)]
    return {
        "low": times.low,
        "high": times.high,
        "label": f"{times.unit} along the path",
        "ramps": [colour_scale(run) for run in runs],
        "pieces": [run_pieces(found.number[rows], colors) for rows, colors in zip(found.paths, colours, strict=True)],
        "colours": colours,
        "drawn": {
            aspect: [
                {
                    "dots": rows[dots.rows].tolist(),
                    "arrows": {
                        **dict(zip(("x", "y", "angle"), arrows[:, 1:].T.tolist(), strict=True)),
                        "color": arrow_colors(arrows, colors),
                    },
                    "chevrons": chevrons.tolist(),
                }
                for rows, colors, (dots, arrows, chevrons) in zip(found.paths, colours, each, strict=True)
            ]
            for aspect, each in drawn.items()
        },
        "numbers": {
            aspect: path_numbers(landscape, place, [dots for dots, _, _ in drawn[aspect]])
            for aspect, place in places.items()
        },
        "note": {aspect: marked_text([dots for dots, _, _ in each]) for aspect, each in drawn.items()},
    }


def colour_scale(run: int) -> list[list[Any]]:
    """Returns a run's colours of time, each with its place from 0 to 1, as plotly takes them."""
    ramp = RAMPS[run % len(RAMPS)]
    return [[place / (len(ramp) - 1), color] for place, color in enumerate(ramp)]


def plane_path(landscape: LandscapeData) -> tuple[CheckpointsData, NDArray[np.float64]]:
    """Returns the checkpoints of a plane, and their y."""
    found = landscape.checkpoints
    assert found is not None
    assert found.y is not None
    return found, found.y


def map_marks(
    landscape: LandscapeData, run: int, place: Callable[..., Any]
) -> tuple[Marked, NDArray[np.float64], NDArray[np.float64]]:
    """Returns a run's dots, its arrowheads on a map, and the chevrons on a surface; ``place`` is in 1/72 inch."""
    # Of each arrowhead: place along the path, x, y and angle in degrees (clockwise from up), shape (k, 4). Of each
    # chevron: its ends and its tip in the plane's coordinates, shape (k, 3, 2).
    found, up_rows = plane_path(landscape)
    rows = found.paths[run]
    across, up = found.x[rows], up_rows[rows]
    points = np.column_stack(place(across, up))
    dots = marked(points, found.number[rows], DOT)
    arrows = arrow_places(points, _HEAD)
    x, y = (np.interp(arrows[:, 0], np.arange(len(rows)), column) for column in (across, up))
    angles = arrows[:, 3]
    # On the page an affine map's inverse is its own columns', which two steps of the plane give.
    origin, *steps = (np.array(place(*at)) for at in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)))
    back = np.linalg.inv(np.column_stack([step - origin for step in steps]))
    way, aside = (np.column_stack([np.cos(turn), np.sin(turn)]) for turn in (angles, angles + np.pi / 2))
    ends = [-_BACK * way + side * _ASIDE * aside for side in (1, -1)]
    tip = np.column_stack([x, y])
    chevrons = np.stack([tip + _HEAD * ends[0] @ back.T, tip, tip + _HEAD * ends[1] @ back.T], axis=1)
    return dots, np.column_stack([arrows[:, 0], x, y, 90 - np.degrees(angles)]), chevrons


def path_numbers(
    landscape: LandscapeData, place: Callable[..., Any], dots: Sequence[Marked]
) -> list[tuple[int, float, float]]:
    """Returns the rows of checkpoints whose number has room on a map, with the way to it in 1/96 inch, right and up."""
    (found, up), axis = plane_path(landscape), landscape.y
    assert axis is not None
    # The hues and names of several runs need the room.
    if len(found.paths) != 1:
        return []
    (rows,) = found.paths

    def on_map(x: Any, y: Any) -> NDArray[np.float64]:
        return _SMALL * np.column_stack(place(np.asarray(x, np.float64), np.asarray(y, np.float64)))

    points, across = on_map(found.x, up), landscape.x[[0, -1]]
    corners = np.vstack([on_map(across, axis[[end, end]]) for end in (0, -1)])
    # The profile's line is at first the one through the origin.
    lines = [points[rows], on_map(across, [landscape.origin.y or 0.0] * 2)]
    clear = np.vstack([along(line, step=1.5) for line in lines])
    frame = np.concatenate([corners.min(axis=0), corners.max(axis=0)])
    sizes = np.array([[0.62 * _TYPE * len(str(number)) + 2, _TYPE + 2] for number in found.number.tolist()])
    ends = rows[[0, -1]].tolist()
    marks = np.vstack([points[[*ends, *found.networks]], on_map(landscape.origin.x, landscape.origin.y or 0.0)])
    full = np.hstack([marks - _END, marks + _END])
    round_ones = rows[numbered(found.number[rows], dots[0].rows)]
    inner = [row for row in round_ones[most_telling(len(round_ones))].tolist() if row not in ends]
    # The mark of an end is larger than a dot: nobody takes its number for that of a checkpoint nearby.
    alone = np.full_like(points, np.nan)
    alone[ends] = points[ends]
    spots: dict[int, tuple[float, float]] = {}
    for shown, order in ((alone, ends), (points, inner)):
        spots |= place_labels(shown, sizes, order, frame, full, gap=_GAP, clear=clear)
        full = np.vstack([full, *([*(spots[row] - sizes[row] / 2), *(spots[row] + sizes[row] / 2)] for row in spots)])
    return [(row, *(np.subtract(spot, points[row]) * 96 / 72).round(1).tolist()) for row, spot in spots.items()]


def run_pieces(numbers: NDArray[Any], colors: Sequence[str]) -> list[tuple[int, int, str]]:
    """Returns the first and last checkpoint, both included, and the colour of each piece of a path that has its own."""
    ends = [(piece.start, piece.stop - 1) for piece, _ in pieces(numbers, _PIECES)]
    return [(first, last, colors[(first + last) // 2]) for first, last in ends]


def arrow_colors(arrows: NDArray[np.float64], colors: Sequence[str]) -> list[str]:
    return [colors[each] for each in arrows[:, 0].round().astype(int)]


def hex_colors(times: Times, run: int, numbers: Any) -> list[str]:
    return [f"#{bytes(color).hex()}" for color in np.round(255 * times.colors(run, numbers)).astype(np.uint8)]


def map_place(landscape: LandscapeData, place: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what takes the plane's coordinates to a map that is ``MAP`` points long."""
    assert landscape.y is not None
    corners = np.array(np.meshgrid(landscape.x[[0, -1]], landscape.y[[0, -1]])).reshape(2, -1)
    # A plane of one point has no length.
    size = MAP / (max(float(np.ptp(axis)) for axis in place(*corners)) or 1.0)
    return lambda x, y: tuple(size * np.asarray(axis) for axis in place(np.asarray(x), np.asarray(y)))
