"""From numbers to an answer with an interval: pure functions, which know nothing of networks."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collectors.shapes import Float64

RESAMPLES = 2000
POWER = 0.8  # with which chance an effect is to be seen, where it is said how much that would need
_MOST = 3 * 2**18


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference, and how well it is known."""

    value: float
    error: float  # its standard error; NaN where nothing is known of it
    degrees: float  # of freedom of that error
    floor: float = 0.0  # variance in it that no larger count takes away, as that of the directions or the samples

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Returns Student's interval; NaN where nothing is known of the error."""
        from scipy.special import stdtrit

        if not math.isfinite(self.error):
            return math.nan, math.nan
        half = float(stdtrit(self.degrees, (1 + confidence) / 2)) * self.error if self.error else 0.0
        return self.value - half, self.value + half

    @property
    def p_value(self) -> float:
        """The chance of a value at least so far from zero if the truth is zero; NaN where nothing is known."""
        from scipy.special import stdtr

        if not math.isfinite(self.error):
            return math.nan
        if not self.error:
            return 1.0 if self.value == 0 else 0.0
        return float(2 * stdtr(self.degrees, -abs(self.value / self.error)))


def mean(values: Float64[np.ndarray, " n"]) -> Estimate:
    """Returns the mean of independent values; its error is unknown where there is but one."""
    count = len(values)
    if count < 2:
        return Estimate(float(values.mean()) if count else math.nan, math.nan, 0.0)
    return Estimate(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(count), count - 1.0)


def welch(first: Float64[np.ndarray, " n"], second: Float64[np.ndarray, " m"]) -> Estimate:
    """Returns how much larger the mean of the first values is, for spreads that may differ (Welch 1947)."""
    one, other = mean(first), mean(second)
    parts = one.error**2, other.error**2
    total = sum(parts)
    spread = sum(part**2 / item.degrees for part, item in zip(parts, (one, other), strict=True) if item.degrees)
    return Estimate(one.value - other.value, math.sqrt(total), total**2 / spread if spread else math.inf)


def crossed_mean(values: Float64[np.ndarray, "networks directions"]) -> Estimate:
    """Returns the mean over networks and directions, both left to chance; for pairs of networks, give differences."""
    # What directions have in common for all networks counts once, and not once for each network.
    return _with_directions(mean(values.mean(1)), values.mean(0), noise_of(values) / len(values))


def crossed_difference(
    first: Float64[np.ndarray, "n directions"], second: Float64[np.ndarray, "m directions"]
) -> Estimate:
    """Returns how much larger the first values are in the mean over networks and over directions, shared by both."""
    # The networks' part is Welch's. To it comes what the directions do to all networks of a side: sides of which each
    # reacts in its own way to a direction differ by more than their networks tell.
    noise = noise_of(first) / len(first) + noise_of(second) / len(second)
    return _with_directions(welch(first.mean(1), second.mean(1)), first.mean(0) - second.mean(0), noise)


def _with_directions(networks: Estimate, along: Float64[np.ndarray, " directions"], noise: float) -> Estimate:
    """Returns an estimate over networks with the variance that directions add beside the networks' part, ``noise``."""
    count, between = len(along), networks.error**2
    floor = max(0.0, (float(along.var(ddof=1)) - noise) / count) if count > 1 else 0.0
    spread = between**2 / networks.degrees if networks.degrees else 0.0
    spread += floor**2 / (count - 1) if floor else 0.0
    degrees = (between + floor) ** 2 / spread if spread else networks.degrees
    return Estimate(networks.value, math.sqrt(between + floor), degrees, floor)


def noise_of(values: Float64[np.ndarray, "networks directions"]) -> float:
    """Returns the variance that neither a network nor a direction explains."""
    networks, directions = values.shape
    if min(networks, directions) < 2:
        return 0.0
    rest = values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()
    return float((rest**2).sum() / ((networks - 1) * (directions - 1)))


def bootstrap_difference(
    first: Float64[np.ndarray, "directions blocks"],
    second: Float64[np.ndarray, "directions blocks"],
    weights: Float64[np.ndarray, " blocks"],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Returns how much larger the first values are in the mean, for directions and blocks drawn again."""
    # Directions and blocks of samples are drawn again, each alone and both together. A draw is of one fewer than there
    # are, which leaves no bias in the variance (Rao and Wu 1988). Both together count what belongs to single cells
    # three times (Owen 2007), so the variance is twice the sum of the two alone, less that of both. The degrees of
    # freedom are Satterthwaite's.
    difference, share = first - second, weights / weights.sum()
    directions, blocks = difference.shape
    value = float(difference.mean(0) @ share)
    if directions < 2:
        return Estimate(value, math.nan, 0.0)
    random = np.random.default_rng([seed, directions, blocks])
    all_directions = np.full((resamples, directions), 1 / directions)
    all_blocks = np.broadcast_to(share, (resamples, blocks))
    some_directions = random.multinomial(directions - 1, all_directions[0], size=resamples) / (directions - 1)
    some_blocks = all_blocks
    if blocks > 1:
        drawn = random.multinomial(blocks - 1, np.full(blocks, 1 / blocks), size=resamples) * share
        some_blocks = drawn / drawn.sum(1, keepdims=True)

    def variance(rows: Float64[np.ndarray, "draws directions"], columns: Float64[np.ndarray, "draws blocks"]) -> float:
        return float(np.einsum("nd,db,nb->n", rows, difference, columns, optimize=True).var())

    by_directions = variance(some_directions, all_blocks)
    if blocks < 2:
        return Estimate(value, math.sqrt(by_directions), directions - 1.0)
    by_blocks, by_both = variance(all_directions, some_blocks), variance(some_directions, some_blocks)
    total = max(2 * (by_directions + by_blocks) - by_both, by_directions, by_blocks)
    spread = by_directions**2 / (directions - 1) + by_blocks**2 / (blocks - 1)
    degrees = (by_directions + by_blocks) ** 2 / spread if spread else math.inf
    return Estimate(value, math.sqrt(total), degrees, by_blocks)


@dataclass(frozen=True)
class Corrected:
    p_value: float
    differs: bool  # whether it is other than zero at the confidence that was asked for
    confidence: float  # of an interval that holds zero exactly where it does not differ


def holm(p_values: Sequence[float], confidence: float = 0.95) -> list[Corrected]:
    """Corrects p-values, NaN if unknown, so that the chance of any false difference is that of one (Holm 1979)."""
    alpha = 1 - confidence
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    results = [Corrected(math.nan, False, confidence)] * len(p_values)
    corrected, failed = 0.0, 0
    for rank, (p, place) in enumerate(order):
        left = failed or len(order) - rank
        corrected = max(corrected, min(1.0, p * (len(order) - rank)))
        if not failed and p >= alpha / left:
            failed = left
        results[place] = Corrected(corrected, not failed, 1 - alpha / left)
    return results


def count_needed(
    spread: float, effect: float, confidence: float = 0.95, floor: float = 0.0, *, sides: int = 1
) -> int | None:
    """Returns how many show an effect with a chance of 80 %; None beyond three quarters of a million.

    Of one side, these are pairs or directions of the ``spread``; of two, networks of each, by Welch's test. ``floor``
    is that of an ``Estimate``.
    """
    from scipy.special import stdtrit

    if not (math.isfinite(spread) and math.isfinite(effect) and math.isfinite(floor)) or effect == 0:
        return None

    def suffices(count: int) -> bool:
        freedom = sides * (count - 1)
        quantiles = stdtrit(freedom, (1 + confidence) / 2) + stdtrit(freedom, POWER)
        return bool(quantiles * math.sqrt((math.sqrt(sides) * spread) ** 2 / count + floor) <= abs(effect))

    counts = range(3, _MOST + 1)
    place = bisect.bisect_left(counts, True, key=suffices)
    return counts[place] if place < len(counts) else None
