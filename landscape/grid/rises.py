"""How far a value rises on the way from one network to another: above the chord between what both have themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import MEASURE_BARRIER
from ..record.checks import PointStatus
from .data import LandscapeData

if TYPE_CHECKING:
    from jaxtyping import Float64

BARRIER = "barrier"
"""The attribute that keeps the standard error of a barrier, which no other value of the file tells."""


ONE_SIDED = 1.645
"""How many standard errors a one-sided interval of 95 % reaches."""


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
    chord: Float64[np.ndarray, " nx"] = (1 - landscape.x) * first + landscape.x * last
    return chord


def highest_rise(landscape: LandscapeData, metric: str = "loss") -> Rise:
    """Returns the largest rise between the two networks; points without a value count nothing."""
    if not np.isfinite(ends_of_way(landscape, metric)).all():
        return Rise(math.nan, math.nan, math.nan, math.nan)
    chord = chord_of(landscape, metric)
    above = landscape[metric] - chord
    within = (landscape.x >= 0) & (landscape.x <= 1)
    counted = np.flatnonzero(within & ~np.isnan(above) & (landscape.status != PointStatus.FAILED))
    place = counted[np.argmax(above[counted])]
    inner = counted[(landscape.x[counted] > 0) & (landscape.x[counted] < 1)]
    rises = above[place] > 0
    if not rises and not len(inner):
        return Rise(0.0, 0.0, math.nan, float(chord[landscape.x == 0][0]))
    point = place if rises else inner[np.argmax(above[inner])]
    height, at = float(above[point]), float(landscape.x[point])
    kept = landscape.attributes.get(BARRIER) or {}
    known = metric == "loss" and kept.get("at") == at and kept.get("stderr") is not None
    stderr = float(kept["stderr"]) if known else math.nan
    if rises:
        return Rise(height, at, stderr, float(chord[point]))
    limit = max(height + ONE_SIDED * stderr, 0.0) if known else math.nan
    return Rise(0.0, 0.0, math.nan, float(chord[landscape.x == 0][0]), at, limit)
