"""The scale of a landscape's metric: colours follow the grid alone, heights also reach the path and the origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..grid.data import LandscapeData
from ..grid.differences import own_values
from ..record.checks import PointStatus
from .choosing import Clip, check_clip, choose_scale, is_share, with_place
from .levels import Levels, check_levels
from .scale import Scale, beyond, place_levels, without_place


def landscape_scale(
    landscape: LandscapeData,
    metric: str = "loss",
    scale: str = "auto",
    levels: Levels = None,
    clip: Clip = None,
    *,
    count: int = 12,
    path: bool = True,
    reference: NDArray[Any] | None = None,
) -> Scale:
    """Chooses one landscape's scale as ``choose_scale`` does; with ``path`` heights also reach the path and origin."""
    values = known(landscape[metric], landscape.status)
    chosen = choose_scale(values, scale, levels, clip, count=count, metric=metric, reference=reference)
    reaching = _reaching(chosen, path_values(landscape, metric), clip)
    # Zeros are drawn as the same value in all pictures, whether these have heights or not.
    return reaching if path else replace(chosen, low=reaching.low, bottom=reaching.low)


def joint_scale(
    landscapes: Sequence[LandscapeData],
    metric: str | Sequence[str] = "loss",
    scale: str = "auto",
    levels: Levels = None,
    clip: Clip = None,
    *,
    count: int = 12,
    path: bool = True,
) -> Scale:
    """Chooses one scale that spans what each landscape would choose, as ``assets/02_scales.js`` does on the page."""
    arguments = (scale, levels if isinstance(levels, str | int | None) else None, clip)
    names = [metric] * len(landscapes) if isinstance(metric, str) else metric
    pairs = list(zip(landscapes, names, strict=True))
    values = [known(landscape[name], landscape.status) for landscape, name in pairs]
    positive = [bool((piece > 0).any()) for piece in values]
    # A landscape without a positive value takes no part in "log".
    taking = [pair for pair, some in zip(pairs, positive, strict=True) if scale != "log" or some or not any(positive)]
    if len(taking) == 1:
        return landscape_scale(*taking[0], scale, levels, clip, count=count, path=path)
    everything = np.concatenate([piece.ravel() for piece in values])
    found = [
        landscape_scale(landscape, name, *arguments, count=count, path=path, reference=everything)
        for landscape, name in taking
    ]
    found = [each for each in found if not each.empty]
    if not found:
        return choose_scale(everything, scale, levels, clip, count=count, metric=names[0])
    low, high = min(each.low for each in found), max(each.high for each in found)
    finite = everything[np.isfinite(everything)]
    kinds = {each.kind for each in found}
    kind = found[0].kind if len(kinds) == 1 else "symlog" if "symlog" in kinds else "log" if low > 0 else "linear"
    share = is_share(names[0], float(finite.min()), float(finite.max()))
    if scale == "auto" and kind == "linear" and low > 0 and high > 10 * low and not share:
        kind = "log"
    bottom, top = min(each.bottom for each in found), max(each.top for each in found)
    lower, upper = with_place(kind, *check_clip(clip))
    # A landscape that lies wholly beyond an end has none of its own there.
    low, bottom = (low, bottom) if lower is None else (lower, lower)
    high, top = (high, top) if upper is None else (upper, upper)
    lines, spacing, given = check_levels(levels, count)
    if share and kind == "linear" and spacing == "auto":
        spacing = "linear"
    joint = Scale(
        kind, low, high, np.array([low]), threshold=min(each.threshold for each in found), spacing=spacing,
        bottom=bottom, top=top, **beyond(finite, kind, low, high),
    )  # fmt: skip
    if kind == "log" and bottom <= 0:  # of a path over a linear scale
        reached = np.concatenate([path_values(*pair) for pair in taking])
        joint = _reaching(replace(joint, bottom=low), reached, clip)
    return joint if joint.flat else place_levels(joint, everything, lines, given)


def _reaching(scale: Scale, values: NDArray[Any], clip: Clip) -> Scale:
    """Returns the scale with heights that reach further values, except beyond an end that cuts off values."""
    values = values[np.isfinite(values)]
    if scale.kind == "log":
        scale = replace(scale, no_place=max(scale.no_place, without_place(values)))
        values = values[values > 0]
    if scale.empty or not len(values):
        return scale
    lower, upper = clip if isinstance(clip, tuple) else (None, clip)
    fixed_below, fixed_above = scale.clipped_below or lower is not None, scale.clipped_above or upper is not None
    bottom = scale.bottom if fixed_below else min(scale.bottom, float(values.min()))
    top = scale.top if fixed_above else max(scale.top, float(values.max()))
    # What has no logarithm is drawn at the lower end, and may not stand above a path that is lower.
    low = bottom if scale.no_place else scale.low
    return replace(scale, low=low, bottom=bottom, top=top)


def known(values: NDArray[Any], status: NDArray[Any]) -> NDArray[Any]:
    """Returns the values, NaN where one is unknown or not finite."""
    there = np.isfinite(values) & (status != PointStatus.PENDING) & (status != PointStatus.FAILED)
    return np.where(there, values, np.nan)


def missing_kinds(
    values: NDArray[Any], status: NDArray[Any], coarse: NDArray[Any] | None = None
) -> dict[str, NDArray[Any]]:
    """Returns where each kind of missing value occurs, by kind; arrays of the grid's shape."""
    pending, failed = status == PointStatus.PENDING, status == PointStatus.FAILED
    kinds = {"pending": pending, "failed": failed, "not finite": ~np.isfinite(values) & ~pending & ~failed}
    if coarse is not None:
        kinds["pending"] = pending & np.isnan(coarse)
    return {kind: where for kind, where in kinds.items() if where.any()}


def path_values(landscape: LandscapeData, metric: str) -> NDArray[Any]:
    """Returns values of projected checkpoints, of the origin and, on a line, own values that differ; shape (k,)."""
    found, origin = landscape.checkpoints, landscape.origin.metrics.get(metric, np.nan)
    projected = np.empty(0) if found is None else found.projected.get(metric, np.empty(0))
    differing = own_values(found, metric) if landscape.y is None else []
    return np.concatenate([projected, [value.own for value in differing], [origin]])
