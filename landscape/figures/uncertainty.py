"""How uncertain a surface is, as maps: by the samples it was measured on, and by what was interpolated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np

from collectors.validation import wrong_type
from workers.metric_names import MetricName

from ..drawing.texts import metric_text
from ..grid.data import LOSS_ERROR, LandscapeData
from .multiples import plot_multiples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..drawing.look import Look


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
    if landscape.y is None:
        raise ValueError(
            "plot_uncertainty needs a plane, but the landscape is a line; plot_profile draws a line with its band."
        )
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
