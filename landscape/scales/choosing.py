"""Which values a picture spans, and where it draws lines: chosen from the data."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64
from collectors.validation import check_choice, wrong_type, wrong_value

from .levels import Levels, check_levels, number_text
from .scale import EXTREME, Scale, beyond, place_levels

Clip = float | tuple[float | None, float | None] | None

SCALES = ("auto", "log", "linear", "symlog")
# Metrics with such a word in their name fall like a loss, even where they are bounded: their small values matter.
_LOSS_LIKE = ("loss", "error", "mse", "mae", "entropy", "nll", "divergence", "distance", "norm")
# So many of the values get at least so many of the colours.
_BULK, _BULK_COLOURS = 0.95, 0.6
# Below the first, values between 0 and 1 are just small numbers; a mean of ones in float32 may round above 1.
_SMALLEST_SHARE, _LARGEST_SHARE = 0.1, 1 + 1e-6


def choose_scale(
    values: Float64[np.ndarray, "*shape"],
    scale: str = "auto",
    levels: Levels = None,
    clip: Clip = None,
    *,
    count: int = 12,
    symmetric: bool = False,
    metric: str = "loss",
    reference: NDArray[Any] | None = None,
) -> Scale:
    """Chooses how to draw values; NaN and infinities are ignored.

    "auto" is logarithmic where all values are positive (or zero) and span more than a decade, logarithmic around zero
    where there are both signs and the largest size is more than 100 times the median one, else linear. It is also
    linear for a metric that is no loss and has values from 0 to 1, such as an accuracy: its distance from 0 has no
    special meaning. 95 % of the values get at least 60 % of the colours: outliers that would take more are clipped, and
    the label says so. Shares are never clipped. Lines lie at round numbers spaced like the scale; where these leave
    nearly all of a smooth surface without a line, at quantiles, and the label says so.

    Args:
        values: any shape.
        scale: "auto", "log", "linear" or "symlog".
        levels: about how many lines to draw, how they are spaced ("linear", "log", "quantile"), or their values.
        clip: the largest value with a colour of its own, or (smallest, largest); None chooses an end from the data.
        count: about how many lines where ``levels`` does not say.
        symmetric: whether zero lies in the middle.
        metric: the name of what is drawn.
        reference: of which ``clip`` must hold a value, where these values are a part of what is drawn.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: scale or levels are unknown, clip is no range or holds no value, or scale is "log" and no value is
            positive.
    """
    check_choice("scale", scale, SCALES)
    count, spacing, given = check_levels(levels, count)
    lower, upper = check_clip(clip)
    measured = values[np.isfinite(values)]
    if symmetric:
        if scale == "log":
            raise wrong_value("scale", "'auto', 'linear' or 'symlog' where values have both signs", scale)
        largest = max((abs(end) for end in (lower, upper) if end is not None), default=None)
        lower, upper = (None, None) if largest is None else (-largest, largest)
        values = np.stack([values, -values])
    finite = np.sort(values[np.isfinite(values)].ravel())
    if not len(finite):
        return Scale("linear", math.nan, math.nan, np.empty(0))
    drawn = measured if reference is None else reference[np.isfinite(reference)]
    first, last = (-math.inf if lower is None else lower), (math.inf if upper is None else upper)
    # A picture may not lie wholly beyond its clip.
    if len(drawn) and not ((drawn >= first) & (drawn <= last)).any():
        ends = f"{number_text(float(drawn.min()))} to {number_text(float(drawn.max()))}"
        raise wrong_value("clip", f"a range that holds some of the values, which go from {ends}", (lower, upper))
    finite = np.clip(finite, -EXTREME, EXTREME)
    share = is_share(metric, 0.0 if symmetric else float(finite[0]), float(finite[-1]))
    kind = scale if scale != "auto" else "linear" if share else _kind(finite)
    positive = finite[finite > 0]
    if kind == "log" and not len(positive):
        raise wrong_value("scale", "'linear' or 'symlog' where no value is positive", scale)
    threshold = 1.0
    if kind == "symlog":
        sizes = np.abs(finite[finite != 0])
        smallest = max(np.quantile(sizes, 0.1), 1e-12 * sizes.max()) if len(sizes) else 1.0
        threshold = 10.0 ** math.floor(math.log10(max(smallest, 1 / EXTREME)))
    bare = Scale(kind, 0, 0, np.empty(0), threshold=threshold)
    low, high = _range(positive if kind == "log" else finite, bare, symmetric=symmetric)
    if scale == "auto" and kind == "log" and high <= 10 * low:
        # Without its outliers the bulk spans less than a decade.
        kind = "linear"
        low, high = _range(finite, Scale(kind, 0, 0, np.empty(0)))
    if share and not symmetric:
        # Between 0 and 1 nothing lies far away.
        low, high = float(finite[0] if kind != "log" else positive[0]), float(finite[-1])
    lower, upper = with_place(kind, lower, upper)
    low, high = (low if lower is None else lower), (high if upper is None else upper)
    if low >= high:
        # What was taken for outliers is all that the given end leaves.
        shown = positive if kind == "log" else finite
        low, high = (float(shown[0]) if lower is None else low), (float(shown[-1]) if upper is None else high)
    if is_flat(low, high):
        return Scale(kind, low, low, np.array([low]), threshold=threshold)
    if share and kind == "linear" and spacing == "auto":
        # Round shares are read at a glance, even where most of the plane lies at chance level and has no line.
        spacing = "linear"
    clipped = beyond(measured, kind, low, high)
    bare = Scale(kind, low, high, np.empty(0), threshold=threshold, spacing=spacing, **clipped)
    return place_levels(bare, values, count, given)


def is_flat(low: float, high: float) -> bool:
    """Returns whether two values, the smallest and the largest, differ by no more than rounding."""
    return bool(high - low <= 8 * np.finfo(np.float64).eps * max(abs(low), abs(high)))


def is_share(metric: str, low: float, high: float) -> bool:
    """Returns whether values, or the sizes of differences, are shares from 0 to 1; a loss never is."""
    return high >= _SMALLEST_SHARE and may_be_share(metric, low, high)


def may_be_share(metric: str, low: float, high: float) -> bool:
    """Returns whether values from low to high can be shares from 0 to 1 beside larger ones; a loss never is."""
    words = re.split(r"[\W_]+", metric.partition("@")[0].lower())
    # "logloss" and "rmse" end like losses; "loss2" and "normalized accuracy" only begin so.
    falls = any(word.endswith(_LOSS_LIKE) for word in words)
    return low >= 0 and high <= _LARGEST_SHARE and not falls


def _kind(finite: NDArray[Any]) -> str:
    low, high = finite[0], finite[-1]
    positive = finite[finite > 0]
    if low >= 0 and len(positive) and high > 10 * max(positive[0], 1 / EXTREME):
        return "log"
    sizes = np.abs(finite)
    typical = max(float(np.median(sizes)), 1 / EXTREME)
    return "symlog" if low < 0 < high and sizes.max() > 100 * typical else "linear"


def with_place(kind: str, *ends: float | None) -> list[float | None]:
    """Returns the ends that a user gave, None for one that a scale of this kind cannot hold."""
    return [None if end is None or (kind == "log" and end <= 0) else end for end in ends]


def _range(finite: NDArray[Any], scale: Scale, *, symmetric: bool = False) -> tuple[float, float]:
    """Returns the ends of the colours, which leave at least 60 % of these to at least 95 % of the ascending values."""
    bounded = np.maximum(finite, 1 / EXTREME) if scale.kind == "log" else finite
    heights = scale.forward(bounded)
    left_out = math.floor((1 - _BULK) * len(heights) + 1e-9)
    start = 0
    if symmetric:
        start, left_out = left_out // 2, left_out // 2 * 2
    elif scale.kind == "log":
        # The depth of a minimum is what one looks for, unless it is three decades below nearly everything else.
        near, middle = np.quantile(heights, [0.05, 0.95])
        if middle > near:
            lowest = int(np.searchsorted(heights, near - 3 * (middle - near) - 3))
            heights, bounded = heights[lowest:], bounded[lowest:]
            left_out = max(left_out - lowest, 0)
    elif finite[0] < 0:
        # Of all stretches that hold so many values, the shortest one.
        start = int(np.argmin(heights[len(heights) - left_out - 1 :] - heights[: left_out + 1]))
    bottom, top = heights[start], heights[len(heights) - 1 - left_out + start]
    spare = (top - bottom) * (1 / _BULK_COLOURS - 1)
    below, above = bottom - heights[0], heights[-1] - top
    if spare == 0 or below + above <= spare:
        return float(bounded[0]), float(bounded[-1])
    # An end that needs less than its half leaves the rest to the other; colours end at a value that there is.
    room_below, room_above = max(spare / 2, spare - above), max(spare / 2, spare - below)
    first = np.searchsorted(heights, bottom - room_below)
    last = np.searchsorted(heights, top + room_above, side="right") - 1
    return float(bounded[first]), float(bounded[last])


def check_clip(clip: Clip) -> tuple[float | None, float | None]:
    """Returns the smallest and the largest value with a colour of its own, None where the data choose it."""
    ends = clip if isinstance(clip, tuple) else (None, clip)
    if len(ends) != 2:
        raise wrong_value("clip", "a number or a pair (smallest, largest)", clip)
    for end in ends:
        if end is not None and (isinstance(end, bool) or not isinstance(end, int | float | np.number)):
            raise wrong_type("clip", "a number, a pair (smallest, largest) or None", clip)
        if end is not None and not math.isfinite(end):
            raise wrong_value("clip", "finite", clip)
    low, high = ends
    if low is not None and high is not None and not low < high:
        raise wrong_value("clip", "a pair whose first number is the smaller", clip)
    first, last = (None if end is None else float(np.clip(end, -EXTREME, EXTREME)) for end in ends)
    return first, last
