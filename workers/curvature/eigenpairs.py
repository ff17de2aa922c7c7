"""The eigenpairs that were asked for: within memory, and with the copies that one Krylov space cannot hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from collectors.shapes import Float64

from ..errors import CurvatureError
from .lanczos import Basis, Ends, Lanczos, find_ends, gap_of, is_settled, length, one_blas_thread
from .products import Products

if TYPE_CHECKING:
    from collections.abc import Callable


_STARTS = 1  # of the random numbers for starts
_FEWEST_BESIDE = 12
# A value must be known as well as this before it can be said to be the largest of what is left.
_ROUGHLY = 0.1


@one_blas_thread()
def find_eigenpairs(
    products: Products,
    top: int,
    bottom: int,
    *,
    tolerance: float = 1e-3,
    max_products: int = 200,
    seed: int = 0,
    memory: float = float("inf"),
    gradient: Float64[np.ndarray, " weights"] | None = None,
) -> Ends:
    """Returns the largest and the lowest eigenvalues with vectors, and marks residuals above the relative tolerance."""
    layout = products.layout
    if top + bottom > layout.dimension:
        raise CurvatureError(
            f"top + bottom must be at most the number of trainable weights ({layout.dimension}), but is "
            f"{top} + {bottom}."
        )
    if not top and not bottom:
        nothing = np.zeros(0)
        vectors = np.zeros((0, layout.dimension), layout.dtype)
        return Ends(nothing, nothing, vectors, nothing, np.zeros(0, bool), 0)
    rows = _rows_within(memory, products, top + bottom, max_products)

    def search(number: int, locked: Basis | None, scale: float) -> Lanczos:
        def start(restart: int) -> np.ndarray:
            drawn = layout.gaussian(seed, _STARTS, number, restart)
            if gradient is None or number or restart or not np.isfinite(size := length(gradient)) or not size:
                return drawn
            # The gradient lies mostly along what is wanted (Gur-Ari, Roberts and Dyer 2018): a fifth less products.
            # Half of it is random, so that no direction is left out.
            mixed: np.ndarray = drawn / length(drawn.astype(np.float64)) + gradient / size
            # Of a single weight the two may be opposite: nothing is left.
            return mixed.astype(layout.dtype) if mixed.any() else drawn

        return Lanczos(products, start(0), rows, locked, start, products.flat, scale)

    found = find_ends(search(0, None, 0.0), top, bottom, tolerance, max_products)
    # A Krylov space has one vector of an eigenvalue of several dimensions: what is beside those is searched once more.
    found = _with_copies(found, top, bottom, tolerance, max_products, search)
    return _tried(found, products, tolerance) if products.are_differences else found


def _with_copies(
    found: Ends,
    top: int,
    bottom: int,
    tolerance: float,
    max_products: int,
    search: Callable[[int, Basis | None, float], Lanczos],
) -> Ends:
    """Searches what is orthogonal to the vectors that were found until nothing there is beyond them."""
    # Of an end of which one is wanted, a copy would be no news.
    number, wanted = 0, np.array([top > 1, bottom > 1])
    if not wanted.any():
        return found
    # Beside vectors that are not known, what is left of them would be found once more.
    while found.converged.all() and len(found.values) < found.vectors.shape[1] and number < top + bottom:
        number += 1
        locked = Basis(len(found.values), found.vectors.shape[1], str(found.vectors.dtype))
        for vector in found.vectors:
            locked.append_rest(vector)
        lanczos = search(number, locked, float(np.abs(found.values).max()))
        # The last one of each end that is wanted; of the lower end everything is negated.
        limits = np.array([found.values[:top].min(initial=np.inf), -found.values[top:].max(initial=-np.inf)])
        more, beyond = True, np.zeros(2, bool)
        while more and lanczos.products < max_products:
            lanczos.compress(1, 1)
            more = lanczos.step()
            ritz = lanczos.ritz()
            places = [len(ritz.values) - 1, 0]
            settled, roughly = (ritz.are_converged(places, share) for share in (tolerance, _ROUGHLY))
            values = ritz.values[places] * (1, -1)
            # Within the tolerance a copy of the last one that is wanted is no news.
            beyond = wanted & (values > limits + tolerance * np.abs(limits))
            if (~wanted | settled | (roughly & (values + ritz.residuals[places] < limits))).all():
                break
        extra_top, extra_bottom = map(int, beyond)
        merged = _merged(
            found, lanczos.pairs(extra_top, extra_bottom, tolerance), extra_top, top, bottom, lanczos.products
        )
        if not beyond.any():
            return merged
        found = merged
    return found


def _tried(found: Ends, products: Products, tolerance: float) -> Ends:
    """Returns pairs whose residuals are at least those of products over twice the step."""
    pairs = zip(found.values, found.vectors, strict=True)
    residuals = np.maximum(
        found.residuals, [length(products.doubled(vector) - value * vector) for value, vector in pairs]
    )
    sizes = np.abs(found.values)
    converged = found.converged & is_settled(residuals, sizes, tolerance, sizes.max())
    return replace(found, residuals=residuals, converged=converged, products=found.products + len(sizes))


def _merged(found: Ends, extra: Ends, extra_top: int, top: int, bottom: int, products: int) -> Ends:
    parts = {
        name: np.concatenate([getattr(found, name), getattr(extra, name)])
        for name in ("values", "residuals", "vectors", "gaps", "converged")
    }
    values, gaps = parts["values"], parts["gaps"]
    is_top = np.array([True] * top + [False] * bottom + [True] * extra_top + [False] * (len(extra.values) - extra_top))
    upper = [index for index in np.argsort(-values, kind="stable") if is_top[index]][:top]
    lower = [index for index in np.argsort(values, kind="stable") if not is_top[index]][:bottom]
    chosen = [*upper, *lower]
    for index in chosen:
        gaps[index] = min(gaps[index], gap_of(values, index))
    return Ends(**{name: part[chosen] for name, part in parts.items()}, products=found.products + products)


def _rows_within(memory: float, products: Products, wanted: int, max_products: int) -> int:
    if not np.isfinite(memory):
        return max_products
    row = products.layout.bytes_of_vector
    fewest = min(wanted + _FEWEST_BESIDE, products.layout.dimension, max_products)
    rows = int(memory / row) - wanted  # What is wanted is copied once when it is returned.
    if rows < fewest:
        raise CurvatureError(
            f"{wanted} eigenpairs need {fewest + wanted} vectors of {products.layout.dimension} weights, "
            f"{(fewest + wanted) * row / 1e9:.2g} GB, but only {memory / 1e9:.2g} GB may be used. Ask for fewer pairs "
            "(top, bottom), give the process more memory, or train fewer weights (freeze layers, LoRA)."
        )
    return min(rows, max_products)
