"""A plane seen from above: colours, labelled contour lines, the path across them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.network_state import Array
from collectors.validation import check_bool

from .canvas import new_axes
from .legend import draw_legend
from .missing import draw_missing, edges, known
from .path import annotate, draw_path, free, halo, path_pixels
from .scales import Clip, Scale, choose_scale, number_text
from .texts import axis_label, flat_note, plain, status_note, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..surface import Landscape


def plot_contour(
    landscape: Landscape,
    ax: Axes | None = None,
    metric: str = "loss",
    levels: int = 12,
    scale: str = "auto",
    colormap: str = "viridis",
    trajectory: bool = True,
    clip: Clip = None,
) -> Axes:
    """Draws a plane's metric as filled contours, with the trajectory and the convergence point.

    Args:
        landscape: a plane; ``metric[j, i]`` is drawn at ``(x[i], y[j])``.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        metric: which of the landscape's metrics.
        levels: about how many lines.
        scale: "auto", "log", "linear" or "symlog" (logarithmic on both sides of zero).
        colormap: matplotlib's name of the colours.
        trajectory: whether the path and the convergence point are drawn.
        clip: the largest value to tell apart, or (smallest, largest); None chooses from the data.

    Returns:
        The axes.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the landscape is a line, or an argument has a wrong value.
        TypeError: an argument has the wrong type.
    """
    if landscape.y is None:
        raise ValueError("plot_contour needs a plane, but the landscape is a line; use plot_profile.")
    check_bool("trajectory", trajectory)
    values, x, y = landscape[metric], landscape.x, landscape.y
    measured = known(values, landscape.status)
    chosen = choose_scale(measured, scale, levels, clip)
    own = ax is None
    ax = new_axes(6.4, 5.6) if ax is None else ax
    across, up = edges(x), edges(y)
    ax.set_xlim(*(x[[0, -1]] if len(x) > 1 else across))
    ax.set_ylim(*(y[[0, -1]] if len(y) > 1 else up))
    entries: list[Any] = draw_missing(ax, x, y, values, landscape.status)
    lines = None if chosen.empty else _draw_values(ax, x, y, measured, chosen, colormap, plain(metric))
    if trajectory:
        draw_path(ax, landscape)
        entries = [*ax.get_legend_handles_labels()[0], *entries]
    ax.set_xlabel(axis_label(landscape, 0))
    ax.set_ylabel(axis_label(landscape, 1))
    note = status_note(landscape)
    ax.set_title("\n".join([title(landscape), *([note] if note else [])]), fontsize="medium")
    if chosen.flat:
        text = flat_note(plain(metric), chosen.low, number_text(chosen.low), measured)
        box = {"boxstyle": "round", "facecolor": "white", "alpha": 0.85, "edgecolor": "0.6"}
        ax.text(0.5, 0.93, text, transform=ax.transAxes, ha="center", va="center", bbox=box, zorder=8)
    draw_legend(ax, entries, outside=own)
    if own:
        # Labels are placed in pixels, so the axes must be where they stay.
        ax.figure.get_layout_engine().execute(ax.figure)  # type: ignore[union-attr, arg-type]
    taken = path_pixels(ax, landscape) if trajectory else np.empty((0, 4))
    boxes = np.empty((0, 4)) if lines is None else _label_lines(ax, lines, chosen, taken)
    if trajectory and landscape.trajectory is not None:
        annotate(ax, landscape.trajectory, boxes)
    return ax


def _draw_values(ax: Axes, x: Array, y: Array, measured: Array, scale: Scale, colormap: str, metric: str) -> Any:
    """Returns the contour lines, or None where the values allow none."""
    shown = scale.drawn(measured)
    contours = not scale.flat and min(shown.shape) > 1
    norm = scale.norm()
    drawn: Any = None
    if not contours or not np.isfinite(shown).all():
        # Contours need four neighbours with values; beside a gap, each cell shows its own value.
        drawn = ax.pcolormesh(
            edges(x), edges(y), np.ma.masked_invalid(shown), norm=norm, cmap=colormap, zorder=1, rasterized=True
        )
    lines = None
    if contours and (np.isfinite(shown[:-1, :-1]) & np.isfinite(shown[1:, 1:])).any():
        finite = np.ma.masked_invalid(shown)
        drawn = ax.contourf(x, y, finite, scale.bands(), norm=norm, cmap=colormap, extend=scale.extend, zorder=1.2)
        # Between antialiased bands a PDF viewer would show hairlines.
        drawn.set_edgecolor("face")
        drawn.set_linewidth(0.3)
        lines = ax.contour(x, y, finite, scale.levels, colors="black", linewidths=0.6, alpha=0.5, zorder=2)
    if drawn is not None and not scale.flat:
        ends: dict[str, Any] = {"extend": scale.extend} if lines is None else {}
        bar = ax.figure.colorbar(drawn, ax=ax, pad=0.02, **ends)
        bar.set_ticks(scale.levels.tolist(), labels=scale.texts())
        bar.minorticks_off()
        bar.set_label(scale.label(metric))
    return lines


def _label_lines(ax: Axes, lines: Any, scale: Scale, taken: Array) -> Array:
    """Writes their values on the lines where there is room; returns the labels' boxes in pixels."""
    names = dict(zip(lines.levels.tolist(), scale.texts(), strict=True))
    texts = list(ax.clabel(lines, fmt=names, fontsize=7.5, inline=False, colors="black", zorder=3))
    for text in texts:
        text.set_alpha(1.0)
        text.set_path_effects(halo(1.6, "white"))
    frame = np.array(ax.get_window_extent().extents)
    boxes = np.array([text.get_window_extent().extents for text in texts]).reshape(-1, 4)
    margin = 2 * ax.figure.dpi / 72
    padded = boxes + np.array([-margin, -margin, margin, margin])
    inside = (boxes[:, :2] >= frame[:2]).all(axis=1) & (boxes[:, 2:] <= frame[2:]).all(axis=1)
    candidates = np.flatnonzero(inside)
    kept = set(candidates[free(padded[candidates], taken)].tolist())
    for index, text in enumerate(texts):
        if index not in kept:
            text.remove()
    return boxes[sorted(kept)]
