"""Several landscapes, or metrics of one, side by side: the same colour is the same value of a quantity in all."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from collectors.validation import check_choice, check_int, wrong_type, wrong_value
from workers.metric_names import MetricName

from ..drawing.appearance import Appearance, appearance_of, draw_legend_below
from ..drawing.canvas import check_size, new_figure
from ..drawing.fitting import settle
from ..drawing.look import Axes, Look, check_dimensions, check_look
from ..drawing.path import BAR_HEIGHT, dots_handle, draw_time_bar, path_times, run_names
from ..drawing.sheet import Kind, Sheet, begin, shared_scale
from ..drawing.texts import member_names, metric_text, missed_notes, plain, precision_notes, quantity_label, title
from ..grid.data import LOSS_ERROR, LandscapeData
from ..scales.frame import choose_frame
from ..scales.scale import Scale
from .contour import CONTOUR, CONTOUR_LINES, HEATMAP
from .profile import PROFILE
from .surface3d import SURFACE

_BRACKET = re.compile(r" \([^()]*\)$")


def plot_multiples(
    landscapes: LandscapeData | Sequence[LandscapeData],
    titles: Sequence[str] | None = None,
    kind: str | None = None,
    columns: int | None = None,
    *,
    metrics: Sequence[str] | None = None,
    **look: Unpack[Look],
) -> list[Axes]:
    """Draws several landscapes, such as runs or intervals of one run, or several metrics, on one shared scale.

    ``plot_multiples(landscape, metrics=["loss", "loss@test"])`` draws the surfaces of two data sets. Metrics that
    measure the same share a scale; of different ones, such as a loss and an accuracy, each has its own, and the legend
    says so.

    Args:
        landscapes: one, or several that are all planes or all lines.
        titles: one for each picture; None takes what tells them apart.
        kind: "contour", "lines", "heatmap" or "surface" for planes, "profile" for lines; None is "contour" or
            "profile".
        columns: how many stand in a row; None chooses, so that the shorter side of each has at least 0.8 inch.
        metrics: what is drawn of each landscape, in this order; None is the look's metric alone.
        **look: metric, levels, scale, colormap, trajectory, clip, theme, style, aspect, size, camera; see ``Look``. In
            the style "paper" the figure is as wide as two columns.

    Returns:
        The axes of each picture, in order, on one figure: all metrics of the first landscape, then of the next.

    Raises:
        KeyError: a landscape has no such metric.
        ValueError: there is no landscape, lines and planes are mixed, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    options = check_look("plot_multiples", look)
    if options.get("title") is not None:
        raise ValueError("title must be left out for plot_multiples, whose pictures have titles=[...] each.")
    size = check_size(options.get("size"))
    each = check_landscapes(landscapes)
    shown = _check_metrics(metrics, options)
    names = _check_titles(titles, each, shown)
    kind = check_choice("kind", kind or usual_kind(each), tuple(SHARED_KINDS))
    chosen, pictures = SHARED_KINDS[kind], picture_scales(each, shown, kind, options)
    # Where units differ, such as epochs and steps, each picture has times of its own.
    times, runs = path_times(each), run_names(each)
    appearance = appearance_of(options, None)
    with appearance.applied():
        aspect = options.get("aspect", "equal")
        ratios = [choose_frame(landscape, aspect).ratio for landscape, _, _ in pictures]
        more_height = BAR_HEIGHT if any(path_times([one]) for one in each) and options.get("trajectory", True) else 0.0
        arrangements = _columns(len(shown) if len(each) > 1 else 1, len(pictures), columns, size)
        for across in arrangements:
            grid = _grid(chosen, ratios, across, size, more_height, appearance, wide=arrangements[0] > 1)
            sheets = []
            for (landscape, metric, scale), name, ax in zip(pictures, names, grid, strict=True):
                shared: Look = {**options, "metric": metric, "scale": scale, "levels": None, "clip": None, "size": None}
                heading = "\n".join([name, *precision_notes(landscape)])
                more: dict[str, Any] = {"runs": runs} | ({"times": times} if times is not None else {})
                if len(shown) > 1:
                    more["label"] = quantity_label(landscape, metric, short=True)
                with begin(chosen, landscape, ax, shared, furniture=False, heading=heading, **more) as sheet:
                    chosen.draw(sheet)
                    sheets.append(sheet)
            if len(shown) > 1 and len(each) == 1 and not appearance.paper:
                # Each picture's own heading says which metric it shows.
                grid[0].figure.suptitle(title(each[0]))
            _drop_repeated_labels(sheets, across)
            _write_shared(sheets)
            try:
                if settle(grid[0].figure, grow=size is None):
                    break
            except ValueError:
                if across == arrangements[-1]:
                    raise
        for sheet in sheets:
            sheet.write_late()
    return grid


def plot_uncertainty(landscape: LandscapeData, **look: Unpack[Look]) -> list[Axes]:
    """Draws how uncertain a plane's metric is at each point: a heat map for each kind of error that is known.

    The standard error says how far the value would move with other samples; the interpolation error, which adaptive
    sampling estimates, how far a value that was not measured may be from what measuring it would give. The second is 0
    where the loss was measured.

    Args:
        landscape: a plane; ``errors[j, i]`` is drawn at ``(x[i], y[j])``.
        **look: metric (whose errors), levels, scale, colormap ("magma" by default), trajectory, clip, theme, style,
            aspect, size; see ``Look``.

    Returns:
        The axes of each map: the standard error, the interpolation error.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line, no error is known, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    if not isinstance(landscape, LandscapeData):
        raise wrong_type("landscape", "a Landscape", landscape)
    check_dimensions("plot_uncertainty", landscape)
    if look.get("title") is not None:
        raise ValueError("title must be left out for plot_uncertainty, whose maps have the names of their errors.")
    maps = uncertainty_metrics(landscape, look.pop("metric", "loss"))
    colors: Look = {"colormap": "magma", **look}
    return plot_multiples(landscape, list(maps.values()), "heatmap", metrics=list(maps), **colors)


def uncertainty_metrics(landscape: LandscapeData, metric: str = "loss") -> dict[str, str]:
    """Returns which metrics are errors of a metric, with a title for each."""
    # A KeyError says that there is no such metric.
    landscape[metric]
    found = {}
    called, name = metric_text(landscape, metric), MetricName.read(metric, landscape.metrics)
    stderr = name.standard_error
    if stderr in landscape.metrics and np.isfinite(landscape[stderr]).any():
        found[stderr] = f"standard error of {called} over samples"
    if metric == "loss" and LOSS_ERROR in landscape.metrics:
        found[LOSS_ERROR] = "estimated interpolation error of loss"
    if not found:
        raise ValueError(
            f"no error of {metric!r} is known: the loss has a standard error where it is a mean over samples, and an "
            "interpolation error where points were interpolated (sampling='adaptive')."
        )
    return found


def _columns(metrics: int, pictures: int, columns: int | None, size: tuple[float, float] | None) -> list[int]:
    """Returns how many pictures to try in a row: the usual number, then fewer; several ``metrics`` share whole rows."""
    if columns is not None:
        return [min(check_int("columns", columns, minimum=1), pictures)]
    usual = metrics if metrics > 1 else pictures if pictures <= 3 else math.ceil(math.sqrt(pictures))
    fewer = [count for count in range(usual, 0, -1) if metrics % count == 0 or metrics == 1]
    return fewer if size is None else [usual]


def usual_kind(landscapes: Sequence[LandscapeData]) -> str:
    return "profile" if landscapes[0].y is None else "contour"


def picture_scales(
    landscapes: Sequence[LandscapeData], metrics: Sequence[str], kind: str, look: Look
) -> list[tuple[LandscapeData, str, Scale]]:
    """Returns the landscape, the metric and the scale of each picture, in order; the arguments are those of all."""
    pictures = list(itertools.product(landscapes, metrics))
    found: dict[str, list[tuple[LandscapeData, str]]] = {}
    for picture in pictures:
        found.setdefault(quantity_label(*picture), []).append(picture)
    for name in ("scale", "levels", "clip"):
        value = look.get(name)
        fits_all = isinstance(value, str) or (name == "levels" and isinstance(value, int))
        if len(found) > 1 and value is not None and not fits_all:
            raise ValueError(
                f"{name} must be left out for pictures of different quantities ({', '.join(found)}), each of which has "
                f"a scale of its own, but got {value!r}. Draw them one by one, or choose metrics of one quantity."
            )
    scales = {
        quantity: shared_scale(SHARED_KINDS[kind], [data for data, _ in alike], look, [metric for _, metric in alike])
        for quantity, alike in found.items()
    }
    return [(landscape, metric, scales[quantity_label(landscape, metric)]) for landscape, metric in pictures]


def check_landscapes(landscapes: Any) -> list[LandscapeData]:
    if isinstance(landscapes, LandscapeData):
        return [landscapes]
    if isinstance(landscapes, str) or not isinstance(landscapes, Sequence):
        raise wrong_type("landscapes", "a list of landscapes", landscapes)
    for index, landscape in enumerate(landscapes):
        if not isinstance(landscape, LandscapeData):
            raise wrong_type(f"landscapes[{index}]", "a Landscape", landscape)
    if not landscapes:
        raise wrong_value("landscapes", "at least one landscape", [])
    if len({landscape.y is None for landscape in landscapes}) > 1:
        raise ValueError("landscapes must be all planes or all lines, but some are lines and some are planes.")
    return list(landscapes)


def _check_metrics(metrics: Any, look: Look) -> list[str]:
    if metrics is None:
        return [look.get("metric", "loss")]
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):
        raise wrong_type("metrics", 'a list of names such as ["loss", "loss@test"]', metrics)
    if not metrics or not all(isinstance(name, str) for name in metrics):
        raise wrong_value("metrics", "a list of at least one name", list(metrics))
    if "metric" in look:
        raise ValueError(f"metric must be left out where metrics says what is drawn, but got {look['metric']!r}.")
    return list(metrics)


def _check_titles(titles: Any, landscapes: Sequence[LandscapeData], metrics: Sequence[str]) -> list[str]:
    """Returns a title for each picture: the user's, or what tells the pictures apart."""
    count = len(landscapes) * len(metrics)
    if titles is None:
        names = distinct_titles(landscapes) if len(landscapes) > 1 or len(metrics) == 1 else [""]
        texts = [metric_text(landscapes[0], metric) for metric in metrics] if len(metrics) > 1 else [""]
        return ["\n".join(part for part in (name, text) if part) for name in names for text in texts]
    if isinstance(titles, str) or not isinstance(titles, Sequence) or not all(isinstance(name, str) for name in titles):
        raise wrong_type("titles", "a list of texts, one for each picture", titles)
    if len(titles) != count:
        raise wrong_value("titles", f"a list of {count} texts, one for each picture", list(titles))
    return [plain(name) for name in titles]


def distinct_titles(landscapes: Sequence[LandscapeData]) -> list[str]:
    """Returns the landscapes' titles, with their files' names or a number where titles do not tell them apart."""
    titles = [title(landscape) for landscape in landscapes]
    names = [
        f"{name}\n{plain(landscape.path.stem, 32)}" if titles.count(name) > 1 and landscape.path is not None else name
        for name, landscape in zip(titles, landscapes, strict=True)
    ]
    return [f"{index}: {name}" if names.count(name) > 1 else name for index, name in enumerate(names, 1)]


def _grid(
    kind: Kind,
    ratios: Sequence[float],
    across: int,
    size: tuple[float, float] | None,
    more: float,
    look: Appearance,
    *,
    wide: bool,
) -> list[Axes]:
    """Returns axes for planes of these widths / heights, with ``more`` inches below; without a size it chooses one."""
    count = len(ratios)
    down = math.ceil(count / across)
    paper = look.paper
    width = (look.wide if wide else look.width) or 1.0 + 3.6 * across
    each = (width - (0.5 if paper else 1.0)) / across
    if kind.plane and kind.projection is None:
        # The flattest picture of a row needs the least height, the tallest one the most.
        text, tallest = (0.5, 3.2) if paper else (0.75, 5.0)
        rows = [min(ratios[first : first + across]) for first in range(0, count, across)]
        tall = sum(text + min((each - text) / ratio, tallest) for ratio in rows)
    else:
        tall = down * (0.95 if kind.projection else 0.7) * each
    height = (0.55 if paper else 0.7) + tall + more
    # The colour bar of a single plane is as high as the plane; between several ones the room would go that titles need.
    figure = new_figure(size or (width, height), "compressed" if count == 1 else "constrained")
    grid = [figure.add_subplot(down, across, index + 1, projection=kind.projection) for index in range(count)]
    for ax in grid if kind.projection else ():
        # Labels of three-dimensional axes reach into their neighbours, whose backgrounds would cover them.
        ax.patch.set_visible(False)
    return grid


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
    """Draws one colour bar for all, or one beside each picture where they show different quantities; and one legend."""
    from matplotlib.lines import Line2D

    drawn = [sheet for sheet in sheets if sheet.mappable is not None]
    quantities = list(dict.fromkeys(quantity_label(sheet.landscape, sheet.metric) for sheet in sheets))
    if len(quantities) > 1:
        tallest = min(sheet.frame.ratio for sheet in sheets)
        for sheet in drawn:
            ratio = sheet.frame.ratio
            sheet.write_bar(sheet.ax, pad=0.02, aspect=20 * max(1.0, 1 / ratio), shrink=tallest / ratio)
    elif drawn:
        drawn[0].write_bar([sheet.ax for sheet in sheets], pad=0.02, aspect=30)
    _write_time_bars(sheets)
    entries: dict[tuple[str, object], Any] = {}
    # A path that several maps of one landscape show has its checkpoints once.
    paths = {id(sheet.landscape): sheet.dots for sheet in sheets}
    dots = dots_handle([found for each in paths.values() for found in each], sheets[0].appearance.factor)
    member_labels = {plain(name, 32) for sheet in sheets for name in member_names(sheet.landscape)}
    for entry in (entry for sheet in sheets for entry in sheet.entries):
        # "start (epoch 3)" differs between pictures, its mark does not.
        label = str(entry.get_label())
        name = label if label in member_labels else _BRACKET.sub("", label)
        marker = entry.get_marker() if hasattr(entry, "get_marker") else None
        if (name, marker) not in entries:
            entries[name, marker] = entry
            entry.set_label(name)
    notes = missed_notes(*(sheet.landscape for sheet in sheets))
    if len(quantities) > 1:
        short = list(dict.fromkeys(sheet.label for sheet in sheets))
        names = short if len(short) == len(quantities) else quantities
        notes.insert(0, f"a scale each for {', '.join(names[:-1])} and {names[-1]}")
    handles = [*entries.values(), *dots, *(Line2D([], [], linestyle="none", label=note) for note in notes)]
    if handles and sheets[0].appearance.legend:
        draw_legend_below(sheets[0].ax.figure, handles, sheets[0].appearance, columns=4 if len(sheets) > 1 else 2)


def _write_time_bars(sheets: list[Sheet]) -> None:
    timed = [(sheet, sheet.times) for sheet in sheets if sheet.times is not None and sheet.trajectory]
    alike = len({times for _, times in timed}) == 1
    for group in [timed] if alike else [[each] for each in timed]:
        sheet, times = group[0]
        axes = [each.ax for each in sheets] if alike else sheet.ax
        draw_time_bar(axes, times, sorted({run for each, _ in group for run, _ in each.paths}), sheet.appearance)


PLANE_KINDS = {"contour": CONTOUR, "lines": CONTOUR_LINES, "heatmap": HEATMAP, "surface": SURFACE}
SHARED_KINDS = {**PLANE_KINDS, "profile": PROFILE}
