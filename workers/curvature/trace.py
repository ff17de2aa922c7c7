"""A matrix's trace from a few products, with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .blas_threads import one_blas_thread
from .lanczos import Ends
from .products import Products
from .vectors import Basis

if TYPE_CHECKING:
    from jaxtyping import Float64

_PROBES = 2  # of the random numbers for probes


@dataclass(frozen=True)
class Trace:
    """An estimate of a trace."""

    value: float  # of the trace
    low: float  # lower end of the interval; NaN where there are less than two probes
    high: float  # its upper end
    samples: Float64[np.ndarray, " probes"]  # what each probe gave for the part beside the eigenpairs

    @classmethod
    def of(cls, samples: Float64[np.ndarray, " probes"], *, known: float = 0.0, confidence: float = 0.95) -> Trace:
        """Returns the mean of the samples (one at least) plus what is known, with Student's interval."""
        from scipy import stats

        value, count = known + float(samples.mean()), len(samples)
        if count < 2:
            return cls(value, float("nan"), float("nan"), samples)
        half = float(stats.t.ppf((1 + confidence) / 2, count - 1) * samples.std(ddof=1) / np.sqrt(count))
        return cls(value, value - half, value + half, samples)


@one_blas_thread()
def find_trace(products: Products, ends: Ends, probes: int, *, seed: int = 0, confidence: float = 0.95) -> Trace:
    """Returns the sum of converged eigenvalues plus an estimate beside them (Hutchinson 1990; Meyer et al. 2021)."""
    layout = products.layout
    known = Basis(len(ends.values), layout.dimension, layout.dtype)
    traced = 0.0
    for value, vector, converged in zip(ends.values, ends.vectors, ends.converged, strict=True):
        if converged:
            rest = vector.astype(np.float64)
            known.remove_from(rest)
            known.append(rest / np.sqrt(np.dot(rest, rest)))
            traced += float(value)
    samples = np.empty(probes)
    for number in range(probes):
        probe = layout.rademacher(seed, _PROBES, number).astype(np.float64)
        if known.count:
            known.remove_from(probe)
        # The product is made of what is stored, so that is what it is multiplied with.
        stored = probe.astype(layout.dtype)
        samples[number] = np.dot(probe, products(stored))
    return Trace.of(samples, known=traced, confidence=confidence)
