"""How far the values of a landscape may be from the true ones: by their samples, by interpolation, by rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from workers.metric_names import MetricName

from ..grid.data import LOSS_ERROR

if TYPE_CHECKING:
    from ..grid.data import LandscapeData


# Of a value, by the precision of the forward passes. Losses of the same weights that were measured in another order of
# summation differ by less in float32; the others are the spacing of their numbers.
_ROUNDING = {"float32": 1e-6, "tf32": 2.0**-11, "bfloat16": 2.0**-8}


def errors_of_values(landscape: LandscapeData, metric: str) -> NDArray[np.float64]:
    """Returns how far each value of a metric may be from the true one, shape (ny, nx) or (nx,); 0 if not finite."""
    # That is the standard error over the samples, plus adaptive sampling's estimate of the loss where it interpolated,
    # plus the rounding of the precision.
    values = landscape[metric]
    plan = landscape.attributes.get("measurement_plan")
    precision = str(plan.get("precision")) if isinstance(plan, Mapping) else "float32"
    parts = [_ROUNDING.get(precision, _ROUNDING["float32"]) * np.abs(values)]
    name = MetricName.read(metric, landscape.metrics)
    if not name.is_error and name.standard_error in landscape.metrics:
        parts.append(np.abs(landscape.metrics[name.standard_error]))
    if metric == "loss" and LOSS_ERROR in landscape.metrics:
        parts.append(np.abs(landscape.metrics[LOSS_ERROR]))
    total = sum((np.where(np.isfinite(part), part, 0.0) for part in parts), np.zeros(values.shape))
    return np.where(np.isfinite(values), total, 0.0)
