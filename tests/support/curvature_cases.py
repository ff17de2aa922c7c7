"""Curvatures to draw, made by hand."""

import numpy as np

from landscape.curvature.data import CurvatureData
from landscape.record.checks import PointStatus

TRACEBACK = "Traceback (most recent call last):\n  File\nCurvatureError: the löss is \0 nan"


def build_curvature(count=21, *, top=5, bottom=0, probes=4, steps=40, **attributes):
    """Returns a sharpness that rises, as in training with a large rate, and spectra of a bulk with outliers."""
    number = np.arange(count, dtype=np.int64)
    growth = 3 + 33 * (1 - np.exp(-number / 6))
    highest = growth[:, None] * 0.62 ** np.arange(top)
    lowest = -1.9 * 0.6 ** np.arange(bottom) * (1 + 0.1 * np.sin(number))[:, None]
    values = np.hstack([highest, lowest])
    trace = 1.4 * highest.sum(axis=1) + 6
    random = np.random.default_rng(0)
    middles = np.sort(np.abs(random.normal(0, 0.6, (count, probes, steps))) ** 2 - 0.3, axis=2)
    shares = random.random((count, probes, steps)) * np.exp(-4 * np.abs(middles))
    shares /= shares.sum(axis=2, keepdims=True)
    if probes and top:
        # Each outlier is one eigenvalue of all, and a probe sees it with a weight that is right only on average.
        middles[:, :, -top:] = highest[:, None, ::-1]
        shares[:, :, -top:] = random.exponential(1 / 1210, (count, probes, top))
    known = {
        "number": number, "sha256": [""] * count, "eigenvalues": values, "residuals": 1e-4 * np.abs(values),
        "trace": trace, "trace_low": 0.95 * trace, "trace_high": 1.05 * trace, "density_nodes": middles,
        "density_weights": shares,
    }  # fmt: skip
    usual = {
        "matrix": "hessian", "num_samples": 1024, "network": "LeNet", "unit": "epoch", "top": top, "bottom": bottom,
        "tolerance": 1e-3, "weights": 1210,
    }  # fmt: skip
    data = CurvatureData.empty(known, attributes=usual | attributes)
    data.status[:], data.converged[:] = PointStatus.MEASURED, 1
    return data


def leave_out(curvature, rows, status):
    """Makes checkpoints pending or failed."""
    curvature.status[rows] = status
    for values in curvature.columns.values():
        if values.dtype == np.float64:
            values[rows] = np.nan


def curvature_record(density=(0, 0), top=2, bottom=1, share=False, status=(1, 1, 1)):
    """Returns what a curvature file holds of so many sets of weights."""
    random, size = np.random.default_rng(0), len(status)
    attributes = {
        "matrix": "hessian", "unit": "epoch", "top": top, "bottom": bottom, "weights": 1210, "network": "Net",
        "tolerance": 1e-3, "num_samples": 64, "samples": "first", "seed": 0, "notes": ["a note"],
        "identity": {"top": top, "samples": {"count": 64}}, "versions": {"numpy": "2"}, "step_per_epoch": 7,
        "learning_rate": {"0": 0.1},
    }  # fmt: skip
    known = {"number": [0, 2, 5][:size], "sha256": ["ab" * 32, "cd" * 32, "ef" * 32][:size]}
    sizes = {"pair": top + bottom, "probe": density[0], "step": density[1]}
    data = CurvatureData.empty(known, sizes, attributes)
    data.status[:] = status
    measured = data.status == PointStatus.MEASURED
    names = (
        "loss", "gradient_norm", "trace", "trace_low", "trace_high", "eigenvalues", "residuals", "angle_bound",
        "share_seen_by_optimizer", "density_nodes", "density_weights",
    )  # fmt: skip
    for name in names:
        values = getattr(data, name)
        if share or name != "share_seen_by_optimizer":
            values[measured] = random.random(values.shape)[measured]
    data.converged[measured], data.products[measured], data.forward_passes[measured] = 1, 40, 204
    for number in data.number[data.status == PointStatus.FAILED]:
        data.errors[f"number/{number}"] = TRACEBACK
    return data
