"""Sharpness over a training run: the largest eigenvalues of the loss's curvature at each checkpoint, and their sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64
from collectors.validation import check_choice, wrong_type, wrong_value

from ..drawing.look import Axes, CurvatureLook
from ..drawing.sheet import (
    CurvatureSheet,
    MeasuredCurvature,
    begin_picture,
    ends_of,
    set_value_axis,
    symbol,
    unconverged,
)
from ..scales.choosing import SCALES, choose_scale
from ..scales.landscape_scale import missing_kinds
from ..scales.scale import Scale
from .profile import held_bar, mark_missing

_MANY = 41
# The faintest of the further eigenvalues keeps so much of its colour.
_FAINTEST = 0.35
# A lower end of an error bar may reach so far below the smallest value before it is cut off.
_BELOW = 0.3


def plot_sharpness(
    curvature: MeasuredCurvature,
    ax: Axes | None = None,
    *,
    learning_rate: float | Sequence[float] | None = None,
    scale: str = "auto",
    **look: Unpack[CurvatureLook],
) -> Axes:
    """Draws the eigenvalues at each checkpoint, with the trace and its 95 % interval.

    Bars show each eigenvalue's residual; where it is larger than what was asked for, the mark is hollow. Checkpoints
    without a value are marked at the bottom, and nothing is drawn across them.

    Args:
        curvature: at n checkpoints.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        learning_rate: of training, one or n; 2 / learning rate is where plain gradient descent becomes unstable
            (Cohen et al. 2021). None takes what the curvature holds of the run, if anything.
        scale: "auto", "log", "linear" or "symlog" (logarithmic on both sides of zero).
        **look: theme, style, title, size; see ``CurvatureLook``.

    Returns:
        The axes.

    Raises:
        TypeError: an argument is unknown or has the wrong type.
        ValueError: an argument has a wrong value.
    """
    check_choice("scale", scale, SCALES)
    limit = 2 / _rates(curvature, learning_rate)
    with begin_picture(CurvatureSheet, "plot_sharpness", ax, look, 3.3, curvature=curvature) as sheet:
        chosen = choose_values(curvature, limit, scale)
        set_value_axis(sheet.ax, chosen, "eigenvalue, in loss / distance²")
        if np.isfinite(curvature.trace).any():
            _draw_trace(sheet, chosen)
        _draw_eigenvalues(sheet, chosen)
        _draw_limit(sheet, limit)
        _order_entries(sheet)
        missing = missing_kinds(np.zeros(len(curvature.number)), curvature.status)
        mark_missing(sheet, curvature.number, missing)
        _write(sheet, chosen)
        sheet.finish()
    return sheet.ax


def choose_values(curvature: MeasuredCurvature, limit: NDArray[Any], scale: str) -> Scale:
    """Returns an axis that holds every value, and the bars around them as far as they do not crush the values."""
    values, residuals = curvature.eigenvalues.ravel(), curvature.residuals.ravel()
    central = np.append(values, curvature.trace)
    central = central[np.isfinite(central)]
    spans = np.concatenate([values - residuals, values + residuals, curvature.trace_interval.ravel()])
    if len(central) and (central > 0).all():
        spans = np.maximum(spans, _BELOW * central.min())
    everything = np.concatenate([central, spans, limit])
    everything = everything[np.isfinite(everything)]
    clip = (float(everything.min()), float(everything.max())) if len(np.unique(everything)) > 1 else None
    return choose_scale(everything, scale, None, clip, count=8, metric="eigenvalue norm")


def _rates(curvature: MeasuredCurvature, given: object) -> NDArray[Any]:
    count = len(curvature.number)
    expected = f"a positive number, or {count} of them (one for each checkpoint)"
    if given is None:
        recorded = curvature.attributes.get("learning_rate")
        if isinstance(recorded, Mapping):
            return np.array([recorded.get(str(number), np.nan) for number in curvature.number], np.float64)
        given = np.full(count, np.nan) if recorded is None else recorded
    if isinstance(given, bool | str):
        raise wrong_type("learning_rate", expected, given)
    try:
        rates = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise wrong_type("learning_rate", expected, given) from None
    if rates.shape not in ((), (count,)) or (rates <= 0).any() or np.isinf(rates).any():
        raise wrong_value("learning_rate", expected, given)
    return np.broadcast_to(rates, (count,))


def _draw_eigenvalues(sheet: CurvatureSheet, scale: Scale) -> None:
    """Draws the largest eigenvalue strongly, further ones ever fainter, and the lower end in another colour."""
    from matplotlib.colors import to_rgb

    look, (top, bottom) = sheet.appearance, ends_of(sheet.curvature)
    loose, strong, page = unconverged(sheet.curvature), np.array(to_rgb(look.series[0])), np.array(to_rgb(look.page))
    for place in reversed(range(top)):
        share = 1 - (1 - _FAINTEST) * place / max(top - 1, 1)
        color = tuple((share * strong + (1 - share) * page).tolist())
        style = {"color": color, "linewidth": (2.0 if place == 0 else 1.1) * look.factor, "zorder": 4 - place / top}
        curve = _draw_curve(sheet, scale, place, loose[:, place], style)
        if place == top - 1 and top > 1:
            between = "" if top == 2 else f" to {symbol(top)}"
            curve.set_label(f"{symbol(2)}{between} (the next largest)")
            sheet.entries.append(curve)
        if place == 0:
            curve.set_label(f"{symbol(1)}, the largest eigenvalue")
            sheet.entries.append(curve)
    lowest = {"color": look.series[1], "linewidth": 1.5 * look.factor, "linestyle": "--", "zorder": 4}
    curves = [_draw_curve(sheet, scale, place, loose[:, place], lowest) for place in range(top, top + bottom)]
    if curves:
        curves[0].set_label("the lowest eigenvalue" if bottom == 1 else f"the {bottom} lowest eigenvalues")
        sheet.entries.append(curves[0])
    if loose.any():
        sheet.entries += sheet.ax.plot(
            [], [], "o", markerfacecolor=look.page, color=look.ink, markersize=5 * look.factor,
            label="not converged: see its bar",
        )  # fmt: skip


def _draw_curve(sheet: CurvatureSheet, scale: Scale, place: int, loose: NDArray[Any], style: dict[str, Any]) -> Any:
    ax, look, found = sheet.ax, sheet.appearance, sheet.curvature
    heights, shown = _shown(found.eigenvalues[:, place], scale)
    residuals, size = found.residuals[:, place], look.factor * (4 if len(heights) <= _MANY else 2.5)
    (curve,) = ax.plot(found.number, heights, **style)
    for where, face in ((shown & ~loose, style["color"]), (shown & loose, look.page)):
        ax.plot(
            found.number[where], heights[where], "o", color=style["color"], markerfacecolor=face, markersize=size,
            markeredgewidth=look.factor, zorder=style["zorder"] + 0.01,
        )  # fmt: skip
    low, high = held_bar(ax, heights, heights - residuals, heights + residuals)
    ax.vlines(found.number[shown], low[shown], high[shown], color=style["color"], linewidth=look.factor, alpha=0.8)
    return curve


def _shown(values: NDArray[Any], scale: Scale) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns values, NaN where the axis cannot show one, and where it can."""
    shown = np.isfinite(values) & ((values > 0) | (scale.kind != "log"))
    return np.where(shown, values, np.nan), shown


def _draw_trace(sheet: CurvatureSheet, scale: Scale) -> None:
    ax, look, found, color = sheet.ax, sheet.appearance, sheet.curvature, sheet.appearance.series[2]
    heights, shown = _shown(found.trace, scale)
    sheet.entries += ax.plot(
        found.number, heights, ":", color=color, linewidth=1.8 * look.factor, marker="s",
        markersize=look.factor * (3.5 if len(heights) <= _MANY else 2), zorder=2, label="trace, the sum of all",
    )  # fmt: skip
    interval = found.trace_interval
    if np.isfinite(interval).any():
        low, high = held_bar(ax, heights, interval[:, 0], interval[:, 1])
        label = "its 95 % interval" + (" (cut off below)" if (low[shown] > interval[shown, 0]).any() else "")
        band = ax.fill_between(found.number, low, high, color=color, alpha=0.25, linewidth=0, zorder=1, label=label)
        # A band between checkpoints says nothing where one stands alone.
        ax.vlines(found.number[shown], low[shown], high[shown], color=color, linewidth=look.factor, zorder=1.5)
        sheet.entries.append(band)


def _draw_limit(sheet: CurvatureSheet, limit: Float64[np.ndarray, " n"]) -> None:
    if not np.isfinite(limit).any():
        return
    ax, look = sheet.ax, sheet.appearance
    style: dict[str, Any] = {
        "color": look.ink, "linewidth": 1.2 * look.factor, "linestyle": (0, (6, 3)), "zorder": 3,
        "label": "2 / learning rate (gradient descent's limit)",
    }  # fmt: skip
    if len(np.unique(limit)) == 1:
        sheet.entries.append(ax.axhline(float(limit[0]), **style))
    else:
        sheet.entries += ax.plot(sheet.curvature.number, limit, **style)


def _order_entries(sheet: CurvatureSheet) -> None:
    """Puts what the legend names into the order in which the picture shows it from top to bottom."""
    heights: list[float] = []
    for entry in sheet.entries:
        # A band is the interval of the curve before it.
        values = np.asarray(entry.get_ydata() if hasattr(entry, "get_ydata") else heights[-1], np.float64)
        values = values[np.isfinite(values)]
        heights.append(float(np.median(values)) if len(values) else -np.inf)
    pairs = zip(heights, sheet.entries, strict=True)
    sheet.entries[:] = [entry for _, entry in sorted(pairs, key=lambda pair: -pair[0])]


def _write(sheet: CurvatureSheet, scale: Scale) -> None:
    from matplotlib.ticker import MaxNLocator

    ax, look, found = sheet.ax, sheet.appearance, sheet.curvature
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    first, last = int(found.number[0]), int(found.number[-1])
    margin = 0.03 * (last - first) or 1.0
    ax.set_xlim(first - margin, last + margin)
    if first == last:
        ax.set_xticks([first])
    ax.set_xlabel(sheet.unit)
    ax.grid(alpha=look.grid_alpha)
    name, notes = sheet.network, []
    values = np.append(found.eigenvalues, found.trace)
    values = values[np.isfinite(values)]
    if hidden := len(values) - int(_shown(values, scale)[1].sum()):
        notes.append(f"{hidden} value{'' if hidden == 1 else 's'} at or below 0, which a log scale cannot show")
    if not len(values):
        notes.append("nothing measured yet")
    elif scale.flat:
        ax.margins(y=0.2)
    sheet.write_title(f"sharpness of {name}" if name else f"sharpness: {sheet.matrix}'s eigenvalues", *notes)
