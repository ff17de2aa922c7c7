"""A line through weight space: the metric along it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collectors.validation import check_bool

from ..landscape_data import PointStatus
from .canvas import new_axes
from .legend import draw_legend
from .missing import known, missing_kinds
from .path import STAR, with_path
from .scales import Clip, Scale, choose_scale, number_text
from .texts import axis_label, flat_note, plain, status_note, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..surface import Landscape

_COLOR = "#2a6f97"
_PATH = "#e5383b"
_MISSING = {"pending": (".", "0.6"), "failed": ("x", "#c1121f"), "not finite": ("^", "#c1121f")}


def plot_profile(
    landscape: Landscape,
    ax: Axes | None = None,
    metric: str = "loss",
    levels: int = 8,
    scale: str = "auto",
    trajectory: bool = True,
    clip: Clip = None,
) -> Axes:
    """Draws a line's metric with its points, its standard error where there is one, and the checkpoints on it.

    Args:
        landscape: a line; ``metric[i]`` is drawn at ``x[i]``.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        metric: which of the landscape's metrics.
        levels: about how many ticks.
        scale: "auto", "log", "linear" or "symlog" (logarithmic on both sides of zero).
        trajectory: whether the checkpoints and the convergence point are drawn.
        clip: the largest value to show, or (smallest, largest); None chooses from the data.

    Returns:
        The axes.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a plane, or an argument has a wrong value.
        TypeError: an argument has the wrong type.
    """
    if landscape.y is not None:
        raise ValueError("plot_profile needs a line, but the landscape is a plane; use plot_contour.")
    check_bool("trajectory", trajectory)
    measured = known(landscape[metric], landscape.status)
    chosen = choose_scale(with_path(landscape, metric, measured) if trajectory else measured, scale, levels, clip)
    own = ax is None
    ax = new_axes(6.4, 4.4) if ax is None else ax
    _set_scale(ax, chosen)
    x = landscape.x
    stderr = landscape.metrics.get(f"{metric}_stderr")
    if stderr is not None and np.isfinite(stderr).any():
        low, high = measured - stderr, measured + stderr
        if chosen.kind == "log":
            low = np.maximum(low, np.where(np.isfinite(measured), 1e-300, np.nan))
        label = f"{plain(metric)} ± standard error"
        ax.fill_between(x, low, high, color=_COLOR, alpha=0.25, linewidth=0, label=label, zorder=1)
    ax.plot(x, measured, color=_COLOR, linewidth=1.3, zorder=2)
    for status, name, face in (
        (PointStatus.MEASURED, "measured", _COLOR),
        (PointStatus.INTERPOLATED, "interpolated", "white"),
    ):
        where = (landscape.status == status) & np.isfinite(measured)
        if where.any():
            ax.plot(
                x[where], measured[where], "o", color=face, markeredgecolor=_COLOR, markersize=4, zorder=3,
                label=f"{name} points",
            )  # fmt: skip
    for kind, where in missing_kinds(landscape[metric], landscape.status).items():
        marker, color = _MISSING[kind]
        places = x[where]
        # At the bottom of the picture: these points have a place, but no value.
        ax.plot(
            places, np.full(len(places), 0.03), marker, color=color, markersize=5, zorder=3,
            transform=ax.get_xaxis_transform(), label=f"{kind} ({len(places)})",
        )  # fmt: skip
    if trajectory:
        _draw_checkpoints(ax, landscape, metric)
    ax.set_xlabel(axis_label(landscape, 0))
    ax.set_ylabel(chosen.label(plain(metric)))
    ax.grid(alpha=0.25)
    note = status_note(landscape)
    ax.set_title("\n".join([title(landscape), *([note] if note else [])]), fontsize="medium")
    if chosen.flat:
        text = flat_note(plain(metric), chosen.low, number_text(chosen.low), measured)
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.6"}
        ax.text(0.5, 0.93, text, transform=ax.transAxes, ha="center", va="center", bbox=box)
    draw_legend(ax, ax.get_legend_handles_labels()[0], outside=own)
    return ax


def _set_scale(ax: Axes, scale: Scale) -> None:
    if scale.flat:
        return
    if scale.kind == "log":
        ax.set_yscale("log")
    elif scale.kind == "symlog":
        ax.set_yscale("symlog", linthresh=scale.threshold)
    ax.set_yticks(scale.levels, labels=scale.texts())
    ax.set_yticks([], minor=True)
    heights = scale.forward(np.array([scale.low, scale.high]))
    bottom, top = scale.height_values(heights + np.array([-0.1, 0.06]) * np.ptp(heights))
    ax.set_ylim(bottom, top)


def _draw_checkpoints(ax: Axes, landscape: Landscape, metric: str) -> None:
    path = landscape.trajectory
    if path is not None and metric in path.projected and len(path.number):
        values = path.projected[metric]
        ax.plot(
            path.x, values, linestyle="none", marker="D", markersize=5, color=_PATH, markeredgecolor="0.1", zorder=4,
            label=f"checkpoints (projected {plain(metric)})",
        )  # fmt: skip
        for number, x, value in zip(path.number, path.x, values, strict=True):
            if np.isfinite(value):
                ax.annotate(str(number), (x, value), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8)
    point = landscape.convergence
    value = point.metrics.get(metric, float("nan"))
    if np.isfinite(value):
        ax.plot([point.x], [value], linestyle="none", label="convergence point", zorder=5, **STAR)
