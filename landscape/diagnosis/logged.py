"""Measured losses beside those that training logged: one is another loss where noise does not explain how far it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .diagnosis import ComparedLoss

# Around a checkpoint, a sixth of the logged losses: further away the weights are others.
_FEWEST, _MOST, _SHARE = 3, 16, 6
# Of one comparison; several must agree. Few batches know little of their own spread, which Student's t allows for.
_CONFIDENCE = 0.998
# Of the loss, and of how far it fell in the whole training: running statistics of BatchNorm alone make so much.
_OF_LOSS, _OF_FALL = 0.25, 0.02
_LEFT = 0.3


@dataclass(frozen=True)
class MeasuredLoss:
    mean: float  # of a sum, that of one sample
    stderr: float  # NaN where samples have no losses of their own


@dataclass(frozen=True)
class Comparison:
    """The checkpoints of a run whose losses could be compared, in order."""

    rows: tuple[ComparedLoss, ...]
    first: int  # number of the network before training, which tells least; -1 where none is

    @property
    def trained(self) -> tuple[ComparedLoss, ...]:
        return tuple(row for row in self.rows if row.number != self.first)

    @property
    def decides(self) -> bool:
        """Whether there are enough rows to tell one loss from another."""
        return len(self.trained) >= 2

    @property
    def is_higher(self) -> bool:
        """Whether the last loss and at least half of all are higher than what was logged."""
        return self._most([row.is_higher for row in self.trained]) and self.rows[-1].is_higher

    @property
    def is_lower(self) -> bool:
        """Whether at least half of the losses are lower than what was logged; near zero, none is lower for sure."""
        return self._most([row.is_lower for row in self.trained])

    @property
    def fits(self) -> bool:
        return self.decides and not (self.is_higher or self.is_lower)

    @property
    def misfit(self) -> float:
        return float(np.mean([abs(row.measured - row.logged) for row in self.trained]))

    def mends(self, before: Comparison) -> bool:
        """Whether the losses fit, and by more than an inch."""
        return self.fits and self.misfit <= _LEFT * before.misfit

    @property
    def does_not_fall(self) -> bool:
        """Whether the measured loss stays about where it was, while what was logged fell to its half."""
        first, last = self.rows[0], self.rows[-1]
        return last.measured > 0.9 * first.measured and last.logged < 0.5 * first.logged

    def _most(self, verdicts: list[bool]) -> bool:
        return sum(verdicts) >= max(2, len(verdicts) / 2)


def compare(
    losses: Mapping[int, MeasuredLoss], steps: Mapping[int, int], logged: Mapping[int, float], factor: float = 1.0
) -> Comparison:
    """Compares losses with those that training logged; ``factor`` times the loss of a sample is that of a batch."""
    from scipy import stats

    first = min((number for number in losses if steps[number] == 0), default=-1)
    known = {step: loss for step, loss in logged.items() if math.isfinite(loss)}
    if len(known) < _FEWEST:
        return Comparison((), first)
    # The loss of a step is computed with the weights that the step before left.
    places, values = np.array(list(known), np.float64) - 1, np.array(list(known.values()), np.float64)
    count = min(max(len(known) // _SHARE, _FEWEST), _MOST)
    fall = float(np.ptp(values))
    of_batches, of_samples = stats.t.ppf(_CONFIDENCE, count - 1), stats.norm.ppf(_CONFIDENCE)
    rows = []
    for number, loss in losses.items():
        if not math.isfinite(loss.mean):
            continue
        around = values[np.argsort(np.abs(places - steps[number]), kind="stable")[:count]]
        mean, spread = float(around.mean()), float(around.std(ddof=1))
        # Where samples have no losses of their own, the batches' spread stands for the error of the measured one.
        error = spread if math.isnan(loss.stderr) else factor * loss.stderr
        noise = math.hypot(of_batches * spread / math.sqrt(count), of_samples * error)
        # Between two logged steps the weights may go to where a batch has another loss by chance.
        allowed = max(noise, spread, _OF_LOSS * abs(mean)) + _OF_FALL * fall
        ends = float(around.min()), float(around.max())
        rows.append(ComparedLoss(number, factor * loss.mean, factor * loss.stderr, mean, allowed, *ends, count))
    return Comparison(tuple(rows), first)
