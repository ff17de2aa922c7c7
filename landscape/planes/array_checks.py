"""Whether the arrays of a plane are those of its network, by names, shapes and element types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from collectors.networks.weight_space import direction_dtype


def check_arrays_of(plane: Any) -> None:
    """Raises a ValueError where a plane's tensor is missing, unknown, or unlike its network's in shape or type."""
    # The plane is a Plane, which this file must not import.
    own = {tensor.name: (tensor.shape, tensor.dtype) for tensor in plane.space.tensors}
    spanned = {tensor.name: (tensor.shape, direction_dtype(tensor.dtype).name) for tensor in plane.space.trainable}
    _check_arrays("origin", plane.origin, {tensor.name: own[tensor.name] for tensor in plane.space.parameters})
    _check_arrays("buffers", plane.buffers, {tensor.name: own[tensor.name] for tensor in plane.space.buffers})
    for index, direction in enumerate(plane.directions):
        _check_arrays(f"directions[{index}]", direction, spanned)


def _check_arrays(
    name: str, arrays: Mapping[str, NDArray[Any]], expected: Mapping[str, tuple[tuple[int, ...], str]]
) -> None:
    found = {key: (tuple(array.shape), array.dtype.name) for key, array in arrays.items()}
    wrong = [
        f"{key} (expected {expected.get(key, 'nothing')}, got {found.get(key, 'nothing')})"
        for key in dict.fromkeys((*expected, *found))
        if expected.get(key) != found.get(key)
    ]
    if wrong:
        raise ValueError(
            f"{name} does not fit the network's tensors: {'; '.join(wrong[:20])}. Build planes with random_plane, "
            "pca_plane, plane_through or custom_plane, which convert what they are given."
        )
