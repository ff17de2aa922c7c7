"""Curvatures to draw, made by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from landscape.record.checks import PointStatus


@dataclass
class MadeCurvature:
    """What the pictures ask for, as arrays."""

    number: NDArray[Any]
    status: NDArray[Any]
    eigenvalues: NDArray[Any]
    residuals: NDArray[Any]
    converged: NDArray[Any]
    trace: NDArray[Any]
    trace_interval: NDArray[Any]
    density_nodes: NDArray[Any]
    density_weights: NDArray[Any]
    attributes: Mapping[str, Any]


def build_curvature(count=21, *, top=5, bottom=0, probes=4, steps=40, **attributes):
    """Returns a sharpness that rises, as in training with a large rate, and spectra of a bulk with outliers."""
    number = np.arange(count, dtype=np.int64)
    growth = 3 + 33 * (1 - np.exp(-number / 6))
    highest = growth[:, None] * 0.62 ** np.arange(top)
    lowest = -1.9 * 0.6 ** np.arange(bottom) * (1 + 0.1 * np.sin(number))[:, None]
    values = np.hstack([highest, lowest])
    trace = 1.4 * highest.sum(axis=1) + 6
    half = 0.05 * trace
    random = np.random.default_rng(0)
    middles = np.sort(np.abs(random.normal(0, 0.6, (count, probes, steps))) ** 2 - 0.3, axis=2)
    shares = random.random((count, probes, steps)) * np.exp(-4 * np.abs(middles))
    shares /= shares.sum(axis=2, keepdims=True)
    if probes and top:
        # Each outlier is one eigenvalue of all, and a probe sees it with a weight that is right only on average.
        middles[:, :, -top:] = highest[:, None, ::-1]
        shares[:, :, -top:] = random.exponential(1 / 1210, (count, probes, top))
    return MadeCurvature(
        number, np.full(count, PointStatus.MEASURED, np.uint8), values, 1e-4 * np.abs(values),
        np.ones(values.shape, np.uint8), trace,
        np.column_stack([trace - half, trace + half]), middles, shares,
        {
            "matrix": "hessian", "num_samples": 1024, "network": "LeNet", "unit": "epoch", "top": top,
            "tolerance": 1e-3, "weights": 1210,
        } | attributes,
    )  # fmt: skip


def leave_out(curvature, rows, status):
    """Makes checkpoints pending or failed."""
    curvature.status[rows] = status
    for array in (
        curvature.eigenvalues, curvature.residuals, curvature.trace, curvature.trace_interval, curvature.density_nodes,
        curvature.density_weights,
    ):  # fmt: skip
        array[rows] = np.nan
