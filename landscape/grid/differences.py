"""Where values differ: a checkpoint's own from what is drawn at its foot, and those of two surfaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workers.metric_names import MetricName

from ..record.checks import PointStatus
from .data import LOSS_ERROR, LandscapeData
from .samples import UNNAMED, KeptLosses

if TYPE_CHECKING:
    from jaxtyping import Bool, Float64
    from numpy.typing import NDArray

    from .checkpoints import CheckpointsData


STANDARD_ERRORS = 2.0
"""By how many standard errors two values must differ, where they have any."""
SHARE = 0.01
"""By which share of the larger one two values must differ, where neither has a standard error."""
_ROUNDING = 1e-6
PAIRED = "paired over samples"
UNPAIRED = "not paired"


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
    found = []
    for row in np.flatnonzero(np.isfinite(own)):
        measured = not np.isnan(drawn[row])
        if measured and not abs(own[row] - drawn[row]) <= least[row]:
            buffers = bool(abs(own[row] - between[row]) > least[row])
            # Two small parts may make a difference together; then the weights, which are the larger change, count.
            weights = bool(abs(between[row] - drawn[row]) > least[row]) or not (buffers or np.isnan(between[row]))
            far = bool(checkpoints.residual[row] > _ROUNDING * max(float(checkpoints.norm.max()), 1e-300))
            residual = float(checkpoints.residual[row]) if weights and far else None
            found.append(
                OwnValue(int(row), float(own[row]), float(drawn[row]), buffers, residual, frozen=weights and not far)
            )
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
    """The standard error of a difference at each point of a grid.

    Attributes:
        stderr: over samples, shape (ny, nx); NaN where it is not known.
        interpolation: the estimated errors of what was interpolated, added up, shape (ny, nx); 0 where both were
            measured, NaN where nobody estimated one, as for the losses of further data sets.
        pairing: ``PAIRED`` where each sample's own difference was used, else ``UNPAIRED``.
    """

    stderr: Float64[np.ndarray, "*grid"]
    interpolation: Float64[np.ndarray, "*grid"]
    pairing: str

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
    if ours is not None and theirs is not None and len(digests) == 1 and None not in digests:
        return DifferenceErrors(ours.paired_errors(theirs), interpolation, PAIRED)
    found: list[NDArray[Any]] = []
    for landscape, metric in surfaces:
        stderr = landscape.metrics.get(MetricName.read(metric, landscape.metrics).standard_error)
        if stderr is None or not np.isfinite(stderr).any():
            return None
        found.append(stderr)
    return DifferenceErrors(np.hypot(*found), interpolation, UNPAIRED)


def _interpolation(landscape: LandscapeData, metric: str) -> NDArray[Any]:
    error = landscape.metrics.get(LOSS_ERROR) if metric == "loss" else None
    unknown = np.where(landscape.status == PointStatus.INTERPOLATED, np.nan, 0.0)
    found: NDArray[Any] = unknown if error is None else np.nan_to_num(error, nan=0.0, posinf=np.inf)
    return found


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
