"""What a second-order optimizer takes for the curvature of each layer: Kronecker factors, and their eigenvectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

# An eigenvalue and its vector, of length one.
_Pair = tuple[float, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class LayerFactors:
    """The factors of one weight, whose Kronecker product, times ``positions``, the optimizer takes for its curvature.

    Attributes:
        weight: the parameter's name.
        shape: of the parameter.
        a: the mean of a a' over the inputs a of the layer, in diagonal blocks, shape (blocks, size, size); the last one
            is filled up with zeros. Of an Embedding the diagonal, shape (rows,).
        g: the mean of g g' over the gradients g of each sample's loss with respect to the layer's outputs, in diagonal
            blocks as well.
        positions: how often a sample uses the weight: 1, or the number of places of a convolution's outputs.

    Raises:
        ValueError: shapes do not fit together, or a factor is not finite.
    """

    weight: str
    shape: tuple[int, ...]
    a: NDArray[Any]
    g: NDArray[Any]
    positions: float

    def __post_init__(self) -> None:
        rows, columns = (int(size) for size in (self.shape[0], np.prod(self.shape[1:])))
        a_width, g_width = (rows, columns) if self.is_diagonal else (columns, rows)
        fits = self.a.shape == (a_width,) if self.is_diagonal else _are_blocks(self.a, a_width)
        if not fits or not _are_blocks(self.g, g_width) or not self.positions > 0:
            raise ValueError(
                f"the factors of {self.weight} have the shapes {self.a.shape} and {self.g.shape} ({self.positions:g} "
                f"positions), which do not fit a weight of the shape {self.shape}."
            )
        if not all(np.isfinite(factor).all() for factor in (self.a, self.g)):
            raise ValueError(f"the factors of {self.weight} are not finite.")

    @property
    def is_diagonal(self) -> bool:
        """Whether A is a diagonal, as an Embedding's is, whose weight has the inputs along its rows."""
        return self.a.ndim == 1


@dataclass(frozen=True, eq=False)
class FactorVector:
    """An eigenvector of the optimizer's curvature: of length one, and zero in all weights but one.

    Attributes:
        value: its eigenvalue: the curvature that the optimizer sees along it.
        weight: the parameter's name.
        shape: of the parameter.
        rows: the vector's part along the parameter's first axis, shape (rows,).
        columns: its part along all others; the vector is the outer product of both.
    """

    value: float
    weight: str
    shape: tuple[int, ...]
    rows: NDArray[np.float64]
    columns: NDArray[np.float64]

    @property
    def array(self) -> NDArray[np.float64]:
        """The vector in its weight, of the parameter's shape."""
        return np.outer(self.rows, self.columns).reshape(self.shape)

    def along(self, direction: Mapping[str, NDArray[Any]]) -> float:
        """Returns the inner product with a direction: name to array, for every trainable parameter."""
        part = direction[self.weight].reshape(len(self.rows), -1).astype(np.float64)
        return float(self.rows @ part @ self.columns)


def leading_vectors(factors: Iterable[LayerFactors], number: int) -> list[FactorVector]:
    """Returns the eigenvectors with the largest eigenvalues of the optimizer's curvature, the largest first.

    They are orthogonal to each other. There is no coupling between layers, or between the blocks of a factor.

    Args:
        factors: of each layer.
        number: how many; fewer where there are not as many whose eigenvalue is above zero.
    """
    found: list[FactorVector] = []
    for layer in factors:
        a = _of_diagonal(layer.a, number) if layer.is_diagonal else _of_blocks(layer.a, number)
        g = _of_blocks(layer.g, number)
        a_width = len(layer.a) if layer.is_diagonal else int(np.prod(layer.shape[1:]))
        g_width = int(np.prod(layer.shape)) // a_width
        for (a_value, a_vector), (g_value, g_vector) in product(a, g):
            left, right = (a_vector[:a_width], g_vector[:g_width])
            rows, columns = (left, right) if layer.is_diagonal else (right, left)
            value = layer.positions * a_value * g_value
            if value > 0:
                found.append(FactorVector(value, layer.weight, layer.shape, rows, columns))
    return nlargest(number, found, key=lambda vector: vector.value)


def _are_blocks(factor: NDArray[Any], width: int) -> bool:
    if factor.ndim != 3 or factor.shape[1] != factor.shape[2] or not factor.shape[1]:
        return False
    return bool(factor.shape[0] == -(-width // factor.shape[1]))


def _of_diagonal(values: NDArray[Any], number: int) -> list[_Pair]:
    places = np.argsort(-values, kind="stable")[:number]
    return [(float(values[place]), _unit(len(values), place)) for place in places]


def _unit(width: int, place: int) -> NDArray[np.float64]:
    vector = np.zeros(width)
    vector[place] = 1.0
    return vector


def _of_blocks(blocks: NDArray[Any], number: int) -> list[_Pair]:
    """Of diagonal blocks; what fills up the last one has the eigenvalue zero."""
    found: list[_Pair] = []
    size = blocks.shape[1]
    for index, block in enumerate(blocks.astype(np.float64)):
        values, vectors = np.linalg.eigh(block)
        for value, vector in list(zip(values.tolist(), vectors.T, strict=True))[: -number - 1 : -1]:
            whole = np.zeros(len(blocks) * size)
            # The sign of an eigenvector is nobody's choice: its largest component is positive.
            whole[index * size : (index + 1) * size] = vector * (1 if vector[np.abs(vector).argmax()] > 0 else -1)
            found.append((max(value, 0.0), whole))
    return nlargest(number, found, key=lambda pair: pair[0])
