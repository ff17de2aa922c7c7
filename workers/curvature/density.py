"""The density of a matrix's eigenvalues by stochastic Lanczos quadrature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..errors import CurvatureError
from .blas_threads import one_blas_thread
from .lanczos import Lanczos
from .products import Products

if TYPE_CHECKING:
    from jaxtyping import Float64

_PROBES = 3  # of the random numbers for probes


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
        start = products.layout.rademacher(seed, _PROBES, number)
        lanczos = Lanczos(products, start, min(steps, products.layout.dimension), flat=products.flat)
        while lanczos.products < steps and lanczos.step() and not lanczos.is_decoupled:
            pass
        ritz = lanczos.ritz()
        count = len(ritz.values)
        nodes[number, :count] = ritz.values
        weights[number, :count] = ritz.mixing[0] ** 2
    return Density(nodes, weights)
