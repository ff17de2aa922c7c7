"""The ends of a symmetric matrix's spectrum by Lanczos' method, from products alone, computed by one thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from collectors.shapes import Float64

from ..errors import CurvatureError
from .products import NOT_SYMMETRIC, Vector

# Numbers of a vector that are widened at once: two rows of them stay in a processor's cache.
_BLOCK = 1 << 14
# Below this share of the largest eigenvalue an eigenvalue is not told from zero.
_SMALLEST_SHARE = 1e-3
# Of the length of the longest image; rounding leaves a hundredth of that.
_SYMMETRY = 1e-3
# More vectors than those that are wanted, kept when the basis is full.
_KEPT_BESIDE = 10
# What is left of a product, as a share of it, when nothing but rounding is left.
_ROUNDING = {"float32": 1e-6, "float64": 1e-13}


class Basis:
    """Rows that are orthonormal, as far as their element type goes."""

    def __init__(self, rows: int, dimension: int, dtype: str) -> None:
        # Memory is taken by the system when a row is first written.
        self._rows: NDArray[Any] = np.empty((rows, dimension), dtype)
        self.capacity, self.count = rows, 0

    @property
    def rows(self) -> Vector:
        return self._rows[: self.count]

    def append(self, vector: Vector) -> None:
        """Adds a row of length one."""
        self._rows[self.count] = vector
        self.count += 1

    def append_rest(self, vector: Vector) -> None:
        """Adds a row along what of a vector is orthogonal to all rows."""
        rest = vector.astype(np.float64)
        self.remove_from(rest)
        self.append(rest / length(rest))

    def remove_from(self, vector: Float64[np.ndarray, " weights"]) -> Float64[np.ndarray, " rows"]:
        """Takes out of a vector, in place, what lies along the rows, twice over; returns how much that was."""
        found = np.zeros(self.count)
        for _ in range(2):
            along = np.zeros(self.count)
            for place, block in self._blocks():
                along += block @ vector[place]
            for place, block in self._blocks():
                vector[place] -= along @ block
            found += along
        return found

    def combined(self, mixing: Float64[np.ndarray, "rows vectors"]) -> Vector:
        """Returns mixtures of the rows, shape (vectors, dimension)."""
        result = np.empty((mixing.shape[1], self._rows.shape[1]), self._rows.dtype)
        for place, block in self._blocks():
            result[:, place] = mixing.T @ block
        return result

    def replace(self, vectors: Vector) -> None:
        self.count = len(vectors)
        self._rows[: self.count] = vectors

    def _blocks(self) -> Iterator[tuple[slice, Float64[np.ndarray, "rows block"]]]:
        for start in range(0, self._rows.shape[1], _BLOCK):
            place = slice(start, start + _BLOCK)
            yield place, self.rows[:, place].astype(np.float64, copy=False)


@dataclass(frozen=True)
class Ends:
    """Eigenpairs of both ends of a spectrum."""

    values: Float64[np.ndarray, " pairs"]  # the largest first, then those of the lower end, the lowest first
    # The length of what each vector is off, ``|H v - value v|``, and at least what rounding leaves of a product; no
    # eigenvalue is further from its value.
    residuals: Float64[np.ndarray, " pairs"]
    vectors: Vector  # of length one, shape (pairs, weights)
    gaps: Float64[np.ndarray, " pairs"]  # to the next value that was seen
    converged: np.ndarray  # whether the residual is below the tolerance, shape (pairs,)
    products: int  # how many were made


@dataclass(frozen=True)
class _Ritz:
    """What a basis tells: values in ascending order, mixtures of its rows, residuals, and the matrix's known size."""

    values: Float64[np.ndarray, " rows"]
    mixing: Float64[np.ndarray, "rows rows"]
    residuals: Float64[np.ndarray, " rows"]
    scale: float

    def ends(self, top: int, bottom: int) -> list[int]:
        count = len(self.values)
        top = min(top, count)
        return [*range(count - 1, count - 1 - top, -1), *range(min(bottom, count - top))]

    def are_converged(self, chosen: list[int], tolerance: float) -> np.ndarray:
        sizes = np.abs(self.values)
        return is_settled(self.residuals[chosen], sizes[chosen], tolerance, sizes.max(initial=self.scale))


class Lanczos:
    """Lanczos' method with full reorthogonalisation, done twice, and thick restarts where memory is short.

    So no eigenvalue comes out twice by rounding; one of several dimensions comes out once for each start, as a Krylov
    space has one vector of it (Wu and Simon 2000; Parlett 1998).
    """

    def __init__(
        self,
        multiply: Callable[[Vector], Float64[np.ndarray, " weights"]],  # from a vector to the matrix times it
        start: Vector,  # not zero; shape (weights,)
        rows: int,  # how many vectors there may be
        locked: Basis | None = None,  # orthonormal; the matrix is taken on what is orthogonal to them
        again: Callable[[int], Vector] | None = None,  # from a whole number to a new start, for matrices of low rank
        flat: float = 0.0,  # what is no curvature but rounding
        scale: float = 0.0,  # the largest size of an eigenvalue as far as it is known, which tells others from zero
    ) -> None:
        self._multiply, self._locked, self._flat = multiply, locked, flat
        self._again = again or (lambda number: np.random.default_rng([77, number]).standard_normal(start.size))
        self._dimension = start.size - (0 if locked is None else locked.count)
        self._basis = Basis(min(rows, self._dimension), start.size, str(start.dtype))
        self._projected = np.zeros((self._basis.capacity, self._basis.capacity))
        self._rounding = _ROUNDING[str(start.dtype)]
        self._scale = self._largest = scale
        self.restarts = 0  # how often a start's own space was all found, so that what follows belongs to another start
        self.products = 0
        self._next = self._made_new(start)
        self._coupling = np.zeros(0)
        """Of the next vector with each row that is there; what is left out of the projected matrix."""

    def step(self) -> bool:
        """Makes one product; returns whether there is anything left to find."""
        basis = self._basis
        row = basis.count
        basis.append(self._next)
        self._projected[row, :row] = self._projected[:row, row] = self._coupling
        image = np.array(self._multiply(basis.rows[row]), np.float64)
        self.products += 1
        size = length(image)
        self._largest = max(self._largest, size)
        self._orthogonalise(image)
        found = basis.remove_from(image)
        self._check_symmetry(found[:row], self._coupling)
        self._projected[row, row] = found[row]
        left = length(image)
        self._coupling = np.zeros(basis.count)
        if basis.count == self._dimension:
            return False
        if left <= self._rounding * max(self._largest, np.finfo(np.float64).tiny):
            # The space is the matrix's own. Others are orthogonal to it.
            self.restarts += 1
            self._next = self._made_new(self._again(self.restarts))
        else:
            self._coupling[row] = left
            image /= left
            self._next = image.astype(basis.rows.dtype)
        return True

    def ritz(self) -> _Ritz:
        count = self._basis.count
        values, mixing = np.linalg.eigh(self._projected[:count, :count])
        return _Ritz(values, mixing, np.abs(self._coupling @ mixing), self._scale)

    def compress(self, top: int, bottom: int) -> None:
        """Makes room where the basis is full: keeps the mixtures nearest to what is wanted."""
        if self._basis.count < self._basis.capacity:
            return
        ritz = self.ritz()
        beside = min(_KEPT_BESIDE, max(0, self._basis.count - top - bottom - 2))
        more = (beside * top // max(1, top + bottom), beside * bottom // max(1, top + bottom))
        kept = ritz.ends(top + more[0], bottom + more[1])
        self._coupling = self._coupling @ ritz.mixing[:, kept]
        self._basis.replace(self._basis.combined(ritz.mixing[:, kept]))
        self._projected[:] = 0
        self._projected[range(len(kept)), range(len(kept))] = ritz.values[kept]

    def pairs(self, top: int, bottom: int, tolerance: float) -> Ends:
        ritz = self.ritz()
        chosen = ritz.ends(top, bottom)
        converged = ritz.are_converged(chosen, tolerance)
        gaps = [gap_of(ritz.values, index) for index in chosen]
        vectors = _turned(self._basis.combined(ritz.mixing[:, chosen]))
        # Residuals go on falling in exact arithmetic only: a product is no more exact than its element type.
        residuals = np.maximum(ritz.residuals[chosen], self._rounding * self._largest)
        return Ends(ritz.values[chosen], residuals, vectors, np.array(gaps), converged, self.products)

    def _check_symmetry(self, ahead: Float64[np.ndarray, " rows"], back: Float64[np.ndarray, " rows"]) -> None:
        """Checks the rows' products with the newest image against those of its row with their images."""
        if not len(ahead):
            return
        worst = int(np.abs(ahead - back).argmax())
        if abs(ahead[worst] - back[worst]) > _SYMMETRY * self._largest + self._flat:
            raise CurvatureError(NOT_SYMMETRIC.format(ahead[worst], back[worst]))

    def _orthogonalise(self, vector: Float64[np.ndarray, " weights"]) -> None:
        if self._locked is not None and self._locked.count:
            self._locked.remove_from(vector)

    def _made_new(self, start: Vector) -> Vector:
        vector = np.array(start, np.float64)
        self._orthogonalise(vector)
        self._basis.remove_from(vector)
        vector /= length(vector)
        return vector.astype(start.dtype)


def find_ends(lanczos: Lanczos, top: int, bottom: int, tolerance: float, max_products: int) -> Ends:
    """Returns the ends of the spectrum once each residual is below its eigenvalue's tolerance, or products run out."""
    more = True
    while more and lanczos.products < max_products:
        lanczos.compress(top, bottom)
        more = lanczos.step()
        ritz = lanczos.ritz()
        if len(ritz.values) >= top + bottom and ritz.are_converged(ritz.ends(top, bottom), tolerance).all():
            break
    return lanczos.pairs(top, bottom, tolerance)


def is_settled(residuals: np.ndarray, sizes: np.ndarray, tolerance: float, largest: float) -> np.ndarray:
    """Returns whether residuals are within the tolerance of eigenvalues of these sizes."""
    # A spectrum of zeros is known as it is.
    settled: np.ndarray = residuals <= tolerance * np.maximum(sizes, _SMALLEST_SHARE * largest)
    return settled


def gap_of(values: Float64[np.ndarray, " rows"], index: int) -> float:
    """Returns how far a value is from the nearest of the others."""
    return float(np.abs(np.delete(values, index) - values[index]).min(initial=np.inf))


def _turned(vectors: Vector) -> Vector:
    """Returns vectors of length one whose largest entries are positive."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    largest = vectors[range(len(vectors)), np.abs(vectors).argmax(1)]
    turned: Vector = vectors * (np.where(largest < 0, -1.0, 1.0) / lengths).astype(vectors.dtype)[:, None]
    return turned


def length(vector: Float64[np.ndarray, " weights"]) -> float:
    return float(np.sqrt(np.dot(vector, vector)))


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Lets OpenBLAS compute in one thread meanwhile; also a decorator."""
    # Its threads go on spinning after each product of vectors, and take the cores from the framework, which needs them
    # for the next derivative: that made searches on two cores twice as slow.
    loaded = ThreadpoolController()
    # A framework may bring an OpenBLAS of its own, whose threads it needs.
    chosen = [
        library.filepath
        for library in loaded.lib_controllers
        if library.internal_api == "openblas" and "torch" not in Path(library.filepath).parts
    ]
    with loaded.select(filepath=chosen).limit(limits=1):
        yield
