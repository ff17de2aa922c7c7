"""Where values differ: a checkpoint's own from what is drawn, those of two surfaces, a line from its chord."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Bool, Float64
from workers.metric_names import MetricName

from ..errors import MEASURE_BARRIER
from ..record.checks import PointStatus
from .checkpoints import CheckpointsData
from .data import LOSS_ERROR, LandscapeData
from .samples import UNNAMED, KeptLosses

STANDARD_ERRORS = 2.0
"""By how many standard errors two values must differ, where they have any."""
SHARE = 0.01
"""By which share of the larger one two values must differ, where neither has a standard error."""
_ROUNDING = 1e-6
PAIRED = "paired over samples"
UNPAIRED = "not paired"
BARRIER = "barrier"
"""The attribute that keeps the standard error of a barrier, which no other value of the file tells."""
ONE_SIDED = 1.645
"""How many standard errors a one-sided interval of 95 % reaches."""


@dataclass(frozen=True)
class OwnValue:
    """A checkpoint whose own value is not the one that is drawn at its foot on the plane."""

    row: int  # of the checkpoint
    own: float  # measured at the checkpoint itself, with its own buffers
    drawn: float  # measured at its foot, with the plane's buffers
    buffers: bool  # whether its own buffers, such as BatchNorm's statistics, make a difference
    residual: float | None  # its distance from the plane, if that makes a difference; else None
    frozen: bool  # whether frozen parameters, which a plane takes from its origin, make a difference

    @property
    def reason(self) -> str:
        parts = [
            "own buffers such as BatchNorm's statistics" if self.buffers else "",
            f"lies off the plane, residual {self.residual:.3g}" if self.residual is not None else "",
            "own frozen parameters" if self.frozen else "",
        ]
        return "; ".join(part for part in parts if part)


def own_values(checkpoints: CheckpointsData | None, metric: str) -> list[OwnValue]:
    """Returns the checkpoints whose value of a metric differs from the drawn one by more than ``_least_difference``."""
    if checkpoints is None or metric not in checkpoints.metrics or metric not in checkpoints.projected:
        return []
    own, drawn = checkpoints.metrics[metric], checkpoints.projected[metric]
    # The checkpoint's own weights with the plane's buffers; without buffers these are its own value.
    between = checkpoints.with_plane_buffers.get(metric, own)
    least = _least_difference(checkpoints, metric)
    with np.errstate(invalid="ignore"):
        differ = np.isfinite(own) & ~np.isnan(drawn) & ~(abs(own - drawn) <= least)
    found = []
    for row in np.flatnonzero(differ).tolist():
        buffers = bool(abs(own[row] - between[row]) > least[row])
        # Two small parts may make a difference together; then the weights, which are the larger change, count.
        weights = bool(abs(between[row] - drawn[row]) > least[row]) or not (buffers or np.isnan(between[row]))
        far = bool(checkpoints.residual[row] > _ROUNDING * max(float(checkpoints.norm.max()), 1e-300))
        residual = float(checkpoints.residual[row]) if weights and far else None
        found.append(OwnValue(row, float(own[row]), float(drawn[row]), buffers, residual, frozen=weights and not far))
    return found


def _least_difference(checkpoints: CheckpointsData, metric: str) -> NDArray[np.float64]:
    """Returns for each checkpoint the difference up to which two values are one: 2 standard errors, or 1 % of them."""
    with np.errstate(invalid="ignore"):
        size = np.fmax(abs(checkpoints.metrics[metric]), abs(checkpoints.projected[metric]))
        size = np.where(np.isfinite(size), size, 0.0)
        error_name = MetricName.read(metric, checkpoints.metrics).standard_error
        errors = [part.get(error_name) for part in (checkpoints.metrics, checkpoints.projected)]
        known = [error for error in errors if error is not None]
        error = np.fmax.reduce(known) if known else np.full(len(size), np.nan)
    return np.where(np.isfinite(error), np.maximum(STANDARD_ERRORS * error, _ROUNDING * size), SHARE * size)


def own_values_text(
    checkpoints: CheckpointsData | None, metric: str, unit: str, main: str = "", *, short: bool = False
) -> str | None:
    """Returns where own values differ most from the drawn ones, and why unless ``short``; None where none does."""
    found = own_values(checkpoints, metric)
    if checkpoints is None or not found:
        return None
    called = MetricName.read(metric, checkpoints.metrics).text(main)
    most = max(found, key=lambda value: abs(value.own - value.drawn))
    numbers = f"own {called} {most.own:.3g}, drawn {most.drawn:.3g}"
    why = f": {most.reason}" if most.reason else ""
    if len(checkpoints.number) == 1:
        return f"{checkpoints.label(most.row, unit)}: {numbers}{why}"
    count = f"own {called} differs at {len(found)} of {len(checkpoints.number)} networks"
    return count if short else f"{count}, most at {checkpoints.label(most.row, unit)} ({numbers}{why})"


@dataclass(frozen=True)
class DifferenceErrors:
    """The standard error of a difference at each point of a grid."""

    stderr: Float64[np.ndarray, "*grid"]  # over samples; NaN where it is not known
    # The estimated errors of what was interpolated, added up; 0 where both were measured, NaN where nobody estimated
    # one, as for the losses of further data sets.
    interpolation: Float64[np.ndarray, "*grid"]
    pairing: str  # in words: by each sample's own difference (``PAIRED``), or ``UNPAIRED``

    def within(self, values: Float64[np.ndarray, "*grid"], significance: float) -> Bool[np.ndarray, "*grid"]:
        """Returns where a difference may be chance: up to ``significance`` standard errors, plus interpolation."""
        # Where the error of interpolation is not known, it may be.
        with np.errstate(invalid="ignore"):
            within = np.abs(values) <= significance * self.stderr + self.interpolation
            return np.asarray(within | (np.isnan(self.interpolation) & np.isfinite(values)))


def difference_errors(first: LandscapeData, second: LandscapeData, metrics: tuple[str, str]) -> DifferenceErrors | None:
    """Returns how uncertain ``first`` minus ``second``, on one grid, is; None where standard errors are not known."""
    # Without the losses of the same samples in both (keep_samples=True), the two errors add up as those of independent
    # samples: the true error is usually smaller, so that fewer differences are called significant than could be.
    surfaces = tuple(zip((first, second), metrics, strict=True))
    interpolation = sum((_interpolation(*surface) for surface in surfaces), np.zeros(first.shape))
    ours, theirs = (_kept(*surface) for surface in surfaces)
    digests = {_digest(*surface) for surface in surfaces}
    found: list[Any] = [data.metrics.get(MetricName.read(name, data.metrics).standard_error) for data, name in surfaces]
    is_known = not any(stderr is None or not np.isfinite(stderr).any() for stderr in found)
    if ours is not None and theirs is not None and len(digests) == 1 and None not in digests:
        stderr, pairing = ours.paired_errors(theirs), PAIRED
        predicted = (first.status == PointStatus.INTERPOLATED) | (second.status == PointStatus.INTERPOLATED)
        if is_known and predicted.any():  # which have no losses of samples
            stderr, pairing = np.where(predicted, np.hypot(*found), stderr), f"{PAIRED} where measured"
        return DifferenceErrors(stderr, interpolation, pairing)
    return DifferenceErrors(np.hypot(*found), interpolation, UNPAIRED) if is_known else None


def _interpolation(landscape: LandscapeData, metric: str) -> NDArray[Any]:
    if metric == "loss" and LOSS_ERROR in landscape.metrics:
        return np.asarray(np.nan_to_num(landscape.metrics[LOSS_ERROR], nan=0.0, posinf=np.inf))
    return np.where(landscape.status == PointStatus.INTERPOLATED, np.nan, 0.0)


def _kept(landscape: LandscapeData, metric: str) -> KeptLosses | None:
    name = MetricName.read(metric, landscape.metrics)
    if name.quantity != "loss" or name.group:
        return None
    main = next(iter(landscape.kept_samples), UNNAMED)
    return landscape.kept_samples.get(name.dataset or main)


def _digest(landscape: LandscapeData, metric: str) -> str | None:
    """Returns by what the samples of a metric are recognized, where the file says it."""
    found = (landscape.attributes.get("identity") or {}).get("samples") or {}
    dataset = MetricName.read(metric, landscape.metrics).dataset
    if dataset:
        found = (found.get("further") or {}).get(dataset) or {}
    digest = found.get("sha256")
    return digest if isinstance(digest, str) else None


@dataclass(frozen=True)
class Rise:
    """The largest rise above the chord."""

    height: float  # 0 where nothing rises above it; NaN where an end has no finite value
    at: float  # where it is, from 0 to 1
    stderr: float  # its standard error over samples; NaN where it is not known, and where nothing rises
    chord: float  # the height of the chord there
    nearest: float = math.nan  # where nothing rises: at which point the value comes nearest to the chord; else NaN
    limit: float = math.nan  # there, above the chord: end of a one-sided 95 % interval, 0 or more; NaN if unknown


def ends_of_way(landscape: LandscapeData, metric: str = "loss") -> tuple[float, float]:
    """Returns a metric at x = 0 and 1, the two networks; a ValueError for a plane, or where either is missing."""
    if landscape.y is not None:
        raise ValueError("a barrier is that of a line or a curve, but the landscape is a plane.")
    found = [np.flatnonzero(landscape.x == end) for end in (0.0, 1.0)]
    if not all(len(places) for places in found):
        raise ValueError(
            "the landscape must have points at 0 and at 1, the two networks, but goes from "
            f"{landscape.x[0]:g} to {landscape.x[-1]:g} without them. {MEASURE_BARRIER}"
        )
    first, last = (float(landscape[metric][places[0]]) for places in found)
    return first, last


def chord_of(landscape: LandscapeData, metric: str = "loss") -> Float64[np.ndarray, " nx"]:
    """Returns the height of the straight line between the two networks' values at each point, shape (nx,)."""
    first, last = ends_of_way(landscape, metric)
    return np.asarray((1 - landscape.x) * first + landscape.x * last)


def highest_rise(landscape: LandscapeData, metric: str = "loss") -> Rise:
    """Returns the largest rise between the two networks; points without a value count nothing."""
    if not np.isfinite(ends_of_way(landscape, metric)).all():
        return Rise(math.nan, math.nan, math.nan, math.nan)
    x, chord = landscape.x, chord_of(landscape, metric)
    above = landscape[metric] - chord
    counted = np.flatnonzero((x >= 0) & (x <= 1) & ~np.isnan(above) & (landscape.status != PointStatus.FAILED))
    rises, nothing = above[counted].max() > 0, Rise(0.0, 0.0, math.nan, float(chord[x == 0][0]))
    if not rises:
        counted = counted[(x[counted] > 0) & (x[counted] < 1)]
    if not len(counted):
        return nothing
    point = counted[np.argmax(above[counted])]
    height, at = float(above[point]), float(x[point])
    kept = landscape.attributes.get(BARRIER) or {}
    known = metric == "loss" and kept.get("at") == at and kept.get("stderr") is not None
    stderr = float(kept["stderr"]) if known else math.nan
    if rises:
        return Rise(height, at, stderr, float(chord[point]))
    return replace(nothing, nearest=at, limit=max(height + ONE_SIDED * stderr, 0.0) if known else math.nan)
