"""How well a partly measured surface is known: interpolation, estimated error, and where to look closer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Bool, Float64

from .grids import GridLevels, Step

# A surplus is expected to shrink by the rate at which the former one did, times this safety factor ...
_SAFETY = 1.75
# ... but never by more than this: a surface may be rougher between the points than at them.
_FASTEST = 1 / 8
_FIRST_RATE = 1 / 4
# Estimates are bounds of what is near; the root mean square of the true errors is about a quarter of theirs.
_ESTIMATE_OVER_ERROR = 4.0
_RMS_SHARE = 0.1
# How many points far a hole is filled with parabolas.
_EXTENSION = 3


@dataclass(frozen=True)
class _LevelEstimate:
    """The estimated errors on one grid, and the largest ones at each point's parents."""

    step: Step
    error: Float64[np.ndarray, "ny nx"]
    parent_error: Float64[np.ndarray, "ny nx"]


@dataclass(frozen=True)
class Prediction:
    """A surface of which some points are measured."""

    values: Float64[np.ndarray, "ny nx"]  # measured or predicted; NaN in holes
    error: Float64[np.ndarray, "ny nx"]  # estimated, 0 where measured and infinite between a hole and a value
    holes: Bool[np.ndarray, "ny nx"]  # where the value is, or is predicted to be, not finite
    known: Bool[np.ndarray, "ny nx"]  # what was measured
    _levels: tuple[_LevelEstimate, ...]

    def to_refine(self, tolerance: float) -> Bool[np.ndarray, "ny nx"]:
        """Returns which points to measure next, until the largest error is below the tolerance, and the RMS a tenth."""
        # Of a cell that is not good enough, the points of the coarsest grid come first: they may turn out to suffice.
        errors = np.sort(self.error[(self.error > 0) & (self.error <= tolerance)])
        rms = np.sqrt(np.cumsum(errors**2) / self.error.size)
        allowed = int(np.searchsorted(rms, _ESTIMATE_OVER_ERROR * _RMS_SHARE * tolerance))
        limit = tolerance
        if allowed < len(errors):
            limit = float(errors[allowed - 1]) if allowed else 0.0
        chosen: Bool[np.ndarray, "ny nx"] = np.zeros_like(self.known)
        for level in self._levels:
            wrong = (level.error > limit) & (level.parent_error <= limit)
            chosen[np.ix_(*level.step.fine)] |= wrong
        chosen &= ~self.known
        return chosen

    def doubtful(self) -> Iterator[tuple[int, int, float]]:
        """Yields row, column and estimated error of the points whose neighbours on the coarser grid are measured."""
        seen = self.known.copy()
        for level in self._levels:
            grid = np.ix_(*level.step.fine)
            for row, column in np.argwhere((level.error > 0) & (level.parent_error == 0) & ~seen[grid]):
                place = int(level.step.fine[0][row]), int(level.step.fine[1][column])
                yield *place, float(level.error[row, column])
            seen[grid] = True


def predict(
    values: Float64[np.ndarray, "ny nx"],
    known: Bool[np.ndarray, "ny nx"],
    levels: GridLevels,
    caution: float = 1.0,
) -> Prediction:
    """Predicts what is not measured; the first grid is, and nothing is predicted across values that are not finite."""
    # Each of the nested grids is predicted from the next coarser one by a spline; at points that are measured the
    # measured value takes the prediction's place, and the difference, the surplus, tells how far predictions are off
    # nearby. Where surpluses shrink from grid to grid, as they do on smooth surfaces, the next ones are expected to
    # shrink as much; on noise they do not shrink, and everything gets measured. Sources: Deslauriers and Dubuc 1989 and
    # Donoho 1992 (interpolating wavelets); Bungartz and Griebel 2004 (surpluses).
    steps = levels.steps
    if not steps:
        return Prediction(values, np.zeros(values.shape), ~np.isfinite(values), known, ())
    guess = values[np.ix_(*steps[0].coarse)]
    rate = np.full(guess.shape, _FIRST_RATE)
    state = _Roughness(np.zeros(guess.shape), np.full(guess.shape, -1.0), rate, 1 if 1 in values.shape else 3)
    holes, error = ~np.isfinite(guess), np.zeros(guess.shape)
    estimates = []
    for step in steps:
        grid = np.ix_(*step.fine)
        measured, truth = known[grid], values[grid]
        predicted = spline(extend(guess, holes), step)
        finite = measured & np.isfinite(truth)
        fresh = finite.copy()
        fresh[np.ix_(*step.inside)] = False
        surplus = np.where(fresh, np.abs(np.where(fresh, truth, 0.0) - predicted), 0.0)
        state = state.refined(surplus, fresh, step)
        some = largest_parent(holes, step)
        every = ~largest_parent(~holes, step)
        parent_error = largest_parent(error, step)
        error = np.maximum(caution * state.expected, parent_error)
        error = np.where(every, parent_error, np.where(some, np.inf, error))
        holes = np.where(measured, ~finite, every)
        if step is steps[-1]:
            # Beside an edge there are both a hole and a value among a point and its eight neighbours.
            error = np.where(window_maximum(holes) & window_maximum(~holes), np.inf, error)
        error = np.where(measured, 0.0, error)
        estimates.append(_LevelEstimate(step, error, parent_error))
        guess = np.where(measured, truth, np.where(holes, np.nan, predicted))
    return Prediction(guess, error, holes, known, tuple(estimates))


@dataclass(frozen=True)
class _Roughness:
    """What surpluses tell about one grid."""

    expected: Float64[np.ndarray, "ny nx"]  # size of the prediction's error at unmeasured points
    mean_square: Float64[np.ndarray, "ny nx"]  # of the surpluses around each point; negative where none yet
    rate: Float64[np.ndarray, "ny nx"]  # by which surpluses shrink from grid to grid
    few: int  # how many surpluses in a window of 3 points are too few to go by alone

    def refined(
        self, surplus: Float64[np.ndarray, "ny nx"], fresh: Bool[np.ndarray, "ny nx"], step: Step
    ) -> _Roughness:
        count = fresh.astype(np.float64)
        rate = largest_parent(self.rate, step)
        inherited = np.clip(_SAFETY * rate, _FASTEST, 1.0) * largest_parent(self.expected, step)
        seen = window_maximum(surplus)
        expected = np.where(window_sum(count, 1) >= self.few, seen, np.maximum(seen, inherited))
        counted = window_sum(count, 2)
        enough = counted >= 2 * self.few - 1
        before = largest_parent(self.mean_square, step)
        now = window_sum(surplus**2, 2) / np.maximum(counted, 1)
        shrunk = np.sqrt(np.clip(now / np.where(before > 0, before, 1.0), 0.0, 1.0))
        shrunk = np.where(before > 0, shrunk, np.where(now > 0, 1.0, 0.0))
        new_rate = np.where(enough & (before >= 0), shrunk, rate)
        mean_square = np.where(enough, now, before * rate**2)
        return _Roughness(expected, mean_square, new_rate, self.few)


def spline(values: Float64[np.ndarray, "ny nx"], step: Step) -> Float64[np.ndarray, "ny2 nx2"]:
    """Returns the cubic spline (tensor product, not-a-knot) through finite values on the finer grid (de Boor 1978)."""
    # Of the interpolants tried on surfaces of trained networks (quintic and septic splines, Akima, monotone cubics,
    # radial functions between two orders), it has the smallest error at the same number of points: a network with ReLUs
    # has no high derivatives to exploit.
    from scipy.interpolate import make_interp_spline

    for axis, (coarse, fine) in enumerate(zip(step.coarse, step.fine, strict=True)):
        if len(coarse) < len(fine):
            values = make_interp_spline(coarse, values, k=min(3, len(coarse) - 1), axis=axis)(fine)
    return values


def linear(values: Float64[np.ndarray, "ny nx"], step: Step) -> Float64[np.ndarray, "ny2 nx2"]:
    """Returns the bilinear interpolant on the finer grid; it is NaN wherever a value that it needs is."""
    for axis, (coarse, fine) in enumerate(zip(step.coarse, step.fine, strict=True)):
        before, after = step.before[axis], step.after[axis]
        width = np.maximum(coarse[after] - coarse[before], 1)
        weight = np.expand_dims((fine - coarse[before]) / width, 1 - axis)
        low, high = np.take(values, before, axis), np.take(values, after, axis)
        values = np.where(weight == 0, low, (1 - weight) * low + weight * high)
    return values


def extend(values: Float64[np.ndarray, "ny nx"], holes: Bool[np.ndarray, "ny nx"]) -> Float64[np.ndarray, "ny nx"]:
    """Returns the values with smooth numbers in the holes, so that a spline can be fitted beside them."""
    # Nothing of this is ever shown: a point between a hole and a value is measured. The next points in a hole continue
    # the parabola of their neighbours along rows and columns; those further in take the nearest.
    if not holes.any():
        return values
    if holes.all():
        return np.zeros_like(values)
    values, holes = np.where(holes, np.nan, values), holes.copy()
    for _ in range(_EXTENSION):
        guesses = np.array([_continued(values, turns) for turns in (0, 2, 3, 1)])
        known = np.isfinite(guesses)
        count = known.sum(0)
        reached = holes & (count > 0)
        values = np.where(reached, np.where(known, guesses, 0).sum(0) / np.maximum(count, 1), values)
        holes &= ~reached
    return nearest(values, ~holes) if holes.any() else values


def nearest(values: Float64[np.ndarray, "ny nx"], sources: Bool[np.ndarray, "ny nx"]) -> Float64[np.ndarray, "ny nx"]:
    from scipy.ndimage import distance_transform_edt

    return np.asarray(values[tuple(distance_transform_edt(~sources, return_distances=False, return_indices=True))])


def _continued(values: Float64[np.ndarray, "ny nx"], turns: int) -> Float64[np.ndarray, "ny nx"]:
    """Returns how values go on down the columns, after so many quarter turns of the array."""
    turned = np.rot90(values, turns)
    above = np.concatenate([np.full((3, turned.shape[1]), np.nan), turned])
    first, second, third = above[2:-1], above[1:-2], above[:-3]
    straight = np.where(np.isfinite(second), 2 * first - second, first)
    bent = np.where(np.isfinite(second) & np.isfinite(third), 3 * first - 3 * second + third, straight)
    return np.rot90(bent, -turns)


def window_sum(values: Float64[np.ndarray, "ny nx"], radius: int) -> Float64[np.ndarray, "ny nx"]:
    """Returns the sum over the square window around each point; each is added up by itself, so that nothing cancels."""
    from scipy.ndimage import convolve1d

    for axis in (0, 1):
        values = convolve1d(values, np.ones(2 * radius + 1), axis, mode="constant")
    return values


def window_maximum(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the largest value among each point and its eight neighbours; of booleans, whether one is true."""
    from scipy.ndimage import maximum_filter

    return np.asarray(maximum_filter(values, 3, mode="nearest"))


def largest_parent(values: NDArray[Any], step: Step) -> NDArray[Any]:
    """Returns, for each point of the finer grid, the largest of the coarse values around it, numbers or booleans."""
    rows = np.maximum(values[step.before[0]], values[step.after[0]])
    return np.asarray(np.maximum(rows[:, step.before[1]], rows[:, step.after[1]]))
