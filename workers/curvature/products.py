"""Products of a loss's curvature matrix with vectors, added up over fixed shares of the samples (contract 2)."""

from __future__ import annotations

import contextlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import State
from collectors.shapes import Float64
from collectors.validation import check_choice, check_int, wrong_value

SHARES = 8  # into how many parts the samples fall, however many workers there are; a power of two

SHARE_FOR_VECTORS = 0.25  # of a machine's free memory

WITHOUT_GRADIENTS = (
    "landscape.functions.trace_by_lines measures the trace of the Hessian from losses alone, in any framework"
)
"""What there is where nothing can be differentiated."""

ROUNDING = {"float32": 1e-6, "float64": 1e-12}  # of products, by their element type

OF_DIFFERENCES = {"float32": 1e-3, "float64": 1e-8}
"""The same of products that are differences of gradients in this element type: nearly always less."""

COMPUTED_IN_FLOAT32 = (
    "the network's weights are in low precision; its curvature is computed from the same weights in float32, because "
    "second derivatives in low precision are rounding."
)
"""What the user should know of a network in bfloat16 or float16."""

NOT_SYMMETRIC = (
    "the products are not those of a symmetric matrix (u.Hv = {:.6g}, v.Hu = {:.6g}): a backward of the network or the "
    "loss is not the derivative of its forward, or the network changes its own state. Look for custom Functions, "
    "straight-through estimators and hooks on gradients. Differences of gradients (MindSpore) also see kinks, such as "
    f"ReLU's, which no Hessian holds: {WITHOUT_GRADIENTS}."
)
"""What there is no curvature of."""

MATRICES = ("hessian", "ggn")
Matrix: TypeAlias = Literal["hessian", "ggn"]
Vector: TypeAlias = NDArray[np.floating[Any]]
"""One number for each trainable weight, shape (weights,), in the order of ``Layout``."""


@dataclass(frozen=True)
class Layout:
    """How a network's trainable tensors lie side by side in one vector; tied ones count once."""

    names: tuple[str, ...]  # of the tensors, in the network's order
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"  # float64 for a network that has it: vectors lose nothing against the products

    @property
    def sizes(self) -> list[int]:
        return [int(np.prod(shape, dtype=np.int64)) for shape in self.shapes]

    @property
    def dimension(self) -> int:
        return sum(self.sizes)

    @property
    def bytes_of_vector(self) -> int:
        return self.dimension * np.dtype(self.dtype).itemsize

    def draw(self, seed: Sequence[int], sample: Callable[[np.random.Generator, int], Any]) -> Vector:
        """Returns random numbers for each tensor, which do not depend on what other tensors there are."""
        vector = np.empty(self.dimension, self.dtype)
        end = 0
        for name, size in zip(self.names, self.sizes, strict=True):
            vector[end : end + size] = sample(np.random.default_rng([*seed, zlib.crc32(name.encode())]), size)
            end += size
        return vector

    def gaussian(self, *seed: int) -> Vector:
        return self.draw(seed, lambda generator, size: generator.standard_normal(size))

    def rademacher(self, *seed: int) -> Vector:
        """Returns numbers that are -1 or 1, shape (weights,)."""
        return self.draw(seed, lambda generator, size: generator.integers(0, 2, size, np.int8) * 2 - 1)

    def as_state(self, vector: Vector) -> dict[str, Vector]:
        """Returns a vector as arrays of the tensors' shapes, by name."""
        parts = np.split(vector, np.cumsum(self.sizes)[:-1])
        return {name: part.reshape(shape) for name, shape, part in zip(self.names, self.shapes, parts, strict=True)}


@dataclass(frozen=True)
class ProductSettings:
    matrix: Matrix = "hessian"  # or "ggn" (generalised Gauss-Newton, never negative for a convex loss of the outputs)
    memory: int | float = 0.25  # bytes that may be kept between products, or a share of free memory (float)
    neighbours: int = 1  # how many workers use this machine's memory at once; pools know it

    def __post_init__(self) -> None:
        check_int("neighbours", self.neighbours, minimum=1)
        check_choice("matrix", self.matrix, MATRICES)
        if not isinstance(self.memory, float):
            check_int("memory", self.memory, minimum=0)
        elif not 0 <= self.memory <= 1:
            raise wrong_value("memory", "a number of bytes, or a share from 0.0 to 1.0 of what is free", self.memory)


class ShareProducts(ABC):
    """What one worker makes of shares of the samples, with the network at one set of weights.

    Sums are numerators of the mean over samples; who adds up all shares divides by the sum of their weights.
    """

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """How vectors are made."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What the user should know, in sentences."""

    @property
    @abstractmethod
    def memory_for_vectors(self) -> float:
        """Bytes that eigenvectors may take on the host."""

    @abstractmethod
    def samples_in(self, share: int) -> int:
        """Returns how many samples a share holds."""

    @abstractmethod
    def move(self, parameters: State, buffers: State | None) -> None:
        """Puts the network at a set of weights.

        Args:
            parameters: every parameter, by name.
            buffers: every buffer, by name; None keeps those that are there.
        """

    @abstractmethod
    def loss(self, share: int) -> tuple[float, float | None]:
        """Returns a share's sum of losses and its weight; None where the loss is a sum, which has no weight."""

    @abstractmethod
    def gradient(self, share: int) -> Float64[np.ndarray, " weights"]:
        """Returns the gradient of a share's sum of losses, shape (weights,)."""

    @abstractmethod
    def product(self, vector: Vector, share: int, *, few: int = 0) -> Float64[np.ndarray, " weights"]:
        """Returns the matrix of a share's sum of losses times a vector, shape (weights,).

        Args:
            vector: shape (weights,).
            share: which.
            few: how many samples suffice for an estimate, scaled to the share and computed anew, without what is kept
                from product to product; 0 takes all.

        Raises:
            CurvatureError: the network or the loss has no second derivative.
        """

    are_differences = False
    """Whether products are differences of gradients over a step, so that they are off by more than rounding."""

    def doubled(self, vector: Vector, share: int) -> Float64[np.ndarray, " weights"]:
        """Returns what ``product`` does, as a difference over twice the step, where products are differences."""
        return self.product(vector, share)

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which many calls cost less than they do apart."""
        return contextlib.nullcontext()

    def products(self, vector: Vector, shares: Sequence[int]) -> Iterator[Float64[np.ndarray, " weights"]]:
        """Yields what ``product`` gives for each of some shares, in order; several may be made at once."""
        return (self.product(vector, share) for share in shares)

    def parts(self, method: str, shares: Sequence[int], *arguments: Any, **options: Any) -> Iterator[Any]:
        """Yields what a method gives for each of some shares, in order."""
        if method == "product" and not options:
            return self.products(arguments[0], shares)
        return (getattr(self, method)(*arguments, share, **options) for share in shares)

    def total_losses(self) -> list[tuple[float, float | None]]:
        """Returns what ``loss`` gives for each share, in order."""
        with self.together():
            return list(self.parts("loss", range(SHARES)))

    def total(self, method: str, *arguments: Vector) -> Float64[np.ndarray, " weights"]:
        """Returns what ``gradient``, ``product`` or ``doubled`` gives for all shares, added up."""
        with self.together():
            total: Float64[np.ndarray, " weights"] = add_in_order(
                range(SHARES), self.parts(method, range(SHARES), *arguments)
            )
        return total

    @abstractmethod
    def close(self) -> None:
        """Leaves the network as it was found, bit for bit, and frees what was kept."""

    def __enter__(self) -> ShareProducts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Products:
    """The curvature matrix of the mean loss over all samples at one set of weights, as what makes products."""

    def __init__(self, shares: ShareProducts, weights_length: float = 0.0) -> None:
        self._shares, self.layout = shares, shares.layout
        self.count = 0  # how many products were made
        parts = shares.total_losses()
        weights = [weight for _, weight in parts if weight is not None]
        self._weight = sum(weights) if weights else 1.0
        counting = (share for share, (_, weight) in enumerate(parts) if weight != 0 and shares.samples_in(share))
        self._counting_share = next(counting, 0)  # The first of which samples count.
        self.loss = sum(value for value, _ in parts) / self._weight if self._weight else float("nan")
        """The mean over all samples."""
        # A length of 0 is one that is not known.
        squared = weights_length * weights_length
        self.flat = ROUNDING[self.layout.dtype] * abs(self.loss) / squared if squared else 0.0
        """Curvature that bends the loss over the weights' length by less than rounding, so that it is zero."""
        self.are_differences = shares.are_differences

    def gradient(self) -> Float64[np.ndarray, " weights"]:
        return self._shares.total("gradient") / self._weight

    def __call__(self, vector: Vector) -> Float64[np.ndarray, " weights"]:
        self.count += 1
        return self._shares.total("product", np.ascontiguousarray(vector, self.layout.dtype)) / self._weight

    def doubled(self, vector: Vector) -> Float64[np.ndarray, " weights"]:
        """Returns the product over twice the step: what changes is three times the difference's error, or rounding."""
        self.count += 1
        return self._shares.total("doubled", np.ascontiguousarray(vector, self.layout.dtype)) / self._weight

    def estimated(self, vector: Vector, few: int) -> Float64[np.ndarray, " weights"]:
        """Returns about what a share adds to a product, counted as none; ``few`` as of ``ShareProducts.product``."""
        vector = np.ascontiguousarray(vector, self.layout.dtype)
        return self._shares.product(vector, self._counting_share, few=few) / self._weight


def add_shares(shares: range, known: Callable[[range], Any]) -> Any:
    """Returns the sum of 2^k shares in a row by halves of halves, so that no bit depends on who adds up which half."""
    # A sum, which is not changed, or None where the halves are to be added; those of single shares are known.
    total = known(shares)
    if total is not None:
        return total
    middle = len(shares) // 2
    first = add_shares(shares[:middle], known)
    return first + add_shares(shares[middle:], known)


def add_in_order(shares: range, made: Iterator[Any]) -> Any:
    """Returns what ``add_shares`` does, of the parts of single shares, which are made as they are added."""
    return add_shares(shares, lambda some: next(made) if len(some) == 1 else None)


def whole_halves(shares: range) -> list[range]:
    """Returns shares that follow each other as few parts, each of which ``add_shares`` can add up."""
    parts, start = [], shares.start
    while start < shares.stop:
        size = SHARES
        while start % size or start + size > shares.stop:
            size //= 2
        parts.append(range(start, start + size))
        start += size
    return parts
