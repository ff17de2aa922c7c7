"""The options of ``SummaryLandscape.gen_curvature`` and ``measure_curvature``, with their defaults and explanations."""

from __future__ import annotations

import os
from typing import TypedDict

from workers.measurement_plan import MeasurementPlan

from ..record.options import EXPLANATIONS as OF_SURVEYS
from ..record.options import explanations_of


class CurvatureOptions(TypedDict, total=False):
    """What is measured of a loss's curvature, and how; all of it may be left out.

    Attributes:
        top: how many of the largest eigenvalues.
        bottom: how many of the lowest eigenvalues. These cost most: at the end of a training they are small beside the
            largest ones.
        matrix: whose eigenvalues: "hessian" or "ggn". "ggn" is the generalised Gauss-Newton matrix, which is never
            negative for a loss that is convex in the network's outputs.
        trace_probes: products for the trace (the sum of all eigenvalues) and its 95 % interval, beside the eigenvalues;
            0 measures none.
        density_probes: random starts for the density of all eigenvalues; 0 measures none.
        density_steps: products for each of these starts.
        tolerance: largest residual of an eigenvalue, as a share of its own size.
        max_products: products for one search for eigenvalues. What has not converged by then is marked, and its
            residual says how well it is known.
        keep_vectors: whether eigenvectors are kept, with the weights, in a file for each set of weights. They lie
            beside the curvature file in ``<stem>_vectors_<number>.safetensors``, and ``Curvature.vectors`` and
            ``Curvature.plane`` read them.
        seed: seed of all random starts, and of a random choice of samples.
        samples: which samples: "first" (in data-set order) or "random" (a seeded subset).
        seed_each_point: whether a loss that draws random numbers draws the same ones in every product (PyTorch).
        budget: how long the call may take: seconds, or text such as "30min". Weights that are not begun by then are
            pending; the same call continues.
        overwrite: whether a curvature file of another identity is replaced.
    """

    top: int
    bottom: int
    matrix: str
    trace_probes: int
    density_probes: int
    density_steps: int
    tolerance: float
    max_products: int
    keep_vectors: bool
    seed: int
    samples: str
    seed_each_point: bool
    budget: float | str | None
    overwrite: bool
    progress: bool
    plan: MeasurementPlan | str | os.PathLike[str] | None
    sample_memory: int | str
    devices_per_worker: int
    workers_per_device: int
    address: str | None


class RunCurvatureOptions(CurvatureOptions, total=False):
    """What is measured of a run, beside ``CurvatureOptions``."""

    name: str | None
    dry_run: bool


DEFAULTS: RunCurvatureOptions = {
    "top": 5, "bottom": 0, "matrix": "hessian", "trace_probes": 10, "density_probes": 0, "density_steps": 40,
    "tolerance": 1e-3, "max_products": 200, "keep_vectors": False, "seed": 0, "samples": "first",
    "seed_each_point": False, "budget": None, "overwrite": False, "progress": True, "plan": None,
    "sample_memory": "auto", "devices_per_worker": 1, "workers_per_device": 1, "address": None, "name": None,
    "dry_run": False,
}  # fmt: skip

EXPLANATIONS = {
    **{name: OF_SURVEYS[name] for name in DEFAULTS if name in OF_SURVEYS},
    **explanations_of(CurvatureOptions),
    "name": 'beginning of the file names, instead of "curvature".',
}
