"""How values become heights and colours, and where lines lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64
from collectors.validation import wrong_value

from .levels import covering_ticks, crowded, number_text, quantile_levels, round_levels

if TYPE_CHECKING:
    from matplotlib.colors import Normalize


# Matplotlib's contours end at 1e250.
EXTREME = 1e200


@dataclass(frozen=True)
class Scale:
    """How values become heights and colours.

    Attributes:
        kind: "linear", "log" or "symlog" (logarithmic on both sides of zero).
        low: the lower end; smaller values are drawn like this one.
        high: the upper end; larger values are drawn like this one.
        levels: where lines and ticks lie, ascending, inside low to high.
        clipped_below: whether the data have values below low that the scale could hold.
        clipped_above: whether the data have values above high.
        threshold: below this magnitude "symlog" is linear.
        spacing: how the levels were chosen: "linear", "log", "symlog", "quantile", or "given".
        bottom: how far down heights reach, at most low; a path may lie lower than every grid point. NaN is low.
        top: how far up heights reach, at least high. NaN is high.
        no_place: which values of the data have no logarithm and are drawn at low: "", "0", or "0 and less".
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
    no_place: str = ""

    def __post_init__(self) -> None:
        for name, end in (("bottom", self.low), ("top", self.high)):
            if math.isnan(getattr(self, name)):
                object.__setattr__(self, name, end)

    @property
    def tall(self) -> Scale:
        """The scale of heights: as far as they reach, with levels up to there, unless these were given."""
        if not (self.bottom < self.low or self.top > self.high):
            return self
        tall = replace(self, low=self.bottom, high=self.top)
        if self.spacing == "given":
            return tall
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
    def height_range(self) -> tuple[float, float]:
        """The heights of ``low`` and ``high``; what has no differences lies in the middle of one unit."""
        if self.empty:
            return 0.0, 1.0
        low, high = float(self.forward(self.low)), float(self.forward(self.high))
        return (low - 0.5, low + 0.5) if self.flat else (low, high)

    @property
    def extend(self) -> str:
        """Which ends of a colour bar stand for values beyond, in matplotlib's words."""
        below = self.clipped_below or bool(self.no_place)
        return ("neither", "min", "max", "both")[below + 2 * self.clipped_above]

    def drawn(self, values: NDArray[Any]) -> NDArray[Any]:
        """Returns the values for contours, unclipped; values that have no logarithm lie just below ``low``."""
        # A contour is interpolated between neighbours, so values beyond the ends must stay where they are.
        finite = np.where(np.isfinite(values), np.clip(values, -EXTREME, EXTREME), np.nan)
        return np.asarray(np.where(finite <= 0, 0.99 * self.low, finite) if self.kind == "log" else finite)

    def held(self, values: Any) -> NDArray[Any]:
        """Returns the values for an axis: a copy in which those without a logarithm lie at the lower end."""
        values = np.asarray(values, np.float64)
        return np.where(values <= 0, self.low, values) if self.kind == "log" else values.copy()

    def shown(self, values: Any) -> NDArray[Any]:
        """Returns the values as they are drawn: a copy in which values beyond the ends lie at the ends."""
        return np.asarray(np.clip(np.where(np.isfinite(values), values, np.nan), self.low, self.high))

    def ends_with_zero(self, values: Any) -> tuple[float, float]:
        """Returns the ends of a difference's values as they are drawn: a sign that does not occur needs no colours."""
        shown = self.shown(values)
        low, high = (float(end(shown, initial=0.0, where=np.isfinite(shown))) for end in (np.min, np.max))
        return low, high

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
            scaled = np.where(size < 1, size, 10.0 ** (np.maximum(size, 1) - 1))
            return np.asarray(np.sign(heights) * self.threshold * scaled)
        return np.asarray(heights)

    def norm(self) -> Normalize:
        """Returns matplotlib's map from values to colours."""
        from matplotlib.colors import FuncNorm, Normalize

        from .log_norm import WideLogNorm

        if self.flat:
            return Normalize()
        if self.kind == "log":
            return WideLogNorm(self.low, self.high)
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
        """Returns texts for levels, or for ``values``, empty where less than ``least`` lies between it and the last."""
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
        low, high = (number_text(end, np.unique([*self.levels, end])) for end in (self.low, self.high))
        if self.clipped_below or self.clipped_above:
            beyond_one = f"above {high}" if self.clipped_above else f"below {low}"
            both = self.clipped_below and self.clipped_above
            words.append(f"clipped to {low} ... {high}" if both else f"clipped {beyond_one}")
        if self.no_place:
            words.append(f"{self.no_place} drawn as {low}")
        if self.spacing == "quantile":
            words.append("levels at quantiles")
        return f"{metric} ({', '.join(words)})" if words else metric


def beyond(values: NDArray[Any], kind: str, low: float, high: float) -> dict[str, Any]:
    """Returns what a scale says about finite values that it draws at its ends, by the names of its attributes."""
    shown = values[values > 0] if kind == "log" else values
    return {
        "clipped_below": bool((shown < low).any()),
        "clipped_above": bool((shown > high).any()),
        "no_place": without_place(values) if kind == "log" else "",
    }


def without_place(values: NDArray[Any]) -> str:
    """Returns which finite values have no logarithm, in words: "", "0", or "0 and less"."""
    least = float(values.min(initial=math.inf))
    return "" if least > 0 else "0" if least == 0 else "0 and less"


def place_levels(scale: Scale, values: NDArray[Any], count: int, given: NDArray[Any] | None) -> Scale:
    """Returns a scale that is not flat with lines inside it: those ``given``, or about ``count`` by its spacing."""

    def inside(chosen: NDArray[Any]) -> NDArray[Any]:
        return chosen[(chosen >= scale.low) & (chosen <= scale.high)]

    def round_ones(spacing: str) -> NDArray[Any]:
        return inside(round_levels(scale.low, scale.high, spacing, scale.threshold, count))

    if given is not None:
        if not len(inside(given)):
            expected = f"at least one value from {number_text(scale.low)} to {number_text(scale.high)}"
            raise wrong_value("levels", expected, given.tolist())
        return replace(scale, levels=inside(given))
    spacing = scale.spacing
    if spacing == "auto":
        found = round_ones(scale.kind)
        spacing = "quantile" if crowded(scale.shown(values), found) else scale.kind
    if spacing == "quantile":
        finite = values[np.isfinite(values)]
        found = inside(quantile_levels(finite[(finite >= scale.low) & (finite <= scale.high)], count))
    else:
        found = round_ones(spacing)
    return replace(scale, levels=found if len(found) else np.array([scale.low]), spacing=spacing)
