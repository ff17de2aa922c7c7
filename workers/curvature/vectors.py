"""A few long vectors that are orthonormal, kept in few bytes and multiplied in float64, by one thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from .products import Vector

if TYPE_CHECKING:
    from jaxtyping import Float64

# Numbers of a vector that are widened at once: two rows of them stay in a processor's cache.
_BLOCK = 1 << 14


class Basis:
    """Rows that are orthonormal, as far as their element type goes."""

    def __init__(self, rows: int, dimension: int, dtype: str) -> None:
        # Memory is taken by the system when a row is first written.
        self._rows: NDArray[Any] = np.empty((rows, dimension), dtype)
        self.count = 0

    @property
    def capacity(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        return self.count == len(self._rows)

    @property
    def rows(self) -> Vector:
        return self._rows[: self.count]

    def append(self, vector: Vector) -> None:
        """Adds a row of length one."""
        self._rows[self.count] = vector
        self.count += 1

    def coefficients(self, vector: Float64[np.ndarray, " weights"]) -> Float64[np.ndarray, " rows"]:
        """Returns a vector's scalar products with all rows, shape (count,)."""
        total = np.zeros(self.count)
        for start in range(0, vector.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            total += self.rows[:, part].astype(np.float64, copy=False) @ vector[part]
        return total

    def remove_from(self, vector: Float64[np.ndarray, " weights"]) -> Float64[np.ndarray, " rows"]:
        """Takes out of a vector, in place, what lies along the rows, twice over; returns how much that was."""
        found = np.zeros(self.count)
        for _ in range(2):
            part = self.coefficients(vector)
            for start in range(0, vector.size, _BLOCK):
                block = slice(start, start + _BLOCK)
                vector[block] -= part @ self.rows[:, block].astype(np.float64, copy=False)
            found += part
        return found

    def combined(self, mixing: Float64[np.ndarray, "rows vectors"]) -> Vector:
        """Returns mixtures of the rows, shape (vectors, dimension)."""
        result = np.empty((mixing.shape[1], self._rows.shape[1]), self._rows.dtype)
        for start in range(0, self._rows.shape[1], _BLOCK):
            block = slice(start, start + _BLOCK)
            result[:, block] = mixing.T @ self.rows[:, block].astype(np.float64, copy=False)
        return result

    def replace(self, vectors: Vector) -> None:
        self.count = len(vectors)
        self._rows[: self.count] = vectors


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
