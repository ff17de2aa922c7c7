"""Keeps all text inside a figure and apart, which matplotlib's layout does not: wraps lines, leaves out numbers."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .camera import Camera, place_ticks
from .path import TIME_BAR, strips_height

# Between what is written and the figure's edge, and between two titles, in points.
_MARGIN = 4.0
_ROUNDS = 3
# Type is up to this much wider at other resolutions than at the one at which it is measured.
_HINTING = 0.96
# Of the width: the least heights of a box and of a curve, and the greatest of a plane drawn to scale.
_LEAST_BOX = 0.66
_LEAST_SHAPE = 0.45
_MOST_HEIGHT = 1.2
# Of the shorter side of a picture beside others, in inches.
_LEAST_SIDE = 0.8
# By so much a figure of several pictures gets higher where they have no room at all.
_MORE = 1.5
# A figure as wide as a slide, in inches, is no higher than one.
_SLIDE = (10.0, 7.0)


def settle(figure: Any, cameras: Sequence[Camera] = (), *, grow: bool = True, trim: bool = False) -> bool:
    """Lays a figure out so that nothing leaves it or overlaps; False says that one of several pictures is too small."""
    # It may grow until its pictures have room, or be trimmed by the height that a single one leaves empty.
    # What is placed in pixels finds the axes in their final place then, where they stay for all cameras.
    several = grow and len(_mains(figure)) > 1
    for axis in _number_axes(figure) if several else ():
        # Keeps how many numbers an axis has, which matplotlib counts by the settings at the time of drawing.
        axis.set_tick_params(labelsize=axis.get_major_ticks(1)[0].label1.get_fontsize())
    for legend in figure.legends:
        texts = legend.get_texts()
        room = _room_of(legend) - _length(legend, 0) + max(_length(text, 0) for text in texts)
        for text in texts:
            _wrap(text, room, 0)
    for _ in range(_ROUNDS):
        _lay_out_with_room(figure, cameras, whole=several, grow=grow)
        wrapped = _wrap_texts(figure)
        if wrapped:
            _lay_out(figure, cameras, whole=several)
        if not (grow and _grow(figure)) and not wrapped:
            break
    else:
        _lay_out(figure, cameras, whole=several)
    if not several:
        if trim and (spare := _empty_height(figure)) > _pixels(figure, _MARGIN):
            figure.set_figheight(figure.get_figheight() - spare / figure.dpi)
            settle(figure, cameras, grow=grow)
        return True
    space_numbers(figure)
    _lay_out(figure, cameras, whole=True)
    return min(shorter_side(ax) for ax in _mains(figure)) >= _LEAST_SIDE


def fits_across(legend: Any, columns: int, *, paper: bool) -> bool:
    """Returns whether a legend is no wider than its figure, after breaking its long entries, on paper as needed."""
    room = _room_of(legend)
    breaks = columns > 1 and _length(legend, 0) > room
    for text in sorted(legend.get_texts(), key=lambda text: _length(text, 0), reverse=True):
        if breaks and _length(text, 0) > 0.75 * room / columns:
            text.set_text(text.get_text().replace(" (", "\n("))
            if paper:
                _wrap(text, 0.75 * room / columns, 0)
                breaks = _length(legend, 0) > room
    return _length(legend, 0) <= room


def _empty_height(figure: Any) -> float:
    """Returns how much of a figure's height is above and below all that is drawn, in pixels, without margins."""
    parts = [drawn.get_tightbbox() for drawn in (*figure.axes, *figure.legends)]
    spare = figure.bbox.height - max(part.y1 for part in parts) + min(part.y0 for part in parts)
    return float(spare - 2 * _pixels(figure, _MARGIN))


@contextlib.contextmanager
def room_for_axes(figure: Any) -> Iterator[None]:
    """Refuses a figure that is too small for its axes, which matplotlib would draw with a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "constrained_layout not applied because axes sizes collapsed")
        try:
            yield
        except UserWarning as error:
            if "axes sizes collapsed" not in str(error):
                raise
            width, height = figure.get_size_inches()
            raise ValueError(
                "size must leave room for the axes beside their labels and legend, which "
                f"({width:.3g}, {height:.3g}) inches do not. Choose a larger size, such as (6, 4)."
            ) from None


def _lay_out_with_room(figure: Any, cameras: Sequence[Camera], *, whole: bool, grow: bool) -> None:
    """Lays a figure out; one that may grow is made higher until its axes have room beside a long legend."""
    height = figure.get_figheight()
    for _ in range(_ROUNDS if grow else 0):
        with contextlib.suppress(ValueError):
            return _lay_out(figure, cameras, whole=whole)
        figure.set_figheight(_MORE * figure.get_figheight())
    figure.set_figheight(height)
    return _lay_out(figure, cameras, whole=whole)


def _lay_out(figure: Any, cameras: Sequence[Camera], *, whole: bool) -> None:
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    engine, mains = figure.get_layout_engine(), _mains(figure)
    if isinstance(engine, ConstrainedLayoutEngine):
        for ax in (ax for ax in mains if ax.name == "3d"):
            place_ticks(ax)
        # Pictures fill their places meanwhile, so that titles and colour bars are placed beside these.
        scaled = [ax for ax in mains if whole and ax.get_aspect() != "auto"]
        for ax in scaled:
            ax.set_aspect("auto")
        with room_for_axes(figure):
            engine.execute(figure)
        for ax in scaled:
            ax.set_aspect("equal", adjustable="box")
    if all(ax.name == "3d" for ax in mains):
        # The engine misjudges such axes, and leaves a single one half the page.
        figure.set_layout_engine("none")
        _place_time_bars(figure, mains)
        for ax in mains:
            _place_box(figure, ax, cameras)


def _place_time_bars(figure: Any, mains: list[Any]) -> None:
    """Puts the bar of a path's time over the legend; of several, each below its own column of boxes."""
    bars = [ax for ax in figure.axes if ax.get_label() == TIME_BAR]
    size = np.tile(figure.bbox.size, 2)
    for index, bar in enumerate(bars):
        column = mains[index].get_subplotspec().colspan.start if len(bars) > 1 else 0
        columns = mains[0].get_subplotspec().get_gridspec().ncols if len(bars) > 1 else 1
        bar.set_box_aspect(None)
        bar.set_anchor("C")
        height = _pixels(figure, strips_height(len(bar.images[0].get_array()))) / size[1]
        place = np.array([(column + 0.25) / columns, 0.0, 0.5 / columns, height])
        bar.set_position(place)
        below = bar.get_window_extent().y0 - bar.get_tightbbox().y0
        place[1] = (_legend_top(figure) + _pixels(figure, _MARGIN) + below) / size[1]
        bar.set_position(place)


def _legend_top(figure: Any) -> float:
    return float(max((legend.get_window_extent().y1 for legend in figure.legends), default=0.0))


def _mains(figure: Any) -> list[Any]:
    """Returns the axes of the pictures, without those of colour bars and second axes."""
    places = {ax.get_subplotspec(): ax for ax in reversed(figure.axes)}
    return [ax for place, ax in reversed(places.items()) if place is not None]


def _wrap_texts(figure: Any) -> bool:
    """Wraps titles and labels that are longer than the room along them; returns whether any was."""
    height = figure.bbox.height
    margin = _pixels(figure, _MARGIN)
    wrapped = False
    for ax in figure.axes:
        box = ax.get_window_extent()
        above, below = (_room_across(figure, ax, above=above) - 2 * margin for above in (True, False))
        up = min(box.y0 + box.y1, 2 * height - box.y0 - box.y1) - 2 * margin
        texts = [(ax.title, above, 0)]
        if ax.name != "3d":
            texts += [(ax.xaxis.label, below, 0), (ax.yaxis.label, up, 1)]
        for text, room, axis in texts:
            wrapped |= _wrap(text, _HINTING * room, axis)
    return wrapped


def _room_across(figure: Any, ax: Any, *, above: bool) -> float:
    """Returns how long a line in the middle above or below axes may be, in pixels; neighbours share what is between."""
    box, mains = ax.get_window_extent(), _mains(figure)
    left, right = 0.0, float(figure.bbox.width)
    for other in figure.axes:
        beside = other.get_window_extent()
        reaches = beside.y1 > box.y1 + 1 if above else beside.y0 < box.y0 - 1
        if other is ax or beside.y1 <= box.y0 or beside.y0 >= box.y1 or not (reaches or other in mains):
            continue
        share = 0.5 if other in mains else 1.0
        if beside.x0 >= box.x1:
            right = min(right, box.x1 + share * (beside.x0 - box.x1))
        elif beside.x1 <= box.x0:
            left = max(left, box.x0 + share * (beside.x1 - box.x0))
    return float(min(box.x0 + box.x1 - 2 * left, 2 * right - box.x0 - box.x1))


def _room_of(legend: Any) -> float:
    return float(_HINTING * (legend.figure.bbox.width - 2 * _pixels(legend.figure, _MARGIN)))


def _grow(figure: Any) -> bool:
    """Makes a figure higher where titles, labels and legend leave its pictures too little; returns whether it did."""
    mains = _mains(figure)
    rows = mains[0].get_subplotspec().get_gridspec().nrows
    heights = np.array([_heights(figure, ax) for ax in mains])
    now, least, wanted = heights.T
    before, missing = figure.get_figheight(), float((wanted - now).max())
    if abs(missing) <= 0.03 * now.max():
        return False
    height = before + rows * missing / figure.dpi
    if figure.get_figwidth() >= _SLIDE[0] and missing > 0:
        enough = before + rows * float((least - now).max()) / figure.dpi
        height = max(before, enough, min(height, _SLIDE[1]))
    figure.set_figheight(height)
    return bool(abs(height - before) > 0.01 * before)


def _heights(figure: Any, main: Any) -> tuple[float, float, float]:
    """Returns the height that a picture has, the one that it must have, and the one that it should have, in pixels."""
    several = len(_mains(figure)) > 1
    across = figure.bbox.width / main.get_subplotspec().get_gridspec().ncols
    side = _LEAST_SIDE * figure.dpi if several else 0.0
    if main.name == "3d":
        _, bottom, _, top = _box_room(figure, main)
        return top - bottom, 2 * side, max(top - bottom, 2 * side, _LEAST_BOX * across)
    box = main.get_window_extent()
    if main.get_aspect() == "auto":
        return box.height, side, max(box.height, side, _LEAST_SHAPE * box.width)
    # As large as a picture to scale can be at this width.
    if several:
        place = main.get_position(original=True)
        now, width = place.height * figure.bbox.height, place.width * figure.bbox.width
        shape = float(np.ptp(main.get_ylim()) / np.ptp(main.get_xlim()))
        least = min(side * max(1.0, shape), width * shape)
        return now, least, max(least, min(width * shape, _MOST_HEIGHT * across))
    parts = [ax.get_tightbbox() for ax in figure.axes]
    beside = max(part.x1 for part in parts) - min(part.x0 for part in parts) - box.width
    width = figure.bbox.width - 2 * _pixels(figure, _MARGIN) - beside
    return box.height, 0.0, max(box.height, min(width * box.height / box.width, _MOST_HEIGHT * across))


def shorter_side(ax: Any) -> float:
    """Returns the length of a picture's shorter side without what is written around it, in inches."""
    ax.apply_aspect()
    box = _box_extent(ax, labels=False) if ax.name == "3d" else ax.get_window_extent()
    return float(min(box.width, box.height) / ax.figure.dpi)


def _wrap(text: Any, room: float, axis: int) -> bool:
    """Breaks a text's lines so that none is longer than the room, in pixels along the axis; returns whether it did."""
    whole = text.get_text()
    if not whole or not text.get_visible() or _length(text, axis) <= room:
        return False
    lines: list[str] = []
    for line in whole.split("\n"):
        lines += _broken(text, line, room, axis)
    text.set_text("\n".join(lines))
    return bool(text.get_text() != whole)


def _broken(text: Any, line: str, room: float, axis: int) -> list[str]:
    def fits(part: str) -> bool:
        text.set_text(part)
        return _length(text, axis) <= room

    lines, rest = [], line.split(" ")
    while rest:
        # The longest beginning that fits; one word at least, and of a word that is too long a piece.
        count = next((count for count in range(len(rest), 0, -1) if fits(" ".join(rest[:count]))), 0)
        if count:
            commas = [place for place in range(1, count) if rest[place - 1].endswith(",")]
            if count < len(rest) and commas and 2 * commas[-1] >= count:
                count = commas[-1]
            lines.append(" ".join(rest[:count]))
            rest = rest[count:]
            continue
        word = rest[0]
        # A backslash belongs to the dollar sign after it.
        ends = [end for end in range(len(word) - 1, 0, -1) if word[end - 1] != "\\"]
        end = next((end for end in ends if fits(word[:end])), ends[-1] if ends else len(word))
        lines.append(word[:end])
        rest[:1] = [word[end:]] if word[end:] else []
    return lines


def _length(drawn: Any, axis: int) -> float:
    return float(drawn.get_window_extent().size[axis])


def _place_box(figure: Any, ax: Any, cameras: Sequence[Camera]) -> None:
    """Gives three-dimensional axes all the room between title, legend and neighbours, labels and ticks included."""
    from matplotlib.transforms import Bbox

    size, room = np.tile(figure.bbox.size, 2), _box_room(figure, ax)
    for _ in range(2 * _ROUNDS):  # the size of type stays, so that each step only comes nearer
        # The box seen from all cameras together; the axes stay with the first of them.
        views: list[Camera | None] = [*reversed(cameras)]
        shown = np.asarray(Bbox.union([_box_extent(ax, view) for view in views or [None]]).extents)
        scale = float(((room[2:] - room[:2]) / (shown[2:] - shown[:2])).min())
        place = np.array(ax.get_position(original=True).bounds) * size
        shift = (room[:2] + room[2:] - scale * (shown[:2] + shown[2:])) / 2
        found = np.concatenate([scale * place[:2] + shift, scale * place[2:]])
        ax.set_position(found / size)
        if np.abs(found - place).max() < _pixels(figure, 0.25):
            break
    ax.apply_aspect()
    # The frame reaches beyond the box: over the labels of a neighbour.
    ax.patch.set_visible(False)
    middle = ((room[0] + room[2]) / 2, room[3] + _pixels(figure, _MARGIN))
    place = ax.title.get_transform().inverted().transform(middle)
    # Without a y of its own a title is moved back to the frame whenever it is drawn; the one given here is scaled.
    ax.set_title(ax.title.get_text(), y=place[1], fontsize=ax.title.get_fontsize())
    ax.title.set_position(place)


def _box_room(figure: Any, ax: Any) -> NDArray[np.float64]:
    """Returns left, bottom, right and top of the room for a box and its labels, below its title, in pixels."""
    margin = _pixels(figure, _MARGIN)
    below = [other.get_tightbbox().y1 for other in figure.axes if other.get_label() == TIME_BAR]
    floor = max([_legend_top(figure), *below])
    beside = [other for other in figure.axes if other.get_subplotspec() is None and other.get_label() != TIME_BAR]
    bars = [other.get_tightbbox().x0 for other in beside]
    wall = min((left for left in bars if left > ax.get_window_extent().x0), default=figure.bbox.width)
    place = ax.get_subplotspec()
    rows, columns = place.get_gridspec().get_geometry()
    width, height = wall / columns, (figure.bbox.height - floor) / rows
    left, top = place.colspan.start * width, figure.bbox.height - place.rowspan.start * height
    heading = ax.title.get_window_extent().height + 2 * margin if ax.title.get_text() else margin
    return np.array([left + margin, top - height + margin, left + width - margin, top - heading])


def _box_extent(ax: Any, camera: Camera | None = None, *, labels: bool = True) -> Any:
    """Returns the extent of the box, or of the box with its ticks and its labels, in pixels, seen from a new camera."""
    from matplotlib.transforms import Bbox
    from mpl_toolkits.mplot3d.proj3d import proj_transform  # type: ignore[import-untyped]

    if camera is not None:
        camera.place(ax)
    place_ticks(ax)
    corners = np.array(list(itertools.product(ax.get_xlim3d(), ax.get_ylim3d(), ax.get_zlim3d()))).T
    right, up, _ = proj_transform(*corners, ax.M)
    pixels = ax.transData.transform(np.column_stack([right, up]))
    box = Bbox([pixels.min(axis=0), pixels.max(axis=0)])
    renderer = ax.figure._get_renderer()
    parts = [axis.get_tightbbox(renderer) for axis in (ax.xaxis, ax.yaxis, ax.zaxis) if labels]
    return Bbox.union([box, *(part for part in parts if part is not None)])


def _pixels(figure: Any, points: float) -> float:
    return float(points * figure.dpi / 72)


def _number_axes(figure: Any) -> list[Any]:
    return [axis for ax in figure.axes if ax.name != "3d" for axis in (ax.xaxis, ax.yaxis)]


def space_numbers(figure: Any) -> None:
    """Leaves out numbers that would cover the ones before: of given ones those without room, of others every few."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

    for axis in _number_axes(figure):
        if isinstance(axis.get_major_locator(), FixedLocator):
            texts, free = [], -np.inf
            for label in axis.get_ticklabels():
                low, high = _span(label, axis)
                texts.append(label.get_text() if low >= free else "")
                free = high + figure.dpi / 72 if texts[-1] else free
            axis.set_major_formatter(FixedFormatter(texts))
            continue
        count = len(axis.get_ticklocs())
        while count > 2 and not _apart(axis):
            count -= 1
            axis.set_major_locator(MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]))


def _span(label: Any, axis: Any) -> tuple[float, float]:
    """Returns where a number begins and ends along its axis, in pixels."""
    box = label.get_window_extent()
    return (box.x0, box.x1) if axis.axis_name == "x" else (box.y0, box.y1)


def _apart(axis: Any) -> bool:
    labels = [label for label in axis.get_ticklabels() if label.get_text()]
    between = 0.4 * labels[0].get_fontsize() * axis.figure.dpi / 72 if labels and axis.axis_name == "x" else 0.0
    spans = sorted(_span(label, axis) for label in labels)
    return all(one[1] + between < two[0] for one, two in itertools.pairwise(spans))
