"""The losses of single samples at a few points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collectors.shapes import Float64

NUMERATORS, DENOMINATORS = "numerators", "denominators"
"""Under which names ``Evaluator.measure`` returns the sums of single samples."""


@dataclass(frozen=True, eq=False)
class SampleLosses:
    """The losses of single samples at a few points, from which the loss is made: a mean is the sum over the sum."""

    numerators: Float64[np.ndarray, "points samples"]
    denominators: Float64[np.ndarray, " samples"] | None  # how much each counts, at all points; None for a sum


@dataclass(frozen=True)
class KeptSamples:
    """The samples of a data set whose losses are kept at each point."""

    name: str  # of the data set; "" where it has none
    count: int
    targets: bytes = b""  # int64 in little-endian bytes; empty where targets are not one whole number for each sample
    weights: bytes = b""  # of each in the mean, float64 in little-endian bytes; empty where all count alike
    is_sum: bool = False  # whether the loss of all samples is a sum, and no mean
