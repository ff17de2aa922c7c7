"""Directions through weight space: drawn at random, scaled to the weights they leave from, and compared."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import TensorInfo, WeightSpace, direction_dtype
from collectors.shapes import Float64
from collectors.validation import check_bool, check_choice, check_int
from collectors.weights.safetensors_file import StateReader

from .passes import Piece

Direction: TypeAlias = dict[str, NDArray[Any]]

NORMALIZATIONS = ("filter", "layer", "weight", "none")
"""Of the landscape of a run's result."""
_BLOCK = 2**20


def random_direction(
    space: WeightSpace,
    origin: StateReader,
    *,
    seed: int,
    index: int,
    normalization: str = "filter",
    perturb_one_dimensional: bool = False,
) -> Direction:
    """Draws a Gaussian direction, by name of trainable tensor, scaled to the weights at the origin (Li et al. 2018)."""
    # A tensor's values depend on the seed, the index and the tensor's name alone, so that adding a layer leaves the
    # other layers' values as they were.
    seed = check_int("seed", seed, minimum=0)

    tensors = {tensor.name: tensor for tensor in space.trainable}

    def draw(name: str) -> NDArray[Any]:
        generator = np.random.default_rng([seed, index, zlib.crc32(name.encode())])
        kind = direction_dtype(tensors[name].dtype).type
        return np.asarray(generator.standard_normal(tensors[name].shape, dtype=kind))

    return normalize(draw, origin, space, normalization, perturb_one_dimensional)


def normalize(
    values_of: Callable[[str], NDArray[Any]],
    origin: StateReader,
    space: WeightSpace,
    normalization: str,
    perturb_one_dimensional: bool = False,
) -> Direction:
    """Returns a direction, by name of trainable tensor, scaled in place to the weights at the origin (Li et al. 2018).

    "filter" gives each filter the norm of the weights' filter, "layer" each tensor the norm of its weights, "weight"
    multiplies each element by the size of its weight, "none" changes no scale. A filter is what feeds one output of a
    layer: a row of a matrix, the kernel of one channel, the vector of one token; a tensor without filters counts as
    one, or is zero without ``perturb_one_dimensional``. Where the direction or the weights are zero, so is the result.
    """
    check_choice("normalization", normalization, NORMALIZATIONS)
    check_bool("perturb_one_dimensional", perturb_one_dimensional)
    return {
        tensor.name: _normalize_tensor(values_of(tensor.name), tensor, origin, normalization)
        if tensor.filter_axes or perturb_one_dimensional
        else np.zeros(tensor.shape, direction_dtype(tensor.dtype))
        for tensor in space.trainable
    }


def empty_direction(space: WeightSpace) -> Direction:
    return {tensor.name: np.empty(tensor.shape, direction_dtype(tensor.dtype)) for tensor in space.trainable}


def as_direction(vector: NDArray[Any], space: WeightSpace) -> Direction:
    """Returns a vector, shape (weights,), as arrays of the trainable tensors' shapes, by name."""
    if vector.shape != (space.dimension,):
        raise ValueError(f"a vector must have the shape ({space.dimension},), but has {vector.shape}.")
    direction, start = {}, 0
    for tensor in space.trainable:
        part = vector[start : start + tensor.size]
        direction[tensor.name] = part.reshape(tensor.shape).astype(direction_dtype(tensor.dtype))
        start += tensor.size
    return direction


def parts_of(directions: Sequence[Direction], pieces: Sequence[Piece]) -> list[list[NDArray[Any]]]:
    """Returns views of the directions' elements, for each piece that of each direction."""
    return [[along[name].reshape(-1)[start:stop] for along in directions] for name, start, stop in pieces]


def inner_product(first: Direction, second: Direction, space: WeightSpace) -> float:
    return math.fsum(_dot(first[tensor.name], second[tensor.name]) for tensor in space.trainable)


def norm(direction: Direction, space: WeightSpace) -> float:
    return math.sqrt(inner_product(direction, direction, space))


def _normalize_tensor(
    values: NDArray[Any], tensor: TensorInfo, origin: StateReader, normalization: str
) -> NDArray[Any]:
    if normalization == "none" or not values.size:
        return values
    weights = origin.read(tensor.name).astype(values.dtype, copy=False).reshape(tensor.shape)
    if normalization == "weight":
        values *= np.abs(weights)
        return values
    if normalization == "layer" or not tensor.filter_axes:
        filters, weight_filters, dimensions = values.reshape(1, -1), weights.reshape(1, -1), 1
    else:
        filters, weight_filters = tensor.filters(values), tensor.filters(weights)
        dimensions = tensor.filter_dimensions
    lengths = _filter_norms(filters, dimensions)
    ratios = np.divide(
        _filter_norms(weight_filters, dimensions), lengths, out=np.zeros_like(lengths), where=lengths > 0
    )
    ratios = ratios.reshape(*ratios.shape, *[1] * (filters.ndim - dimensions))
    np.multiply(filters, ratios, out=filters, casting="same_kind")
    return values


def _filter_norms(filters: NDArray[Any], dimensions: int = 1) -> Float64[np.ndarray, " *filters"]:
    if dimensions > 1:
        return np.stack([_filter_norms(entry, dimensions - 1) for entry in filters])
    size = filters[0].size
    if size > _BLOCK:
        return np.array([math.sqrt(_dot(entry, entry)) for entry in filters])
    norms = np.empty(len(filters))
    step = max(1, _BLOCK // size)
    for start in range(0, len(filters), step):
        block = filters[start : start + step].astype(np.float64)
        norms[start : start + step] = np.linalg.norm(block.reshape(len(block), -1), axis=1)
    return norms


def _dot(first: NDArray[Any], second: NDArray[Any]) -> float:
    # In blocks: a float64 copy of a large layer would be twice the layer.
    is_square, first, second = first is second, first.reshape(-1), second.reshape(-1)
    products = []
    for start in range(0, len(first), _BLOCK):
        block = first[start : start + _BLOCK].astype(np.float64)
        other = block if is_square else second[start : start + _BLOCK].astype(np.float64)
        products.append(float(block @ other))
    return math.fsum(products)


def check_arrays_of(plane: Any) -> None:
    """Raises a ValueError where a plane's tensor is missing, unknown, or unlike its network's in shape or type."""
    # The plane is a Plane, which this file must not import.
    stored, buffers = (
        {tensor.name: (tensor.shape, tensor.dtype) for tensor in tensors}
        for tensors in (plane.space.parameters, plane.space.buffers)
    )
    spanned = {tensor.name: (tensor.shape, direction_dtype(tensor.dtype).name) for tensor in plane.space.trainable}
    named = [("origin", plane.origin, stored), ("buffers", plane.buffers, buffers)]
    named += [(f"directions[{index}]", direction, spanned) for index, direction in enumerate(plane.directions)]
    for name, arrays, expected in named:
        given = {key: (tuple(array.shape), array.dtype.name) for key, array in arrays.items()}
        wrong = [
            f"{key} (expected {expected.get(key, 'nothing')}, got {given.get(key, 'nothing')})"
            for key in dict.fromkeys((*expected, *given))
            if expected.get(key) != given.get(key)
        ]
        if wrong:
            raise ValueError(
                f"{name} does not fit the network's tensors: {'; '.join(wrong[:20])}. Build planes with random_plane, "
                "pca_plane, plane_through or custom_plane, which convert what they are given."
            )
