"""The curvature of a loss at one set of weights: everything that is asked for, in one go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collectors.networks.weight_space import State
from collectors.shapes import Float64
from collectors.validation import check_bool, check_int, wrong_value

from ..errors import CurvatureError, NondeterministicLossError
from .eigenpairs import find_eigenpairs
from .lanczos import length, one_blas_thread
from .probes import Density, Trace, find_density, find_trace
from .products import NOT_SYMMETRIC, OF_DIFFERENCES, ROUNDING, Layout, Products, ProductSettings, ShareProducts, Vector

_CHECKS = 4  # of the random numbers for the check of symmetry
_SYMMETRY = 1e-3
_REPEATS = 1e-5
_FEW = 8  # samples of a check
# In time, measured on networks for images and texts: a product took 4 to 6, the loss with its gradient 3 to 4.
_PASSES_OF_PRODUCT, _PASSES_OF_GRADIENT = 5, 4


@dataclass(frozen=True)
class CurvatureSettings:
    """What is measured of a loss's curvature."""

    products: ProductSettings = ProductSettings()  # noqa: RUF009
    top: int = 5  # how many of the largest eigenvalues
    bottom: int = 0  # how many of the lowest
    trace_probes: int = 10  # products for the trace beside the eigenpairs; 0 measures none
    density_probes: int = 0  # starts for the density of the eigenvalues; 0 measures none
    density_steps: int = 40  # products for each of these
    tolerance: float = 1e-3  # of an eigenpair's residual, as a share of its own eigenvalue
    max_products: int = 200  # of one search for eigenpairs
    keep_vectors: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("top", "bottom", "trace_probes", "density_probes", "seed"):
            check_int(name, getattr(self, name), minimum=0)
        for name in ("density_steps", "max_products"):
            check_int(name, getattr(self, name), minimum=1)
        check_bool("keep_vectors", self.keep_vectors)
        if self.max_products < self.top + self.bottom:
            raise wrong_value("max_products", f"top + bottom ({self.top + self.bottom}) or more", self.max_products)
        if not isinstance(self.tolerance, float) or not 0 < self.tolerance < 1:
            raise wrong_value("tolerance", "a number between 0 and 1", self.tolerance)
        if not (self.top or self.bottom or self.trace_probes or self.density_probes):
            raise wrong_value("top", "more than 0 where bottom, trace_probes and density_probes are 0", self.top)


@dataclass(frozen=True)
class CurvatureValues:
    """The curvature of a loss at one set of weights."""

    loss: float  # the mean over all samples
    gradient_norm: float  # the length of its gradient
    eigenvalues: Float64[np.ndarray, " pairs"]  # the largest first, then those of the lower end, the lowest first
    residuals: Float64[np.ndarray, " pairs"]  # no true eigenvalue is further from an eigenvalue than this
    # Residual over gap: about the sine of the largest angle between a vector and the true one, where it is below one.
    angle_bounds: Float64[np.ndarray, " pairs"]
    converged: np.ndarray  # whether the residual is within the tolerance, shape (pairs,)
    vectors: Vector | None  # shape (pairs, weights); None where they are not kept
    trace: Trace | None  # with its interval
    density: Density | None
    products: int  # how many were made, without those of a check
    notes: tuple[str, ...] = ()  # what the user should know, in sentences

    @property
    def forward_passes(self) -> int:
        """As how many losses of all samples this took about as long, the same on every machine."""
        return _PASSES_OF_GRADIENT + _PASSES_OF_PRODUCT * self.products


@one_blas_thread()
def _measured(products: Products, shares: ShareProducts, settings: CurvatureSettings) -> CurvatureValues:
    memory, notes = shares.memory_for_vectors, list[str]()
    gradient = products.gradient() if np.isfinite(products.loss) else np.full(1, np.nan)
    gradient_norm = length(gradient)
    if not np.isfinite(gradient_norm):
        raise CurvatureError(
            f"the loss is {products.loss:g} and its gradient's length {gradient_norm:g} at these weights, where "
            "curvature has no meaning: leave this checkpoint out, or look for what makes the loss infinite."
        )
    ends = find_eigenpairs(
        products,
        settings.top,
        settings.bottom,
        tolerance=settings.tolerance,
        max_products=settings.max_products,
        seed=settings.seed,
        memory=memory,
        gradient=gradient,
    )
    if not ends.converged.all():
        notes.append(
            f"{int((~ends.converged).sum())} of {len(ends.values)} eigenpairs are not within the tolerance after "
            f"{ends.products} products: see their residuals, raise max_products or tolerance."
        )
    trace = find_trace(products, ends, settings.trace_probes, seed=settings.seed) if settings.trace_probes else None
    seed, probes = settings.seed, settings.density_probes
    density = find_density(products, probes, settings.density_steps, seed=seed, memory=memory) if probes else None
    angles = np.divide(ends.residuals, ends.gaps, out=np.full(len(ends.gaps), np.inf), where=ends.gaps > 0)
    return CurvatureValues(
        products.loss,
        gradient_norm,
        ends.values,
        ends.residuals,
        angles,
        ends.converged,
        ends.vectors if settings.keep_vectors else None,
        trace,
        density,
        products.count,
        (*shares.notes, *notes),  # also those of memory that ran out meanwhile
    )


def measure_state_curvature(
    shares: ShareProducts, parameters: State, buffers: State | None, settings: CurvatureSettings, *, check: bool = True
) -> CurvatureValues:
    """Returns the curvature at one set of weights, on one worker; without buffers those of the network stay."""
    shares.move(parameters, buffers)
    products = Products(shares, weights_length_of(parameters, shares.layout))
    if check and np.isfinite(products.loss):
        check_products(products, settings.seed)
    return _measured(products, shares, settings)


def weights_length_of(parameters: State, layout: Layout) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(sum(np.square(parameters[name].astype(np.float64)).sum() for name in layout.names)))


def check_products(products: Products, seed: int) -> None:
    """Checks on a few samples, in three products, that these are of a symmetric matrix and come out again."""
    # Whether all shares together are symmetric, Lanczos' method looks without a product more.
    layout = products.layout
    one, other = (layout.gaussian(seed, _CHECKS, number) for number in range(2))
    ahead, again, back = (products.estimated(vector, _FEW) for vector in (one, one, other))
    if not np.allclose(ahead, again, rtol=_REPEATS, atol=_REPEATS * float(np.abs(again).max(initial=0.0))):
        raise NondeterministicLossError(
            "the same product with the Hessian gave two results: the loss draws random numbers at each call. Seed them "
            "(seed_each_point=True), or switch off what draws them."
        )
    first, second = float(np.dot(other, ahead)), float(np.dot(one, back))
    lengths = length(one.astype(np.float64)), length(other.astype(np.float64))
    rounding = (OF_DIFFERENCES if products.are_differences else ROUNDING)[layout.dtype]
    floor = rounding * length(back) * lengths[0] + products.flat * lengths[0] * lengths[1]
    if abs(first - second) > _SYMMETRY * (abs(first) + abs(second)) + floor:
        raise CurvatureError(NOT_SYMMETRIC.format(first, second))
