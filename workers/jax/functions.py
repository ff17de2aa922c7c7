"""The compiled functions of a JAX network: what comes of one batch, at a point of a plane or at given weights."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax

from collectors.jax_tree import NamedArrays
from collectors.network_state import numpy_dtype

from .batches import Batch, call_network
from .jax_losses import JaxTotal

Plane: TypeAlias = tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]
"""Origin and directions of the trainable parameters, as wide as points are computed, and all that stays fixed."""


class CompiledFunctions:
    """What is measured of a network, compiled once for each shape of a batch.

    Weights are arguments of the compiled functions, never part of them.

    Attributes:
        totals: which candidates are computed at points; all of them, unless it is set before the first.

    Args:
        network: the network.
        candidates: the loss, in every way in which it may be added up, and the metrics.
    """

    def __init__(self, network: NamedArrays, candidates: Sequence[JaxTotal]) -> None:
        self._network, self._candidates = network, candidates
        self.totals = candidates
        self._state = jax.jit(self._values)
        self._point = jax.jit(self._point_values)
        self._points = jax.jit(jax.vmap(self._point_values, in_axes=(0, None, None, None)))

    def at_state(self, state: Mapping[str, Any], batch: Batch) -> Any:
        """Returns what each candidate needs to know of a batch, by key; every array of the network is given by name."""
        return self._state(state, batch.inputs, batch.targets)

    def at_point(self, coordinates: Any, plane: Plane, batch: Batch) -> Any:
        """Returns what each of ``totals`` needs to know, at a point of a plane, coordinates of shape (axes,)."""
        return self._point(coordinates, plane, batch.inputs, batch.targets)

    def at_points(self, coordinates: Any, plane: Plane, batch: Batch) -> Any:
        """Returns the same at several points, coordinates of shape (points, axes), every array with that axis first."""
        return self._points(coordinates, plane, batch.inputs, batch.targets)

    def lower_at_point(self, coordinates: Any, plane: Plane, batch: Batch) -> Any:
        """Returns what the function for one point does, before it is compiled."""
        return self._point.lower(coordinates, plane, batch.inputs, batch.targets)

    def _values(self, state: Mapping[str, Any], inputs: Any, targets: Any) -> dict[str, Any]:
        return self._parts(self._candidates, state, inputs, targets)

    def _point_values(self, coordinates: Any, plane: Plane, inputs: Any, targets: Any) -> dict[str, Any]:
        origin, directions, fixed = plane
        state = dict(fixed)
        for info in self._network.space.trainable:
            value = origin[info.name]
            for index, direction in enumerate(directions):
                value = value + coordinates[index].astype(value.dtype) * direction[info.name]
            state[info.name] = value.astype(numpy_dtype(info.dtype))
        return self._parts(self.totals, state, inputs, targets)

    def _parts(self, totals: Sequence[JaxTotal], state: Mapping[str, Any], inputs: Any, targets: Any) -> dict[str, Any]:
        outputs = call_network(functools.partial(self._network.call, state), inputs)
        return {total.key: total.inside(outputs, targets) for total in totals}
