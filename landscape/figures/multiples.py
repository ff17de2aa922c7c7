"""Several landscapes side by side on one scale: the same colour is the same value in all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collectors.validation import check_choice, check_int, wrong_type, wrong_value

from ..file.data import LandscapeData
from ..scales.frame import choose_frame
from .appearance import choose_appearance, draw_legend_below
from .canvas import settle
from .contour import CONTOUR, CONTOUR_LINES, HEATMAP
from .profile import PROFILE
from .sheet import Kind, Look, Sheet, begin, check_look, shared_scale
from .surface3d import SURFACE
from .texts import member_names, missed_notes, plain, title

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes


_BRACKET = re.compile(r" \([^()]*\)$")


def plot_multiples(
    landscapes: Sequence[LandscapeData],
    titles: Sequence[str] | None = None,
    kind: str | None = None,
    columns: int | None = None,
    **look: Unpack[Look],
) -> list[Axes]:
    """Draws several landscapes, such as runs or intervals of one run, on one shared scale.

    Args:
        landscapes: all planes, or all lines.
        titles: one for each; None takes what tells the landscapes apart.
        kind: "contour", "lines", "heatmap" or "surface" for planes, "profile" for lines; None is "contour" or
            "profile".
        columns: how many stand in a row; None chooses.
        **look: metric, levels, scale, colormap, trajectory, clip, theme, style, aspect; see ``Look``. In the style
            "paper" the figure is as wide as two columns.

    Returns:
        The axes of each landscape, in order, on one figure.

    Raises:
        KeyError: a landscape has no such metric.
        ValueError: there is no landscape, lines and planes are mixed, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    landscapes, names = _check(landscapes, titles)
    plane = landscapes[0].y is not None
    chosen = KINDS[check_choice("kind", kind or ("contour" if plane else "profile"), tuple(KINDS))]
    options = check_look("plot_multiples", look)
    count = len(landscapes)
    if columns is None:
        across = count if count <= 3 else math.ceil(math.sqrt(count))
    else:
        across = min(check_int("columns", columns, minimum=1), count)
    shared = shared_scale(chosen, landscapes, options)
    appearance = choose_appearance(options.get("theme"), options.get("style", "screen"), None)
    with appearance.applied():
        aspect = options.get("aspect", "equal")
        ratios = [choose_frame(landscape, aspect).ratio for landscape in landscapes]
        grid = _grid(chosen, ratios, across, paper=appearance.paper)
        own: Look = {**options, "scale": shared, "levels": None, "clip": None}
        sheets = []
        for landscape, name, ax in zip(landscapes, names, grid, strict=True):
            with begin(chosen, landscape, ax, own, furniture=False, heading=name) as sheet:
                chosen.draw(sheet)
                sheets.append(sheet)
        _drop_repeated_labels(sheets, across)
        _write_shared(sheets)
        settle(grid[0].figure)
        for sheet in sheets:
            sheet.write_late()
    return grid


def _check(landscapes: Any, titles: Any) -> tuple[list[LandscapeData], list[str]]:
    if isinstance(landscapes, str) or not isinstance(landscapes, Sequence):
        raise wrong_type("landscapes", "a list of landscapes", landscapes)
    for index, landscape in enumerate(landscapes):
        if not isinstance(landscape, LandscapeData):
            raise wrong_type(f"landscapes[{index}]", "a Landscape", landscape)
    if not landscapes:
        raise wrong_value("landscapes", "at least one landscape", [])
    if len({landscape.y is None for landscape in landscapes}) > 1:
        raise ValueError("landscapes must be all planes or all lines, but some are lines and some are planes.")
    if titles is None:
        return list(landscapes), _names(landscapes)
    if isinstance(titles, str) or not isinstance(titles, Sequence) or not all(isinstance(name, str) for name in titles):
        raise wrong_type("titles", "a list of texts, one for each landscape", titles)
    if len(titles) != len(landscapes):
        raise wrong_value("titles", f"a list of {len(landscapes)} texts, one for each landscape", list(titles))
    return list(landscapes), [plain(name) for name in titles]


def _names(landscapes: Sequence[LandscapeData]) -> list[str]:
    """Returns the landscapes' titles, with their files' names or a number where titles do not tell them apart."""
    titles = [title(landscape) for landscape in landscapes]
    names = [
        f"{name}\n{plain(landscape.path.stem, 32)}" if titles.count(name) > 1 and landscape.path is not None else name
        for name, landscape in zip(titles, landscapes, strict=True)
    ]
    return [f"{index}: {name}" if names.count(name) > 1 else name for index, name in enumerate(names, 1)]


def _grid(kind: Kind, ratios: Sequence[float], across: int, *, paper: bool) -> list[Axes]:
    """Returns the axes of each picture, given the proportions of each plane."""
    from matplotlib.figure import Figure

    count = len(ratios)
    down = math.ceil(count / across)
    width = (3.4 if across == 1 else 7.0) if paper else 1.0 + 3.6 * across
    each = (width - (0.5 if paper else 1.0)) / across
    if kind.plane and kind.projection is None:
        # The flattest picture of a row needs the least height, the tallest one the most.
        text, tallest = (0.5, 3.2) if paper else (0.75, 5.0)
        rows = [min(ratios[first : first + across]) for first in range(0, count, across)]
        tall = sum(text + min((each - text) / ratio, tallest) for ratio in rows)
    else:
        tall = down * (0.95 if kind.projection else 0.7) * each
    height = (0.55 if paper else 0.7) + tall
    figure = Figure(figsize=(width, height), layout="constrained")
    return [figure.add_subplot(down, across, index + 1, projection=kind.projection) for index in range(count)]


def _drop_repeated_labels(sheets: list[Sheet], across: int) -> None:
    """Leaves an axis's name to the outermost pictures where all say the same."""
    if sheets[0].ax.name == "3d":
        return
    same_x = len({sheet.ax.get_xlabel() for sheet in sheets}) == 1
    same_y = len({sheet.ax.get_ylabel() for sheet in sheets}) == 1
    for index, sheet in enumerate(sheets):
        if same_x and index + across < len(sheets):
            sheet.ax.set_xlabel("")
        if same_y and index % across:
            sheet.ax.set_ylabel("")


def _write_shared(sheets: list[Sheet]) -> None:
    """Draws one colour bar and one legend for all."""
    from matplotlib.lines import Line2D

    figure: Any = sheets[0].ax.figure
    drawn = next((sheet for sheet in sheets if sheet.mappable is not None), None)
    if drawn is not None:
        drawn.write_bar([sheet.ax for sheet in sheets], pad=0.02, aspect=30)
    entries: dict[tuple[str, object], Any] = {}
    own = {plain(name, 32) for sheet in sheets for name in member_names(sheet.landscape)}
    for sheet in sheets:
        for entry in sheet.entries:
            # "start (epoch 3)" differs between pictures, its mark does not.
            label = str(entry.get_label())
            name = label if label in own else _BRACKET.sub("", label)
            marker = entry.get_marker() if hasattr(entry, "get_marker") else None
            if (name, marker) not in entries:
                entries[name, marker] = entry
                entry.set_label(name)
    for note in missed_notes(*(sheet.landscape for sheet in sheets)):
        entries[note, None] = Line2D([], [], linestyle="none", label=note)
    if entries:
        columns = 4 if len(sheets) > 1 else 2
        draw_legend_below(figure, list(entries.values()), sheets[0].appearance, columns)


PLANE_KINDS = {"contour": CONTOUR, "lines": CONTOUR_LINES, "heatmap": HEATMAP, "surface": SURFACE}
KINDS = {**PLANE_KINDS, "profile": PROFILE}
