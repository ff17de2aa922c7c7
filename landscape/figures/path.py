"""The trajectory and the convergence point on a contour plot, and which labels beside them have room."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .texts import plain

if TYPE_CHECKING:
    from jaxtyping import Bool, Float64
    from matplotlib.axes import Axes

    from ..file.data import LandscapeData, TrajectoryData


Place = Callable[[Any, Any], tuple[NDArray[Any], NDArray[Any]]]
PATH = "#e5383b"
EDGE = "0.1"
START: dict[str, Any] = {"marker": "s", "color": "#4cc9f0", "markeredgecolor": EDGE, "markersize": 8}
END: dict[str, Any] = {
    "marker": "o",
    "color": "none",
    "markeredgecolor": "#ff4d6d",
    "markersize": 15,
    "markeredgewidth": 2,
}
STAR: dict[str, Any] = {"marker": "*", "color": "#ffd60a", "markeredgecolor": EDGE, "markersize": 13}
# Where a label may lie beside its point, the best place first.
_DIRECTIONS = ((0, 1), (1, 0), (-1, 0), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_MOST_NUMBERS = 32
_MANY_CHECKPOINTS = 60


def halo(width: float, color: str = EDGE) -> list[Any]:
    """Returns the effect that keeps a light line or text readable on any colour."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=width, foreground=color)]


def sized(style: dict[str, Any], factor: float) -> dict[str, Any]:
    """Returns a mark of another size."""
    sizes: dict[str, Any] = {name: factor * style[name] for name in ("markersize", "markeredgewidth") if name in style}
    return {"markeredgewidth": factor, **style, **sizes}


@dataclass(frozen=True)
class Ink:
    """Colours that stand out from what lies under a path.

    Attributes:
        line: of the path and its numbers.
        around: the rim that keeps them readable.
        face: of the checkpoints.
        edge: around the checkpoints.
    """

    line: str = "white"
    around: str = EDGE
    face: str = "white"
    edge: str = EDGE


def draw_path(ax: Axes, landscape: LandscapeData, place: Place, ink: Ink, factor: float = 1.0) -> list[Any]:
    """Draws the checkpoints' path with start and end, and the convergence point as a star.

    Args:
        ax: where.
        landscape: whose path it is.
        place: from the plane's coordinates to the picture's.
        ink: its colours.
        factor: by how much marks and lines are smaller than on a screen.

    Returns:
        The legend's entries.
    """
    entries = []
    trajectory, unit = landscape.trajectory, plain(landscape.attributes.get("unit") or "checkpoint", 16)
    if trajectory is not None and trajectory.y is not None and len(trajectory.number):
        x, y = place(trajectory.x, trajectory.y)
        outside = int((~_inside(ax, x, y)).sum())
        size = 3.5 if len(x) <= _MANY_CHECKPOINTS else 1.5
        label = "trajectory" + (f" ({outside} of {len(x)} outside)" if outside else "")
        entries += ax.plot(
            x, y, color=ink.line, linewidth=1.4 * factor, marker="o", markersize=size * factor, label=label, zorder=4,
            markeredgewidth=0.7 * factor, markerfacecolor=ink.face, markeredgecolor=ink.edge,
            path_effects=halo(2.8 * factor, ink.around),
        )  # fmt: skip
        for at, style, name in ((0, START, "start"), (-1, END, "end")):
            text = f"{name} ({unit} {trajectory.number[at]})"
            where = slice(at, at + 1 or None)
            entries += ax.plot(x[where], y[where], linestyle="none", label=text, zorder=6, **sized(style, factor))
    point = landscape.convergence
    if point.y is not None:
        star = sized(STAR, factor)
        entries += ax.plot(*place([point.x], [point.y]), linestyle="none", label="convergence point", zorder=5, **star)
    return entries


def annotate(
    ax: Axes,
    trajectory: TrajectoryData,
    place: Place,
    taken: NDArray[Any],
    ink: Ink,
    size: float = 8.0,
    factor: float = 1.0,
) -> None:
    """Writes the checkpoints' numbers beside as many of them as have room.

    Args:
        ax: axes in their final place.
        trajectory: n checkpoints of a plane.
        place: from the plane's coordinates to the picture's.
        taken: boxes (left, bottom, right, top) in pixels that must stay free.
        ink: colours of the type.
        size: of the type, in points.
        factor: by how much marks are smaller than on a screen.
    """
    if trajectory.y is None or not len(trajectory.number):
        return
    places = np.column_stack(place(trajectory.x, trajectory.y))
    keep = np.flatnonzero(_inside(ax, *places.T))
    if not len(keep):
        return
    scale = 72 / ax.figure.dpi
    points = np.asarray(ax.transData.transform(places[keep])) * scale
    order = most_telling(len(keep))[:_MOST_NUMBERS]
    texts = [str(trajectory.number[index]) for index in keep]
    sizes = np.array([[0.62 * size * len(text) + 2, size + 2.0] for text in texts])
    frame = np.array(ax.get_window_extent().extents) * scale
    ends = np.array([END["markersize"], START["markersize"], STAR["markersize"]]) * factor / 2
    marks = [*points[[-1, 0]], np.asarray(ax.transData.transform((0.0, 0.0))) * scale]
    boxes = [[*(mark - half), *(mark + half)] for mark, half in zip(marks, ends, strict=True)]
    blocked = np.vstack([np.array(taken).reshape(-1, 4) * scale, boxes])
    found = place_labels(points, sizes, order, frame, blocked, gap=6.0 * factor)
    for index, centre in found.items():
        ax.annotate(
            texts[index], places[keep][index], xytext=np.array(centre) - points[index], textcoords="offset points",
            ha="center", va="center", fontsize=size, color=ink.line, zorder=7,
            path_effects=halo(0.25 * size, ink.around),
        )  # fmt: skip


def with_path(landscape: LandscapeData, metric: str, measured: NDArray[Any]) -> NDArray[Any]:
    """Returns all values that a height shows: the grid's, the projected path's and the origin's, shape (k,).

    The origin often lies lower than every grid point.
    """
    path, origin = landscape.trajectory, landscape.convergence.metrics.get(metric, np.nan)
    projected = np.empty(0) if path is None else path.projected.get(metric, np.empty(0))
    return np.concatenate([measured.ravel(), projected, [origin]])


def path_pixels(ax: Axes, landscape: LandscapeData, place: Place) -> NDArray[Any]:
    """Returns boxes in pixels around the line of the path, its checkpoints and the convergence point."""
    pieces = [np.column_stack(place([landscape.convergence.x], [landscape.convergence.y or 0.0]))]
    trajectory = landscape.trajectory
    if trajectory is not None and trajectory.y is not None and len(trajectory.number):
        pieces.append(np.column_stack(place(trajectory.x, trajectory.y)))
    half = 4 * ax.figure.dpi / 72
    boxes = []
    for piece in pieces:
        pixels = np.asarray(ax.transData.transform(piece))
        finite = pixels[np.isfinite(pixels).all(axis=1)]
        if len(finite) > 1:
            steps = np.linspace(0, 1, 16)[:, None, None]
            finite = (finite[:-1] + steps * (finite[1:] - finite[:-1])).reshape(-1, 2)
        boxes.append(np.hstack([finite - half, finite + half]))
    return np.vstack(boxes)


def free(boxes: NDArray[Any], taken: NDArray[Any]) -> list[int]:
    """Returns which boxes to keep so that none covers another kept one or a taken one, earlier ones first."""
    kept: list[int] = []
    for index, box in enumerate(boxes):
        if not overlaps(box, np.vstack([taken.reshape(-1, 4), boxes[kept].reshape(-1, 4)])).any():
            kept.append(index)
    return kept


def place_labels(
    points: Float64[np.ndarray, "n 2"],
    sizes: Float64[np.ndarray, "n 2"],
    order: Sequence[int],
    frame: Float64[np.ndarray, " 4"],
    taken: Float64[np.ndarray, "m 4"],
    gap: float,
) -> dict[int, tuple[float, float]]:
    """Chooses which points get a label, and where.

    Args:
        points: what is labelled, in points of 1/72 inch; a label also keeps clear of every one of them, and of the
            line that joins them in their order.
        sizes: width and height of each label.
        order: indices of the points to label, the most important first.
        frame: left, bottom, right, top of the room there is.
        taken: boxes (left, bottom, right, top) that must stay free.
        gap: distance between a point and its label.

    Returns:
        Index to the label's centre, for those that found a place.
    """
    boxes = np.array(taken, np.float64).reshape(-1, 4)
    path = _along(points, step=1.5)
    placed: dict[int, tuple[float, float]] = {}
    for index in order:
        width, height = sizes[index]
        for right, up in _DIRECTIONS:
            x = points[index, 0] + right * (gap + width / 2)
            y = points[index, 1] + up * (gap + height / 2)
            box = np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2])
            inside = (box[:2] >= frame[:2]).all() and (box[2:] <= frame[2:]).all()
            if inside and not overlaps(box, boxes).any() and not contains(box, path).any():
                boxes = np.vstack([boxes, box])
                placed[index] = (float(x), float(y))
                break
    return placed


def overlaps(box: Float64[np.ndarray, " 4"], boxes: Float64[np.ndarray, "m 4"]) -> Bool[np.ndarray, " m"]:
    """Returns which of the boxes (left, bottom, right, top) share room with one."""
    return np.asarray((box[:2] < boxes[:, 2:]).all(axis=1) & (box[2:] > boxes[:, :2]).all(axis=1))


def contains(box: Float64[np.ndarray, " 4"], points: Float64[np.ndarray, "n 2"]) -> Bool[np.ndarray, " n"]:
    """Returns which of the points lie in a box."""
    return np.asarray(((points > box[:2]) & (points < box[2:])).all(axis=1))


def most_telling(count: int) -> list[int]:
    """Returns 0 to count - 1 with the ends first, then what halves the rest, again and again."""
    order = [0, count - 1]
    stride = count
    while stride > 1:
        stride = (stride + 1) // 2
        order += range(0, count, stride)
    return list(dict.fromkeys(index for index in order if 0 <= index < count))


def _inside(ax: Axes, x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    return np.asarray((x >= left) & (x <= right) & (y >= bottom) & (y <= top))


def _along(points: NDArray[Any], step: float) -> NDArray[Any]:
    if len(points) < 2:
        return points
    pieces = []
    for start, end in itertools.pairwise(points):
        count = int(min(np.hypot(*(end - start)) // step + 1, 200))
        pieces.append(start + (end - start) * np.linspace(0, 1, count, endpoint=False)[:, None])
    return np.vstack([*pieces, points[-1:]])
