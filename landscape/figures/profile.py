"""A line through weight space: a metric along it, further metrics on a second axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from collectors.validation import wrong_type
from workers.metric_names import MetricName

from ..drawing import path as marks
from ..drawing.canvas import Picture
from ..drawing.look import Axes, Look
from ..drawing.missing import coarse_text, edges
from ..drawing.path import Times, marked, numbered
from ..drawing.placement import free, most_telling
from ..drawing.sheet import Kind, Sheet, begin, set_value_axis, shared_scale
from ..drawing.texts import metric_text, plain, quantity_text
from ..grid.checkpoints import CheckpointsData
from ..grid.data import LandscapeData
from ..grid.differences import own_values
from ..record.checks import PointStatus
from ..scales.choosing import choose_scale
from ..scales.landscape_scale import known, missing_kinds
from ..scales.scale import Scale
from .minima import draw_minima

_MANY_POINTS = 41
_MISSING = {"pending": ".", "failed": "x", "not finite": "^"}


def plot_profile(
    landscape: LandscapeData, ax: Axes | None = None, *, others: str | Sequence[str] = (), **look: Unpack[Look]
) -> Axes:
    """Draws a line's metric with its points, its standard error where there is one, and the networks on it.

    Args:
        landscape: a line; ``metric[i]`` is drawn at ``x[i]``.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        others: further metrics. Those that measure the same on another data set or group, such as "loss@test" beside
            "loss", are drawn on the same axis; all others against an axis on the right, which is the figure's last.
        **look: metric, levels, scale, trajectory, clip, theme, style, title, size, topology; see ``Look``.

    Returns:
        The axes on the left.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a plane, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    names = [others] if isinstance(others, str) else others
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise wrong_type("others", "the name of a metric, or a list of names", others)
    metric = look.get("metric", "loss")
    beside, right = sides(landscape, metric, names)
    more = {"label": quantity_text(landscape, metric)} if beside else {}
    if beside:
        look = {**look, "scale": left_scale(landscape, [metric, *beside], look), "levels": None, "clip": None}
    with begin(PROFILE, landscape, ax, look, **more) as sheet:
        draw_profile(sheet, several=bool(beside))
        for index, name in enumerate(beside, 1):
            _draw_curve(sheet, sheet.ax, sheet.scale.tall, name, index)
        if right:
            _draw_right(sheet, right, 1 + len(beside))
        sheet.finish()
    return sheet.ax


def sides(landscape: LandscapeData, metric: str, others: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns which other metrics share the axis of the main one on the left, and which have one on the right."""
    # Metrics that measure the same, on different data sets or groups, share a scale.
    quantities = {name: MetricName.read(name, landscape.metrics).quantity for name in (metric, *others) if others}
    beside = [name for name in others if name != metric and quantities[name] == quantities[metric]]
    return beside, [name for name in others if name not in (metric, *beside)]


def _color_and_stroke(sheet: Sheet, index: int) -> tuple[str, str]:
    main, *others = sheet.appearance.series
    # The main metric's line is the only whole one.
    return (others[(index - 1) % len(others)], marks.stroke(1 + (index - 1) % 3)) if index else (main, marks.stroke(0))


def left_scale(landscape: LandscapeData, shown: Sequence[str], look: Look) -> Scale:
    """Returns the scale of the axis on the left: the user's, or one that spans all metrics that are shown on it."""
    return shared_scale(PROFILE, [landscape] * len(shown), {**look, "trajectory": True}, list(shown))


def right_scale(landscape: LandscapeData, names: Sequence[str]) -> Scale:
    """Returns the scale of the axis on the right, which spans all metrics that are shown on it."""
    values = np.concatenate([known(landscape[name], landscape.status) for name in names])
    return choose_scale(values, "auto", count=PROFILE.count, metric=_quantities(landscape, names))


def _quantities(landscape: LandscapeData, names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(quantity_text(landscape, name) for name in names))


def draw_profile(sheet: Sheet, *, several: bool = False) -> None:
    """Fills a sheet with a curve, which the legend names where ``several`` curves share the axis."""
    ax, scale, look = sheet.ax, sheet.scale, sheet.appearance
    set_value_axis(ax, scale.tall, sheet.label)
    _draw_curve(sheet, ax, scale.tall, sheet.metric, 0, named=several)
    _draw_coarse(sheet)
    mark_missing(sheet, sheet.landscape.x, missing_kinds(sheet.values, sheet.status, sheet.coarse))
    if sheet.trajectory:
        _draw_checkpoints(sheet)
    draw_minima(sheet)
    sheet.write_labels()
    (length,) = sheet.landscape.directions.norms
    if np.isfinite(length) and abs(length - 1) > 1e-9:
        # The coordinate is a multiple of the direction; its length says how far that is.
        ax.set_xlabel(f"{ax.get_xlabel()}\n1 is a distance of {length:.3g} in weight space")
    ax.grid(alpha=look.grid_alpha)
    sheet.write_title()
    if scale.flat:
        sheet.write_flat_note()


def _draw_curve(sheet: Sheet, ax: Axes, scale: Scale, metric: str, index: int, *, named: bool = True) -> None:
    landscape, factor, x = sheet.landscape, sheet.appearance.factor, sheet.landscape.x
    color, line_style = _color_and_stroke(sheet, index)
    size = factor * (4 if len(x) <= _MANY_POINTS else 2.5)
    measured = known(landscape[metric], landscape.status)
    stderr = landscape.metrics.get(MetricName.read(metric, landscape.metrics).standard_error)
    called = metric_text(landscape, metric)
    if stderr is not None and np.isfinite(stderr).any():
        label = f"{called} ± standard error{_hold_band(ax, measured, stderr)}"
        low, high = held_bar(ax, measured, measured - stderr, measured + stderr)
        band = ax.fill_between(x, low, high, color=color, alpha=0.25, linewidth=0, label=label, zorder=1)
        sheet.entries.append(band)
    measured = scale.held(measured)
    curve = ax.plot(x, measured, color=color, linewidth=1.5 * factor, linestyle=line_style, label=called, zorder=2)
    if named:
        sheet.entries += curve
    for status, name, face in (
        (PointStatus.MEASURED, "measured", color),
        (PointStatus.INTERPOLATED, "interpolated", sheet.appearance.page),
    ):
        where = (landscape.status == status) & np.isfinite(measured)
        if metric == sheet.metric and where.any():
            sheet.entries += ax.plot(
                x[where], measured[where], "o", color=face, markeredgecolor=color, markersize=size,
                markeredgewidth=factor, zorder=3, label=f"{name} points",
            )  # fmt: skip


def _hold_band(ax: Axes, measured: NDArray[Any], stderr: NDArray[Any]) -> str:
    """Makes room for a band, at most half of the values' height at either end; returns in words where it is cut off."""
    bottom, top = ax.get_ylim()
    shown = np.isfinite(measured) & np.isfinite(stderr) & (measured >= bottom) & (measured <= top)
    if not shown.any():
        return ""
    low, high = (measured - stderr)[shown], (measured + stderr)[shown]
    positive = low if ax.get_yscale() != "log" else np.where(low > 0, low, np.nan)
    ends = [np.nanmin(_shares(ax, positive)) if np.isfinite(positive).any() else 0.0, _shares(ax, high).max()]
    # A curve with a single large error stays readable.
    down, up = min(max(-ends[0], 0.0), 0.5), min(max(ends[1] - 1, 0.0), 0.5)
    wanted = _values(ax, [-1.04 * down, 1 + 1.04 * up])
    ax.set_ylim(wanted[0] if down else bottom, wanted[1] if up else top)
    bottom, top = ax.get_ylim()
    cut = [word for word, beyond in (("below", (low < bottom).any()), ("above", (high > top).any())) if beyond]
    return f" (cut off {' and '.join(cut)})" if cut else ""


def _shares(ax: Axes, values: Any) -> NDArray[Any]:
    """Returns the places of values on the vertical axis, as shares of its height."""
    places = np.column_stack([np.zeros(np.size(values)), np.ravel(values)])
    return np.asarray((ax.transScale + ax.transLimits).transform(places)[:, 1])


def _values(ax: Axes, shares: Sequence[float]) -> NDArray[Any]:
    places = np.column_stack([np.zeros(len(shares)), shares])
    return np.asarray((ax.transScale + ax.transLimits).inverted().transform(places)[:, 1])


def held_bar(ax: Axes, heights: NDArray[Any], low: Any, high: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the ends of error bars; where the axis is logarithmic none reaches below its bottom."""
    if ax.get_yscale() == "log":
        low = np.maximum(low, ax.get_ylim()[0])
    there = np.isfinite(heights)
    return np.where(there, low, np.nan), np.where(there, high, np.nan)


def _draw_coarse(sheet: Sheet) -> None:
    look, shown = sheet.appearance, sheet.scale.tall.held(sheet.coarse)
    if not np.isfinite(shown).any():
        return
    from matplotlib.collections import LineCollection

    bounds = edges(sheet.landscape.x)
    steps = np.stack([np.column_stack([ends, shown]) for ends in (bounds[:-1], bounds[1:])], axis=1)
    lines = LineCollection(
        list(steps[np.isfinite(shown)]), colors=look.series[0], linewidths=1.5 * look.factor, linestyles=(0, (1, 1)),
        alpha=0.55, zorder=1.5, label=coarse_text(shown),
    )  # fmt: skip
    sheet.entries.append(sheet.ax.add_collection(lines, autolim=False))


def mark_missing(sheet: Picture, places: NDArray[Any], missing: Mapping[str, NDArray[Any]]) -> None:
    ax, look = sheet.ax, sheet.appearance
    for kind, where in missing.items():
        count = int(where.sum())
        sheet.entries += ax.plot(
            places[where], np.full(count, 0.03), _MISSING[kind], color=look.soft if kind == "pending" else marks.PATH,
            markersize=5 * look.factor, zorder=3, linestyle="none", transform=ax.get_xaxis_transform(),
            label=f"{kind} ({count})",
        )  # fmt: skip


def _draw_right(sheet: Sheet, names: Sequence[str], drawn: int) -> None:
    """Draws metrics against an axis on the right, in other strokes than the curves that are ``drawn`` on the left."""
    landscape, scale, right = sheet.landscape, right_scale(sheet.landscape, names), sheet.ax.twinx()
    set_value_axis(right, scale, metric_text(landscape, names[0]) if len(names) == 1 else _quantities(landscape, names))
    for index, name in enumerate(names, drawn):
        _draw_curve(sheet, right, scale, name, index)
    single = [(right, _color_and_stroke(sheet, drawn)[0])] if len(names) == 1 else []
    for ax, color in (*single, *([(sheet.ax, sheet.appearance.series[0])] if drawn == 1 else [])):
        ax.yaxis.label.set_color(color)
        ax.tick_params(axis="y", labelcolor=color)
    sheet.ax.set_zorder(right.get_zorder() + 1)
    sheet.ax.patch.set_visible(False)


def _draw_checkpoints(sheet: Sheet) -> None:
    from matplotlib.lines import Line2D

    ax, landscape, metric, look = sheet.ax, sheet.landscape, sheet.metric, sheet.appearance
    found, point, called = landscape.checkpoints, landscape.origin, metric_text(landscape, metric)
    diamond: dict[str, Any] = {
        "marker": "D", "markersize": 5 * look.factor, "markeredgecolor": marks.EDGE, "markeredgewidth": look.factor,
        "linestyle": "none",
    }  # fmt: skip
    value = float(sheet.scale.tall.held(point.metrics.get(metric, np.nan)))
    named = [(point.x, value, plain(point.name, 24))]
    if found is not None and metric in found.projected:
        values = sheet.scale.tall.held(found.projected[metric])
        for index, rows in sheet.paths:
            label = f"{plain(found.run_name(rows[0]), 32) or 'checkpoints'} (projected {called})"
            if sheet.times is not None:
                named += _draw_timed_checkpoints(sheet, found, sheet.times, rows, values, index, diamond)
                sheet.entries.append(Line2D([], [], label=label, color=marks.strong_color(index), **diamond))
                continue
            sheet.entries += ax.plot(
                found.x[rows], values[rows], color=marks.run_color(index), zorder=4, label=label, **diamond
            )
            named += [(found.x[row], values[row], str(found.number[row])) for row in rows]
        for row, style in marks.network_marks(landscape):
            label = f"{plain(found.name[row], 32)} (projected {called})"
            sheet.mark(found.x[[row]], values[[row]], label, style, 4)
            named.append((found.x[row], values[row], plain(found.name[row], 24)))
    if found is not None:
        _draw_own_values(sheet, found)
    heights = _shares(ax, [height for _, height, text in named if text])
    if (inside := heights[heights <= 1]).size:
        # Above a mark is room for its name.
        points = ax.get_window_extent().height * 72 / ax.figure.dpi
        highest = float(inside.max()) + (7 * look.factor + 1.3 * look.number_size) / points
        ax.set_ylim(top=max(ax.get_ylim()[1], _values(ax, [highest])[0]))
    for x, height, text in _with_room(sheet, named) if sheet.times is not None else named:
        if np.isfinite(height) and text:
            marks.write_beside(ax, text, (x, height), (0, 7 * look.factor), look.number_size, va="baseline")
    if np.isfinite(value):
        sheet.mark([point.x], [value], marks.origin_label(landscape), marks.STAR, 5)


def _draw_timed_checkpoints(
    sheet: Sheet, found: CheckpointsData, times: Times, rows: NDArray[Any], values: NDArray[Any], index: int,
    style: dict[str, Any],
) -> list[tuple[float, float, str]]:  # fmt: skip
    """Draws a run's checkpoints in the colours of time, those that do not touch; returns the numbers to write."""
    rows = rows[np.isfinite(values[rows])]
    places = np.column_stack([found.x[rows], values[rows]])
    dots = marked(marks.in_points(sheet.ax, places), found.number[rows], 3 * sheet.appearance.factor)
    for row in rows[dots.rows]:
        (color,) = times.colors(index, [found.number[row]])
        sheet.ax.plot(found.x[[row]], values[[row]], color=color, zorder=4, label="_checkpoint", **style)
    sheet.dots.append(dots)
    shown = rows[numbered(found.number[rows], dots.rows)]
    order = shown[most_telling(len(shown))]
    return [(float(found.x[row]), float(values[row]), str(found.number[row])) for row in order]


def _with_room(sheet: Sheet, named: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Returns which names and numbers over their marks do not overlap, the first ones first."""
    size = sheet.appearance.number_size
    points = marks.in_points(sheet.ax, np.array([[x, height] for x, height, _ in named]))
    half = np.array([[0.33 * size * len(text) + 2, 0.6 * size] for _, _, text in named])
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    boxes = np.hstack([points - half, points + half])[known]
    return [named[known[index]] for index in free(boxes, np.empty((0, 4)))]


def _draw_own_values(sheet: Sheet, found: CheckpointsData) -> None:
    """Marks the own values that differ from the drawn ones, each joined to the mark on the curve; says why."""
    if (text := sheet.own_values) is None:
        return
    ax, look, apart = sheet.ax, sheet.appearance, own_values(found, sheet.metric)
    x = found.x[[value.row for value in apart]]
    ends = np.reshape(sheet.scale.tall.held([[value.drawn, value.own] for value in apart]), (-1, 2))
    for across, heights in zip(x, ends, strict=True):
        ax.plot([across, across], heights, linestyle=":", linewidth=look.factor, color=look.soft, zorder=3.5)
    sheet.entries += ax.plot(
        x, ends[:, 1], linestyle="none", marker="D", markersize=6 * look.factor, markerfacecolor="none",
        markeredgecolor=look.ink, markeredgewidth=1.2 * look.factor, zorder=5, label=text,
    )  # fmt: skip


PROFILE = Kind(
    "plot_profile", draw_profile, plane=False, count=8, size=(6.4, 4.4), paper_height=2.5, heights=True, minima=True
)
