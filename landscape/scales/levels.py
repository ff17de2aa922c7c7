"""The values at which a picture draws its lines: round numbers with equal distances or ratios, or quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64
from collectors.validation import check_float, check_int, wrong_type, wrong_value

Levels = int | str | Sequence[float] | None

SPACINGS = ("auto", "linear", "log", "quantile")
_EXPECTED = "an int from 2 to 100, one of 'auto', 'linear', 'log', 'quantile', or increasing values"
# Of round numbers, the most first: those in a decade, and every which decade has them.
_ROUND = (
    ((1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0), 1),
    ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), 1),
    ((1.0, 2.0, 5.0), 1),
    ((1.0, 3.0), 1),
    *(((1.0,), stride) for stride in (1, 2, 3, 5, 10, 20, 50, 100)),
)
# Above this share of the grid between two neighbouring lines, round numbers say too little.
_CROWDED = 0.75
_COVERED = 0.8
# Neighbours on a smooth surface differ by less than this share of the middle half of all values.
_SMOOTH = 0.15


def check_levels(levels: Levels, count: int) -> tuple[int, str, Float64[np.ndarray, " k"] | None]:
    """Returns about how many lines to draw, their spacing, and their values where these were given."""
    if levels is None:
        return count, "auto", None
    if isinstance(levels, str):
        if levels not in SPACINGS:
            raise wrong_value("levels", _EXPECTED, levels)
        return count, levels, None
    if not isinstance(levels, Sequence | np.ndarray):
        if isinstance(levels, bool | float):
            raise wrong_type("levels", _EXPECTED, levels)
        return check_int("levels", levels, minimum=2, maximum=100), "auto", None
    values = np.array([check_float(f"levels[{index}]", value) for index, value in enumerate(levels)], np.float64)
    if not 1 <= len(values) <= 100 or not (np.diff(values) > 0).all():
        raise wrong_value("levels", "1 to 100 increasing values", list(levels))
    return len(values), "given", values


def linear_levels(low: float, high: float, count: int) -> NDArray[Any]:
    """Returns about ``count`` round numbers from low to high, equally far apart."""
    from matplotlib.ticker import MaxNLocator

    return np.asarray(MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))


def covering_ticks(low: float, high: float, count: int) -> NDArray[Any]:
    """Returns about ``count`` round numbers from low to high, more where these cover less than 80 % of the way."""
    slack = 1e-9 * (high - low)
    for more in range(count, 3 * count):
        found = linear_levels(low, high, more)
        found = found[(found >= low - slack) & (found <= high + slack)]
        if len(found) > 1 and found[-1] - found[0] >= _COVERED * (high - low):
            return found
    return np.array([low, high])


def decade_levels(low: float, high: float, count: int) -> NDArray[Any]:
    """Returns round numbers from low to high, at most ``count`` where a set of round numbers allows it."""
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    levels = np.empty(0)
    for mantissas, stride in _ROUND:
        numbers = np.array([float(f"{m}e{d}") for d in decades if d % stride == 0 for m in mantissas])
        levels = numbers[(numbers >= low) & (numbers <= high)]
        if len(levels) <= count:
            break
    return levels


def round_levels(low: float, high: float, spacing: str, threshold: float, count: int) -> NDArray[Any]:
    """Returns about ``count`` round numbers, equally far apart where too few lie at equal ratios from low to high."""
    chosen = np.empty(0)
    if spacing == "symlog" or (spacing == "log" and low < 0 < high):
        # Zero, and round numbers on both sides of it.
        smallest, half = threshold if spacing == "symlog" else max(-low, high) * 1e-3, max(count // 2, 1)
        above = decade_levels(smallest, high, half) if high > smallest else np.empty(0)
        below = -decade_levels(smallest, -low, half) if -low > smallest else np.empty(0)
        chosen = np.unique(np.concatenate([below, [0.0], above]))
    elif spacing == "log":
        if high <= 0:
            raise wrong_value("levels", "'linear' or 'quantile' where no value is positive", spacing)
        chosen = decade_levels(low if low > 0 else high * 1e-3, high, count)
    return chosen if len(chosen) >= max(3, count // 3) else linear_levels(low, high, count)


def quantile_levels(values: NDArray[Any], count: int) -> NDArray[Any]:
    """Returns values that divide all into equal shares, with no more digits than tell them apart."""
    exact = np.unique(np.quantile(values, np.arange(1, count + 1) / (count + 1)))
    gap = float(np.diff(exact).min()) if len(exact) > 1 else abs(float(exact[0]))
    for digits in range(2, 16):
        rounded = np.array([float(f"{value:.{digits - 1}e}") for value in exact])
        if np.abs(rounded - exact).max() <= 0.1 * gap:
            return np.unique(rounded)
    return exact


def crowded(values: Float64[np.ndarray, "*grid"], levels: Float64[np.ndarray, " k"]) -> bool:
    """Returns whether nearly all of a smooth grid lies between two neighbouring lines."""
    finite = values[np.isfinite(values)]
    if values.ndim != 2 or len(finite) < 16:
        return False
    shares = np.bincount(np.searchsorted(levels, finite)) / len(finite)
    width = float(np.subtract(*np.quantile(finite, [0.75, 0.25])))
    steps = np.abs(np.concatenate([np.diff(values, axis=0).ravel(), np.diff(values, axis=1).ravel()]))
    steps = steps[np.isfinite(steps)]
    # On a noisy plateau lines at quantiles would trace the noise.
    return bool(shares.max() > _CROWDED and len(steps) and np.median(steps) < _SMOOTH * width)


def number_text(value: float, beside: NDArray[Any] | None = None) -> str:
    """Returns a number as short text; among ``beside``, with as many digits as keep the neighbours apart."""
    step = 0.0 if beside is None or len(beside) < 2 else float(np.min(np.diff(beside)))
    digits = 3
    while step and digits < 12 and abs(float(f"{value:.{digits}g}") - value) > 0.01 * step:
        digits += 1
    text = f"{value + 0.0:.{digits}g}"  # no -0
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa}e{int(exponent)}"
    return text
