"""Which values a picture spans, how they become heights and colours, and where it draws lines: chosen from the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_choice, wrong_type, wrong_value

from .levels import (
    Levels,
    check_levels,
    covering_ticks,
    crowded,
    decade_levels,
    linear_levels,
    number_text,
    quantile_levels,
    symmetric_decades,
)

if TYPE_CHECKING:
    from jaxtyping import Float64
    from matplotlib.colors import Normalize


Clip = float | tuple[float | None, float | None] | None

SCALES = ("auto", "log", "linear", "symlog")
# Matplotlib's contours end at 1e250.
_EXTREME = 1e200
# Metrics with such a word in their name fall like a loss, even where they are bounded: their small values matter.
_LOSS_LIKE = ("loss", "error", "mse", "mae", "entropy", "nll", "divergence", "distance", "norm")
# So many of the values get at least so many of the colours.
_BULK, _BULK_COLOURS = 0.95, 0.6
# Below the first, values between 0 and 1 are just small numbers; a mean of ones in float32 may round above 1.
_SMALLEST_SHARE, _LARGEST_SHARE = 0.1, 1 + 1e-6


@dataclass(frozen=True)
class Scale:
    """How values become heights and colours.

    Attributes:
        kind: "linear", "log" or "symlog" (logarithmic on both sides of zero).
        low: the lower end; smaller values are drawn like this one.
        high: the upper end; larger values are drawn like this one.
        levels: where lines and ticks lie, ascending, inside low to high.
        clipped_below: whether the data have values below low.
        clipped_above: whether the data have values above high.
        threshold: below this magnitude "symlog" is linear.
        spacing: how the levels were chosen: "linear", "log", "symlog", "quantile", or "given".
        bottom: how far down heights reach, at most low; a path may lie lower than every grid point. NaN is low.
        top: how far up heights reach, at least high. NaN is high.
    """

    kind: str
    low: float
    high: float
    levels: Float64[np.ndarray, " k"]
    clipped_below: bool = False
    clipped_above: bool = False
    threshold: float = 1.0
    spacing: str = "auto"
    bottom: float = math.nan
    top: float = math.nan

    def __post_init__(self) -> None:
        for name, end in (("bottom", self.low), ("top", self.high)):
            if math.isnan(getattr(self, name)):
                object.__setattr__(self, name, end)

    @property
    def tall(self) -> Scale:
        """The scale of heights: as far as they reach, with levels up to there."""
        if self.bottom == self.low and self.top == self.high:
            return self
        tall = replace(self, low=self.bottom, high=self.top)
        return place_levels(replace(tall, spacing=self.kind), self.levels, max(len(self.levels), 8), None)

    @property
    def flat(self) -> bool:
        """Whether there are no differences to draw: no finite value, or only one."""
        return not self.high > self.low

    @property
    def empty(self) -> bool:
        """Whether there is no finite value."""
        return math.isnan(self.low)

    @property
    def extend(self) -> str:
        """Which ends of a colour bar stand for values beyond, in matplotlib's words."""
        return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[
            self.clipped_below, self.clipped_above
        ]

    def drawn(self, values: NDArray[Any]) -> NDArray[Any]:
        """Returns the values for contours, unclipped; values that have no logarithm lie just below ``low``.

        A contour is interpolated between neighbours, so values beyond the ends must stay where they are.
        """
        finite = np.where(np.isfinite(values), np.clip(values, -_EXTREME, _EXTREME), np.nan)
        return np.asarray(np.where(finite <= 0, 0.99 * self.low, finite) if self.kind == "log" else finite)

    def shown(self, values: Any) -> NDArray[Any]:
        """Returns the values as they are drawn: a copy in which values beyond the ends lie at the ends."""
        return np.asarray(np.clip(np.where(np.isfinite(values), values, np.nan), self.low, self.high))

    def forward(self, values: Any) -> NDArray[Any]:
        """Returns heights: equal distances are equal ratios on a logarithmic scale."""
        values = np.asarray(values, np.float64)
        if self.kind == "log":
            return np.asarray(np.log10(values))
        if self.kind == "symlog":
            scaled = np.abs(values) / self.threshold
            return np.asarray(np.sign(values) * np.where(scaled < 1, scaled, 1 + np.log10(np.maximum(scaled, 1))))
        return np.asarray(values)

    def heights(self, values: Any) -> NDArray[Any]:
        """Returns the heights at which values are drawn, NaN where one is not finite."""
        return self.forward(self.shown(values))

    def height_values(self, heights: Any) -> NDArray[Any]:
        """Returns the values that have these heights."""
        heights = np.asarray(heights, np.float64)
        if self.kind == "log":
            return np.asarray(10.0**heights)
        if self.kind == "symlog":
            size = np.abs(heights)
            return np.asarray(
                np.sign(heights) * self.threshold * np.where(size < 1, size, 10.0 ** (np.maximum(size, 1) - 1))
            )
        return np.asarray(heights)

    def norm(self) -> Normalize:
        """Returns matplotlib's map from values to colours."""
        from matplotlib.colors import FuncNorm, LogNorm, Normalize

        if self.flat:
            return Normalize()
        if self.kind == "log":
            return LogNorm(self.low, self.high)
        if self.kind == "symlog":
            return FuncNorm((self.forward, self.height_values), self.low, self.high)
        return Normalize(self.low, self.high)

    def bands(self, count: int = 64) -> NDArray[Any]:
        """Returns the bounds of ``count`` colour bands from low to high, evenly spaced on the scale."""
        heights = np.linspace(self.forward(self.low), self.forward(self.high), count + 1)
        bounds = self.height_values(heights)
        bounds[0], bounds[-1] = self.low, self.high
        return np.unique(bounds)

    def texts(self) -> list[str]:
        """Returns the levels as text, with as many digits as tell them apart."""
        return [number_text(level, self.levels) for level in self.levels]

    def spaced_texts(self, places: NDArray[Any], least: float, values: NDArray[Any] | None = None) -> list[str]:
        """Returns texts for levels, empty where one would lie less than ``least`` above the text before it.

        Args:
            places: where each text would lie, ascending.
            least: the distance that two texts need.
            values: what they say; None is the levels.
        """
        values = self.levels if values is None else values
        texts, last = [], -math.inf
        for place, value in zip(places, values, strict=True):
            texts.append(number_text(value, values) if place - last >= least else "")
            last = place if place - last >= least else last
        return texts

    def ticks(self) -> NDArray[Any]:
        """Returns where an axis of these heights has its numbers: the levels, or, where these crowd, round numbers.

        On a linear scale they cover at least 80 % of the way from low to high.
        """
        if self.kind != "linear" or self.spacing == "given" or self.flat:
            return self.levels
        return covering_ticks(self.low, self.high, max(4, min(len(self.levels), 8)))

    def label(self, metric: str) -> str:
        """Returns what to write beside the axis or the colour bar of these values."""
        words = {"log": ["log scale"], "symlog": ["log scale around 0"], "linear": []}[self.kind]
        if self.clipped_below and self.clipped_above:
            words.append(f"clipped to {self._end(self.low)} ... {self._end(self.high)}")
        elif self.clipped_above:
            words.append(f"clipped above {self._end(self.high)}")
        elif self.clipped_below:
            words.append(f"clipped below {self._end(self.low)}")
        if self.spacing == "quantile":
            words.append("levels at quantiles")
        return f"{metric} ({', '.join(words)})" if words else metric

    def _end(self, value: float) -> str:
        return number_text(value, np.unique([*self.levels, value]))


def choose_scale(
    values: Float64[np.ndarray, "*shape"],
    scale: str = "auto",
    levels: Levels = None,
    clip: Clip = None,
    *,
    count: int = 12,
    symmetric: bool = False,
    metric: str = "loss",
) -> Scale:
    """Chooses how to draw values; NaN and infinities are ignored.

    "auto" is logarithmic where all values are positive (or zero) and span more than a decade, logarithmic around zero
    where both signs span more than two, else linear. It is also linear for a metric that is no loss and has values
    from 0 to 1, such as an accuracy: its distance from 0 has no special meaning. 95 % of the values get at least 60 %
    of the colours: outliers that would take more are clipped, and the label says so. Shares are never clipped. Lines
    lie at round numbers spaced like the scale; where these leave nearly all of a smooth surface without a line, at
    quantiles, and the label says so.

    Args:
        values: any shape.
        scale: "auto", "log", "linear" or "symlog".
        levels: about how many lines to draw, how they are spaced ("linear", "log", "quantile"), or their values.
        clip: the largest value with a colour of its own, or (smallest, largest); None chooses an end from the data.
        count: about how many lines where ``levels`` does not say.
        symmetric: whether zero lies in the middle.
        metric: the name of what is drawn.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: scale or levels are unknown, clip is no range, or scale is "log" and no value is positive.
    """
    check_choice("scale", scale, SCALES)
    count, spacing, given = check_levels(levels, count)
    lower, upper = _check_clip(clip)
    own = values[np.isfinite(values)]
    if symmetric:
        lower, upper = _check_symmetric(scale, lower, upper)
        values = np.stack([values, -values])
    finite = np.sort(values[np.isfinite(values)].ravel())
    if not len(finite):
        return Scale("linear", math.nan, math.nan, np.empty(0))
    extremes = float(own.min()), float(own.max())
    finite = np.clip(finite, -_EXTREME, _EXTREME)
    share = is_share(metric, 0.0 if symmetric else float(finite[0]), float(finite[-1]))
    kind = scale if scale != "auto" else "linear" if share else _kind(finite)
    positive = finite[finite > 0]
    if kind == "log" and not len(positive):
        raise wrong_value("scale", "'linear' or 'symlog' where no value is positive", scale)
    threshold = 1.0
    if kind == "symlog":
        sizes = np.abs(finite[finite != 0])
        smallest = max(np.quantile(sizes, 0.1), 1e-12 * sizes.max()) if len(sizes) else 1.0
        threshold = 10.0 ** math.floor(math.log10(max(smallest, 1 / _EXTREME)))
    bare = Scale(kind, 0, 0, np.empty(0), threshold=threshold)
    low, high = _range(positive if kind == "log" else finite, bare, symmetric=symmetric)
    if scale == "auto" and kind == "log" and high <= 10 * low:
        # Without its outliers the bulk spans less than a decade.
        kind = "linear"
        low, high = _range(finite, Scale(kind, 0, 0, np.empty(0)))
    if share and not symmetric:
        # Between 0 and 1 nothing lies far away.
        low, high = float(finite[0] if kind != "log" else positive[0]), float(finite[-1])
    low = low if lower is None or (kind == "log" and lower <= 0) else lower
    high = high if upper is None or (kind == "log" and upper <= 0) else upper
    if high - low <= 8 * np.finfo(np.float64).eps * max(abs(low), abs(high)):
        return Scale(kind, low, low, np.array([low]), threshold=threshold)
    if share and kind == "linear" and spacing == "auto":
        # Round shares are read at a glance, even where most of the plane lies at chance level and has no line.
        spacing = "linear"
    bare = Scale(kind, low, high, np.empty(0), extremes[0] < low, extremes[1] > high, threshold, spacing)
    return place_levels(bare, values, count, given)


def is_share(metric: str, low: float, high: float) -> bool:
    """Returns whether values, or the sizes of differences, are shares from 0 to 1; a loss never is.

    Args:
        metric: its name.
        low: the smallest finite value.
        high: the largest finite value.
    """
    name = metric.lower()
    return low >= 0 and _SMALLEST_SHARE <= high <= _LARGEST_SHARE and not any(word in name for word in _LOSS_LIKE)


def _kind(finite: NDArray[Any]) -> str:
    low, high = finite[0], finite[-1]
    positive = finite[finite > 0]
    if low >= 0 and len(positive) and high > 10 * max(positive[0], 1 / _EXTREME):
        return "log"
    sizes = np.abs(finite)
    typical = max(float(np.median(sizes)), 1 / _EXTREME)
    return "symlog" if low < 0 < high and sizes.max() > 100 * typical else "linear"


def _range(finite: NDArray[Any], scale: Scale, *, symmetric: bool = False) -> tuple[float, float]:
    """Returns the ends of the colours, leaving out what would take too many of them from most of the values.

    At least 95 % of the values lie where at least 60 % of the colours are. What is left out lies far above or, among
    values below zero, far below the others. The depth of a positive minimum is what one looks for; on a logarithmic
    scale it is left out where it lies more than three decades below nearly everything else.

    Args:
        finite: ascending.
        scale: with its kind and threshold.
        symmetric: whether zero lies in the middle, as it does in ``finite``.
    """
    bounded = np.maximum(finite, 1 / _EXTREME) if scale.kind == "log" else finite
    heights = scale.forward(bounded)
    left_out = math.floor((1 - _BULK) * len(heights) + 1e-9)
    start = 0
    if symmetric:
        start, left_out = left_out // 2, left_out // 2 * 2
    elif scale.kind == "log":
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


def place_levels(scale: Scale, values: NDArray[Any], count: int, given: NDArray[Any] | None) -> Scale:
    """Returns the scale with its lines, which lie inside it.

    Args:
        scale: not flat; its spacing says how to place them.
        values: of the grid, which "quantile" and "auto" need.
        count: about how many.
        given: their values, or None.

    Raises:
        ValueError: no given value lies inside.
    """

    def inside(chosen: NDArray[Any]) -> NDArray[Any]:
        return chosen[(chosen >= scale.low) & (chosen <= scale.high)]

    if given is not None:
        if not len(inside(given)):
            expected = f"at least one value from {number_text(scale.low)} to {number_text(scale.high)}"
            raise wrong_value("levels", expected, given.tolist())
        return replace(scale, levels=inside(given))
    spacing = scale.spacing
    if spacing == "auto":
        found = inside(_round_levels(scale, scale.kind, count))
        spacing = "quantile" if crowded(scale.shown(values), found) else scale.kind
    if spacing == "quantile":
        finite = values[np.isfinite(values)]
        found = inside(quantile_levels(finite[(finite >= scale.low) & (finite <= scale.high)], count))
    else:
        found = inside(_round_levels(scale, spacing, count))
    return replace(scale, levels=found if len(found) else np.array([scale.low]), spacing=spacing)


def _round_levels(scale: Scale, spacing: str, count: int) -> NDArray[Any]:
    chosen = np.empty(0)
    if spacing == "symlog" or (spacing == "log" and scale.low < 0 < scale.high):
        smallest = scale.threshold if spacing == "symlog" else max(-scale.low, scale.high) * 1e-3
        chosen = symmetric_decades(scale.low, scale.high, smallest, count)
    elif spacing == "log":
        if scale.high <= 0:
            raise wrong_value("levels", "'linear' or 'quantile' where no value is positive", spacing)
        chosen = decade_levels(scale.low if scale.low > 0 else scale.high * 1e-3, scale.high, count)
    few = len(chosen) < max(3, count // 3)
    return linear_levels(scale.low, scale.high, count) if few else chosen


def _check_clip(clip: Clip) -> tuple[float | None, float | None]:
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
    return low, high


def _check_symmetric(scale: str, lower: float | None, upper: float | None) -> tuple[float | None, float | None]:
    if scale == "log":
        raise wrong_value("scale", "'auto', 'linear' or 'symlog' where values have both signs", scale)
    largest = max((abs(end) for end in (lower, upper) if end is not None), default=None)
    return (None, None) if largest is None else (-largest, largest)
