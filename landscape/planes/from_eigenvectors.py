"""Planes and lines along eigenvectors of a loss's curvature, once these are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import WeightSpace, direction_dtype
from collectors.weights.aligned import AlignedState

from ..roles import UNKNOWN, OriginRole
from .axis_curvature import AxisCurvature
from .directions import Direction
from .from_checkpoints import check_spannable, origin_state
from .plane import Plane

if TYPE_CHECKING:
    from jaxtyping import Float


def plane_of_eigenvectors(
    state: AlignedState,
    space: WeightSpace,
    vectors: Sequence[Float[np.ndarray, " weights"]],
    curvature: AxisCurvature,
    identity: Mapping[str, Any],
    *,
    notes: Sequence[str] = (),
    role: OriginRole = UNKNOWN,
) -> Plane:
    """Returns a plane, or a line, through weights along one or two unit vectors, as ``as_direction`` takes them."""
    # The identity is what they are the eigenvectors of, not their bits, which another machine computes a little unlike.
    check_spannable(space)
    directions = tuple(as_direction(vector, space) for vector in vectors)
    plane = Plane(
        space,
        *origin_state(state, space),
        directions,
        curvature.matrix,
        "none",
        {**identity},
        origin_role=role,
        curvature=curvature,
    )
    return replace(plane, notes=(*notes, *curvature.notes(plane.longest)))


def as_direction(vector: NDArray[Any], space: WeightSpace) -> Direction:
    """Returns a vector, shape (weights,), as arrays of the trainable tensors' shapes, by name."""
    if vector.shape != (space.dimension,):
        raise ValueError(f"a vector must have the shape ({space.dimension},), but has {vector.shape}.")
    found, start = {}, 0
    for tensor in space.trainable:
        part = vector[start : start + tensor.size]
        found[tensor.name] = part.reshape(tensor.shape).astype(direction_dtype(tensor.dtype))
        start += tensor.size
    return found
