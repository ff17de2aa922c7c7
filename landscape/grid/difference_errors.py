"""How uncertain the difference of two surfaces is at each point: by the samples, and by what was interpolated."""

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

PAIRED = "paired over samples"
UNPAIRED = "not paired"


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
