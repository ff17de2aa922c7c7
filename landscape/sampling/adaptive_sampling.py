"""Adaptive sampling: which points to measure so that the others can be interpolated within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collectors.shapes import Bool, Float64, UInt8

from ..record.checks import PointStatus, SamplingReport
from .grids import SMOOTHNESS_TESTS, GridLevels
from .refinement import Prediction, linear, nearest, predict
from .sampling import coarse_to_fine
from .tolerance import HeldOutCheck, LossScale, largest_gap, largest_share

# Fixed, not taken from the workers at hand, because the points must not depend on them.
_SMALLEST_BATCH = 8
# A surface of which this much had to be measured is as rough elsewhere: all of it is measured.
_REST_SHARE = 0.75
# With these factors on the estimates at most three claims in a hundred are false, says test_calibration.py. Finer
# tolerances, and relative ones, need more, because kinks decide there.
_CAUTION = 1.5
_CAUTION_WHEN_FINE = 3.0
_COARSE_TOLERANCE = 0.01
# On a surface that passes for smooth no error is larger than this times the largest one of its tests.
_OVER_TESTS = 2.0
_OVER_TESTS_WHEN_RELATIVE = 4.0


@dataclass(frozen=True)
class Interpolated:
    metrics: dict[str, Float64[np.ndarray, "*grid"]]  # by name; measured values as they were
    status: UInt8[np.ndarray, "*grid"]  # ``PointStatus`` of each point; what was pending is interpolated
    loss_error: Float64[np.ndarray, "*grid"]  # estimated: 0 where measured, NaN where the loss is not finite
    report: SamplingReport  # how well it is known


class AdaptiveSampling:
    """Chooses points in rounds: coarse first, then where the prediction is worst, then a random check.

    Where a very coarse grid predicts random points of the first grid, the surface is smooth, and the check is next.
    A round depends on nothing but the values that the rounds before it asked for. So the points are the same whatever
    the number of workers and the order of results, and a new object that is given the file's arrays goes on where
    the old one stopped. The tolerance, of interpolated losses, is a share of their range, or ``relative`` to each loss.
    """

    def __init__(
        self, shape: tuple[int, ...], tolerance: float = 0.01, *, relative: bool = False, seed: int = 0
    ) -> None:
        self.shape, self.tolerance, self.relative, self.seed = shape, tolerance, relative, seed
        self._levels = GridLevels.of(shape)
        self._asked: Bool[np.ndarray, "ny nx"] = np.zeros(self._levels.shape, bool)
        self._first = self._levels.is_first
        self._start = self._levels.start
        self._tests = np.zeros_like(self._asked)
        if self._start.any():
            others = np.flatnonzero(self._first & ~self._start)
            self._tests.flat[np.random.default_rng([seed, 0, 1]).choice(others, SMOOTHNESS_TESTS, replace=False)] = True
        self._rounds = self._checks = self._failed_checks = 0
        self._smooth = self._probed = self._done = False
        self._check: HeldOutCheck | None = None

    def next_points(self, loss: Float64[np.ndarray, "*grid"], status: UInt8[np.ndarray, "*grid"]) -> list[int]:
        """Returns the waiting points of a round, coarse to fine, as flat indices in C order; none when all is done."""
        loss, settled = self._grid(loss), self._settled(status)
        while not self._done:
            waiting = (self._asked & ~settled).reshape(-1)
            if waiting.any():
                return coarse_to_fine(waiting, self.shape)
            self._advance(loss)
        return []

    def fill(
        self, metrics: Mapping[str, Float64[np.ndarray, "*grid"]], status: UInt8[np.ndarray, "*grid"]
    ) -> Interpolated:
        """Returns the landscape with gaps interpolated, or pending where ``next_points`` still waits for points."""
        # The loss is a spline's, corrected by what the held-out points showed; estimates and errors of the check are
        # those from before they were measured. The other metrics, which may be steps, are interpolated linearly,
        # without a claim. Where the measured points around are NaN or infinite, so is the loss.
        waiting = bool(self.next_points(metrics["loss"], status))
        loss, settled = self._grid(metrics["loss"]), self._settled(status)
        # What another order of measuring has beside what was asked for counts as soon as the first grid is whole.
        known = settled if waiting and settled[self._first].all() else self._asked & settled
        check = None if waiting else self._check
        scale = self._scale(loss, known) if check is None else check.scale
        if waiting and not known[self._first].all():
            # As long as the first grid is not whole, nothing can be interpolated.
            nothing = np.where(settled, 0.0, np.nan)
            prediction = Prediction(loss, nothing, np.zeros_like(known), known, ())
        else:
            prediction = self._predict(loss, known, scale) if check is None else check.corrected(loss)
        gaps = ~settled & np.isfinite(prediction.error)
        others = {name: self._grid(values) for name, values in metrics.items() if name != "loss"}
        filled = {name: np.where(gaps, linear_metric(grid, known, self._levels), grid) for name, grid in others.items()}
        whole = filled["loss"] = np.where(gaps, predicted_loss(prediction, scale, loss), loss)
        finite = np.isfinite(whole) & (settled | gaps)
        error = scale.loss_error(np.where(gaps, prediction.error, 0.0), np.where(finite, whole, 0.0))
        new_status = np.where(gaps, np.uint8(PointStatus.INTERPOLATED), self._grid(status))
        unit = scale.tolerance / self.tolerance
        estimated = float(prediction.error[~settled].max(initial=0.0)) / unit
        errors = np.zeros(0) if check is None else check.errors(loss)[check.points] / unit
        largest = float(errors.max()) if len(errors) else math.nan
        report = SamplingReport(
            tolerance=self.tolerance,
            relative=self.relative,
            measured=int(settled.sum()),
            interpolated=int(gaps.sum()),
            rounds=self._rounds,
            estimated_error=estimated,
            checks=self._checks,
            held_out=len(errors),
            held_out_error=largest,
            held_out_rms=float(np.sqrt((errors**2).mean())) if len(errors) else math.nan,
            share_beyond_95=largest_share(int((errors > self.tolerance).sum()), len(errors)),
            largest_gap=largest_gap(~settled),
            reached=bool(settled.all()) or (not waiting and max(estimated, largest) <= self.tolerance),
        )
        return Interpolated(
            {name: filled[name].reshape(self.shape) for name in metrics},
            new_status.astype(np.uint8).reshape(self.shape),
            np.where(finite, error, np.nan).reshape(self.shape),
            report,
        )

    def _grid(self, values: Any) -> Any:
        return np.asarray(values).reshape(self._levels.shape)

    def _settled(self, status: UInt8[np.ndarray, "*grid"]) -> Bool[np.ndarray, "ny nx"]:
        return np.isin(self._grid(status), (PointStatus.MEASURED, PointStatus.FAILED))

    def _advance(self, loss: Float64[np.ndarray, "ny nx"]) -> None:
        """Adds the next round's points, all points asked for so far being measured."""
        if not self._rounds:
            self._ask(self._start | self._tests if self._tests.any() else self._first)
            return
        if self._rounds == 1 and self._tests.any():
            self._test_smoothness(loss)
            return
        failed = np.zeros_like(self._asked) if self._check is None else self._check.failed(loss)
        if self._check is not None and not failed.any():
            self._done = True
            return
        if self._smooth:
            # Nothing was estimated from the first grid, so no estimate was too small.
            self._smooth, self._check = False, None
            self._ask(self._first & ~self._asked)
            return
        self._failed_checks += self._check is not None
        self._check = None
        scale = self._scale(loss, self._asked)
        prediction = self._predict(loss, self._asked, scale)
        wanted = prediction.to_refine(scale.tolerance)
        for row, column in np.argwhere(failed):
            wanted |= self._levels.around(int(row), int(column))
        wanted &= ~self._asked
        if wanted.any() and (wanted | self._asked).mean() > _REST_SHARE:
            wanted = ~self._asked
        quiet = not wanted.any()
        if not quiet or not self._probed:
            wanted |= self._probes(prediction, wanted)
            self._probed = quiet
        if not wanted.any() and not self._asked.all():
            wanted = self._held_out(prediction, scale)
        self._ask(wanted)

    def _test_smoothness(self, loss: Float64[np.ndarray, "ny nx"]) -> None:
        """Adds the points of a check where the very coarse grid predicts the tests, else those of the first grid."""
        scale = self._scale(loss, self._asked)
        test = HeldOutCheck(self._tests, self._predict(loss, self._start, scale), scale)
        estimate = (_OVER_TESTS_WHEN_RELATIVE if self.relative else _OVER_TESTS) * float(test.errors(loss).max())
        self._smooth = estimate <= scale.tolerance and not test.prediction.holes.any()
        if self._smooth:
            prediction = self._predict(loss, self._asked, scale)
            self._ask(self._held_out(replace(prediction, error=np.where(self._asked, 0.0, estimate)), scale))
        else:
            self._ask(self._first & ~self._asked)

    def _held_out(self, prediction: Prediction, scale: LossScale) -> Bool[np.ndarray, "ny nx"]:
        # Numbered, so that each check draws afresh and a resumed run draws the same.
        self._check = HeldOutCheck.drawn(prediction, scale, np.random.default_rng([self.seed, self._checks]))
        self._checks += 1
        return self._check.points

    def _ask(self, wanted: Bool[np.ndarray, "ny nx"]) -> None:
        self._done = not wanted.any()
        self._rounds += not self._done
        self._asked |= wanted

    def _scale(self, loss: Float64[np.ndarray, "ny nx"], known: Bool[np.ndarray, "ny nx"]) -> LossScale:
        first = loss[self._first]
        finite = loss[known & np.isfinite(loss)]
        return LossScale.of(first[np.isfinite(first)], finite, self.tolerance, relative=self.relative)

    def _predict(
        self, loss: Float64[np.ndarray, "ny nx"], known: Bool[np.ndarray, "ny nx"], scale: LossScale
    ) -> Prediction:
        values = np.where(known, scale.scaled(np.where(known, loss, 0.0)), np.nan)
        coarse = not self.relative and self.tolerance >= _COARSE_TOLERANCE
        # Each check that failed has shown that estimates are too small.
        caution = (_CAUTION if coarse else _CAUTION_WHEN_FINE) * 2.0**self._failed_checks
        return predict(values, known.copy(), self._levels, caution)

    def _probes(self, prediction: Prediction, wanted: Bool[np.ndarray, "ny nx"]) -> Bool[np.ndarray, "ny nx"]:
        """Returns the points that are worst by the estimate though good enough, one in each cell of the first grid."""
        # They fill small batches, and come before the check: an estimate that is too small is often found by them.
        probes = np.zeros_like(wanted)
        count = _SMALLEST_BATCH - int(wanted.sum())
        rows, columns = self._levels.first
        used: set[tuple[int, int]] = set()
        for row, column, _ in sorted(prediction.doubtful(), key=lambda point: -point[2]) if count > 0 else ():
            cell = int(np.searchsorted(rows, row)), int(np.searchsorted(columns, column))
            if cell not in used and not wanted[row, column]:
                used.add(cell)
                probes[row, column] = True
            if len(used) >= count:
                break
        return probes


def predicted_loss(
    prediction: Prediction, scale: LossScale, measured: Float64[np.ndarray, "ny nx"]
) -> Float64[np.ndarray, "ny nx"]:
    """Returns the predicted losses; in holes, the nearest measured value that is NaN or infinite."""
    loss = scale.loss(np.where(prediction.holes, 0.0, prediction.values))
    finite = measured[prediction.known & np.isfinite(measured)]
    if len(finite) and finite.min() > 0:
        # A spline may dip below zero beside a steep wall, where a positive loss cannot be and a log plot breaks.
        lowest = 0.5 * finite.min()
        loss = np.where(
            loss > 0, np.maximum(loss, np.minimum(lowest, loss + scale.loss_error(prediction.error, loss))), lowest
        )
    if not prediction.holes.any():
        return loss
    return np.where(prediction.holes, nearest(measured, prediction.known & ~np.isfinite(measured)), loss)


def linear_metric(
    measured: Float64[np.ndarray, "ny nx"], known: Bool[np.ndarray, "ny nx"], levels: GridLevels
) -> Float64[np.ndarray, "ny nx"]:
    """Returns a metric between its measured values, linear from grid to grid; NaN beside one that is not finite."""
    if not levels.steps:
        return measured
    measured = np.where(np.isfinite(measured), measured, np.nan)
    guess: Float64[np.ndarray, "_ _"] = measured[np.ix_(*levels.steps[0].coarse)]
    for step in levels.steps:
        grid = np.ix_(*step.fine)
        guess = np.where(known[grid], measured[grid], linear(guess, step))
    return guess
