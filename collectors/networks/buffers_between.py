"""Buffers between networks: at each of them its own ones, between them what can be interpolated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .weight_space import State, WeightSpace, numpy_dtype

# How PyTorch's spectral normalization ends the names of its two singular vectors.
_LEFT, _RIGHT = "_u", "_v"
_NEARLY_ONE = 1e-2
# How torch.nn.utils.prune names a layer's weights and what it multiplies them by.
_WEIGHTS, _MASK = "_orig", "_mask"
_COUNTS = "num_batches_tracked"
# Of PyTorch's and of Keras' normalization layers, which compute them from samples.
_STATISTICS = ("running_mean", "running_var")
_OF_KERAS = ("/moving_mean", "/moving_variance")


class BuffersBetween:
    """Buffers between networks at 0 and 1 along each direction, by ``inside_corners``; at a network, those it has."""

    def __init__(self, space: WeightSpace, buffers: State, end_buffers: Sequence[State]) -> None:
        # Each has those buffers, of the network at 1 along a direction, that are not the same in all; or none.
        names = end_buffers[0] if end_buffers else ()
        self.names = tuple(info.name for info in space.buffers if info.name in names)
        self.networks: list[dict[str, NDArray[Any]]] = [
            {name: np.asarray(state[name]) for name in self.names} for state in (buffers, *end_buffers)
        ]
        self._masks = pruning_masks(space)
        self._dtypes = {info.name: numpy_dtype(info.dtype) for info in space.buffers}
        self.interpolated = tuple(name for name in self.names if self._can_be_interpolated(name))
        # Of spectral normalization: they stay of length one, and are turned so that they point the same way.
        self.vectors = tuple(name for name in self.interpolated if self._is_vector(name))
        self.corners = [
            {
                # Ones for masks of pruning, because the weights are multiplied by them beforehand.
                name: np.ones(network[name].shape) if name in self._masks else network[name].astype(np.float64)
                for name in self.interpolated
            }
            for network in self.networks
        ]
        """The interpolated buffers of each network, float64, vectors turned to those of the first."""
        for corner in self.corners[1:]:
            self._turn(corner)

    @property
    def kept(self) -> tuple[str, ...]:
        """What is the first network's everywhere but at the others, though they differ in it."""
        return tuple(name for name in self.names if name not in self.interpolated and not is_count(name))

    def network_at(self, coordinates: Sequence[float]) -> int | None:
        """Returns which network lies at a point, 0 for the origin; None where there is none."""
        places = [place for place, coordinate in enumerate(coordinates, start=1) if coordinate]
        if not self.names or len(places) > 1:
            return None
        if not places:
            return 0
        return places[0] if coordinates[places[0] - 1] == 1 else None

    def at(self, coordinates: Sequence[float]) -> dict[str, NDArray[Any]]:
        """Returns what differs from the origin's buffers at a point, in its element types; coordinates by direction."""
        network = self.network_at(coordinates)
        if network is not None:
            return dict(self.networks[network])
        point = {}
        shares = inside_corners(coordinates) if self.interpolated else []
        for name in self.interpolated:
            values = np.zeros(self.corners[0][name].shape)
            for share, corner in zip(shares, self.corners, strict=True):
                values += share * corner[name]
            if name in self.vectors:
                values /= np.linalg.norm(values) or 1.0
            point[name] = values.astype(self._dtypes[name])
        return point

    def _can_be_interpolated(self, name: str) -> bool:
        if name in self._masks:
            return True
        if not self._dtypes[name].name.startswith(("float", "bfloat")):
            return False
        wide = [network[name].astype(np.float64) for network in self.networks]
        is_mask = all(np.isin(array, (0.0, 1.0)).all() for array in wide)
        # Other masks, indices, booleans, and what is not finite are those of the first network.
        return not is_mask and all(np.isfinite(array).all() for array in wide)

    def _is_vector(self, name: str) -> bool:
        lengths = [np.linalg.norm(network[name].astype(np.float64)) for network in self.networks]
        is_named = name.endswith((_LEFT, _RIGHT)) and self.networks[0][name].ndim == 1
        return is_named and all(abs(length - 1) < _NEARLY_ONE for length in lengths)

    def _turn(self, corner: dict[str, NDArray[Any]]) -> None:
        """Turns both vectors of each layer where the left one points away from the first network's."""
        for left in self.vectors:
            if left.endswith(_LEFT) and float(self.corners[0][left] @ corner[left]) < 0:
                for name in (left, left.removesuffix(_LEFT) + _RIGHT):
                    if name in corner:
                        corner[name] = -corner[name]


def pruning_masks(space: WeightSpace) -> dict[str, str]:
    """Returns the masks of PyTorch's pruning, each with the weights that it belongs to."""
    shapes = {tensor.name: tensor.shape for tensor in space.parameters}
    weights = {tensor.name: tensor.name.removesuffix(_MASK) + _WEIGHTS for tensor in space.buffers}
    return {
        tensor.name: weights[tensor.name]
        for tensor in space.buffers
        if tensor.name.endswith(_MASK) and shapes.get(weights[tensor.name]) == tensor.shape
    }


def is_count(name: str) -> bool:
    """Returns whether a buffer counts the batches of a training, with which nothing is computed afterwards."""
    return name.rpartition(".")[2] == _COUNTS


def has_statistics(names: Iterable[str]) -> bool:
    return any(name.rpartition(".")[2] in _STATISTICS or name.endswith(_OF_KERAS) for name in names)


def inside_corners(coordinates: Sequence[float]) -> list[float]:
    """Returns the share of each network at a point, the origin's first; none is negative, and they add up to 1."""
    # Beyond the segment or triangle of the networks a share would be negative, as a variance would become; it is zero.
    kept = [max(float(share), 0.0) for share in (1.0 - sum(coordinates), *coordinates)]
    return [share / sum(kept) for share in kept]
