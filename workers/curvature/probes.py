"""What random probes tell of a matrix: its trace with an interval, and the density of its eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collectors.shapes import Float64

from ..errors import CurvatureError
from .lanczos import Basis, Ends, Lanczos, one_blas_thread
from .products import Products

_OF_TRACE, _OF_DENSITY = 2, 3  # of the random numbers for probes


@dataclass(frozen=True)
class Trace:
    value: float  # of the trace
    low: float  # lower end of the interval; NaN where there are less than two probes
    high: float  # its upper end
    samples: Float64[np.ndarray, " probes"]  # what each probe gave for the part beside the eigenpairs

    @classmethod
    def of(cls, samples: Float64[np.ndarray, " probes"], *, known: float = 0.0, confidence: float = 0.95) -> Trace:
        """Returns the mean of the samples (one at least) plus what is known, with Student's interval."""
        from scipy.special import stdtrit  # scipy.stats, which asks it, takes a second to import

        value, count = known + float(samples.mean()), len(samples)
        if count < 2:
            return cls(value, float("nan"), float("nan"), samples)
        half = float(stdtrit(count - 1, (1 + confidence) / 2) * samples.std(ddof=1) / np.sqrt(count))
        return cls(value, value - half, value + half, samples)


@one_blas_thread()
def find_trace(products: Products, ends: Ends, probes: int, *, seed: int = 0) -> Trace:
    """Returns the sum of converged eigenvalues plus an estimate beside them (Hutchinson 1990; Meyer et al. 2021)."""
    layout = products.layout
    known = Basis(len(ends.values), layout.dimension, layout.dtype)
    traced = 0.0
    for value, vector, converged in zip(ends.values, ends.vectors, ends.converged, strict=True):
        if converged:
            known.append_rest(vector)
            traced += float(value)
    samples = np.empty(probes)
    for number in range(probes):
        probe = layout.rademacher(seed, _OF_TRACE, number).astype(np.float64)
        if known.count:
            known.remove_from(probe)
        # The product is made of what is stored, so that is what it is multiplied with.
        samples[number] = np.dot(probe, products(probe.astype(layout.dtype)))
    return Trace.of(samples, known=traced)


@dataclass(frozen=True)
class Density:
    """Where eigenvalues lie, as weighted nodes; a picture smooths them."""

    nodes: Float64[np.ndarray, "probes steps"]  # ascending for each probe; NaN where one needed fewer steps
    weights: Float64[np.ndarray, "probes steps"]  # each node's share of all eigenvalues; 1 for each probe


@one_blas_thread()
def find_density(
    products: Products, probes: int, steps: int, *, seed: int = 0, memory: float = float("inf")
) -> Density:
    """Returns the density from starts of -1 and 1 (Ubaru, Chen and Saad 2017; Ghorbani, Krishnan and Xiao 2019)."""
    # Bytes for the vectors of one start.
    needed = min(steps, products.layout.dimension) * products.layout.bytes_of_vector
    if needed > memory:
        raise CurvatureError(
            f"a density of {steps} steps needs {steps} vectors of {products.layout.dimension} weights, "
            f"{needed / 1e9:.2g} GB, but only {memory / 1e9:.2g} GB may be used. Use fewer steps (density_steps), or "
            "give the process more memory."
        )
    nodes, weights = np.full((probes, steps), np.nan), np.zeros((probes, steps))
    for number in range(probes):
        start = products.layout.rademacher(seed, _OF_DENSITY, number)
        lanczos = Lanczos(products, start, min(steps, products.layout.dimension), flat=products.flat)
        while lanczos.products < steps and lanczos.step() and not lanczos.restarts:
            pass
        ritz = lanczos.ritz()
        count = len(ritz.values)
        nodes[number, :count] = ritz.values
        weights[number, :count] = ritz.mixing[0] ** 2
    return Density(nodes, weights)
