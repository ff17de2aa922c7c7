"""The options of ``SummaryLandscape.gen_curvature`` and ``measure_curvature``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from collectors.validation import check_bool, check_float
from workers.curvature.products import MATRICES

from ..record.options import OPTIONS, LossOptions, Option, WorkerOptions, at_least


class CurvatureOptions(WorkerOptions, LossOptions, total=False):
    """What is measured of a loss's curvature, and how; ``CURVATURE_OPTIONS`` explains each."""

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


class RunCurvatureOptions(CurvatureOptions, total=False):
    """What is measured of a run, beside ``CurvatureOptions``."""

    name: str | None
    dry_run: bool


CURVATURE_OPTIONS: Mapping[str, Option] = {
    "top": Option(5, at_least(0), "how many of the largest eigenvalues."),
    "bottom": Option(0, at_least(0), "how many of the lowest eigenvalues. These cost most: at the end of a training "
        "they are small beside the largest ones."),
    "matrix": Option("hessian", MATRICES, 'whose eigenvalues: "hessian" or "ggn". "ggn" is the generalised '
        "Gauss-Newton matrix, which is never negative for a loss that is convex in the network's outputs."),
    "trace_probes": Option(10, at_least(0), "products for the trace (the sum of all eigenvalues) and its 95 % "
        "interval, beside the eigenvalues; 0 measures none.", flags=("--trace",)),
    "density_probes": Option(0, at_least(0), "random starts for the density of all eigenvalues; 0 measures none."),
    "density_steps": Option(40, at_least(1), "products for each of these starts."),
    "max_products": Option(200, at_least(1), "products for one search for eigenvalues. What has not converged by then "
        "is marked, and its residual says how well it is known."),
    "keep_vectors": Option(False, check_bool, "whether eigenvectors are kept, with the weights, in a file for each set "
        "of weights. They lie beside the curvature file in ``<stem>_vectors_<number>.safetensors``, and "
        "``Curvature.vectors`` and ``Curvature.plane`` read them.", flags=("--keep-vectors",)),
    **OPTIONS,
    "seed": replace(OPTIONS["seed"], text="seed of all random starts, and of a random choice of samples."),
    "tolerance": Option(1e-3, check_float, "largest residual of an eigenvalue, as a share of its own size."),
    "seed_each_point": replace(OPTIONS["seed_each_point"], text="whether a loss that draws random numbers draws the "
        "same ones in every product (PyTorch)."),
    "budget": replace(OPTIONS["budget"], text='how long the call may take: seconds, or text such as "30min". Weights '
        "that are not begun by then are pending; the same call continues."),
    "overwrite": replace(OPTIONS["overwrite"], text="whether a curvature file of another identity is replaced.",
        flags=("--overwrite",)),
    "name": Option(None, None, 'beginning of the file names, instead of "curvature".', typed=str | None),
}  # fmt: skip
