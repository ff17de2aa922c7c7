"""Planes along what an optimizer takes for the curvature: the leading eigenvectors of its Kronecker factors."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from collectors.files.places import check_directory
from collectors.networks.weight_space import WeightSpace, direction_dtype
from collectors.validation import check_float, wrong_type, wrong_value
from collectors.weights.aligned import AlignedState, Weights, align, as_reader
from collectors.weights.factors_file import read_factors
from collectors.weights.kronecker import FactorVector, LayerFactors, leading_vectors
from collectors.weights.safetensors_file import CheckpointFile

from ..errors import PlaneError
from ..roles import NETWORK, UNKNOWN, OriginRole, check_name
from .axis_curvature import BOTTOM, FACTORS, FROM_THE_TOP, USUAL, AxisCurvature, check_which
from .directions import Direction
from .from_checkpoints import check_spannable, origin_state
from .from_weights import network_space
from .plane import Plane

Factors: TypeAlias = "str | os.PathLike[str] | Sequence[LayerFactors]"
"""Where a ``_factors.safetensors`` lies, or what ``Thor.kept_factors`` and ``RunDirectory.factors`` return."""

_NOTE = (
    "The directions are eigenvectors of the optimizer's curvature: of THOR's Kronecker factors, which are made of one "
    "batch's gradients, without any coupling between layers. They are not eigenvectors of the Hessian."
)


def factor_plane(
    origin: Weights,
    factors: Factors,
    *,
    network: object = None,
    which: str | Sequence[str] = USUAL,
    rise: float = 1.0,
    name: str | None = None,
) -> Plane:
    """Returns a plane, or a line, along the leading eigenvectors of the optimizer's curvature; nothing is measured.

    This is what THOR sees, and not the Hessian: a block for each layer, which is a Kronecker product of two factors of
    one batch's inputs and gradients. Each direction lies in one weight and has length one, so that coordinates are
    distances in weight space. The plane's own axes reach to where the loss would have risen by ``rise``, if it bent as
    the optimizer sees it.

    Args:
        origin: the weights: a network, a state dict, a file, or a ``StateReader``.
        factors: the file of the optimizer's factors that lies beside a checkpoint, or what ``Thor.kept_factors`` or
            ``RunDirectory.factors`` returned.
        network: the network, or its ``WeightSpace``; needed unless ``origin`` is a network.
        which: one (a line) or two of "top", "second", "third", "fourth" and "fifth".
        rise: in units of the loss.
        name: what pictures call the network, such as "THOR"; None calls it the origin.

    Raises:
        TypeError: an argument has the wrong type, or nothing describes the network.
        ValueError: an argument has a wrong value.
        CheckpointError: the weights do not fit the network or are not finite; the factors' file is missing or damaged.
        PlaneError: the factors are another network's, or have not as many directions.

    Source: Martens and Grosse 2015 (the factors); Chen et al. 2021 (THOR).
    """
    role = UNKNOWN if name is None else OriginRole(NETWORK, check_name("name", name))
    found = as_factors("factors", factors)
    space = network_space(network, origin)
    return factor_plane_of(align(as_reader("origin", origin), space), space, found, which=which, rise=rise, role=role)


def factor_plane_of(
    state: AlignedState,
    space: WeightSpace,
    factors: Sequence[LayerFactors],
    *,
    which: str | Sequence[str] = USUAL,
    rise: float = 1.0,
    role: OriginRole = UNKNOWN,
) -> Plane:
    """Returns the plane of weights and factors that were read; see ``factor_plane``."""
    names = check_which(which)
    if BOTTOM in names:
        raise ValueError(
            'which must not have "bottom" along factors: what the optimizer sees is zero in very many directions. Take '
            '"second" or another.'
        )
    if check_float("rise", rise) <= 0:
        raise wrong_value("rise", "a number above 0, in units of the loss", rise)
    check_spannable(space)
    check_fits(factors, space)
    places = [FROM_THE_TOP.index(name) for name in names]
    leading = leading_vectors(factors, max(places) + 1)
    if len(leading) <= max(places):
        raise PlaneError(
            f"the factors have {len(leading)} directions whose eigenvalue is above zero, so there is no {names[-1]!r} "
            'one. They are as old as the last refresh; take those of a later checkpoint, or which="top".'
        )
    chosen = [leading[place] for place in places]
    values = tuple(vector.value for vector in chosen)
    bends = AxisCurvature(FACTORS, names, values, (math.nan,) * len(values), None, float(rise))
    identity = {
        "decomposition": FACTORS,
        "origin": state.sha256(),
        "factors": _digest(factors),
        "which": list(names),
    }
    plane = Plane(
        space,
        *origin_state(state, space),
        tuple(_direction(vector, space) for vector in chosen),
        FACTORS,
        "none",
        identity,
        origin_role=role,
        curvature=bends,
    )
    return replace(plane, notes=(_NOTE, *bends.notes(plane.longest)))


def as_factors(name: str, value: object) -> tuple[LayerFactors, ...]:
    """Returns factors that a user gave: a file's, or a list of them.

    Raises:
        TypeError: it is neither.
        ValueError: there are none.
        CheckpointError: the file is missing, damaged, or holds no factors.
    """
    if isinstance(value, str | os.PathLike):
        return read_factors(CheckpointFile(check_directory(name, value)))
    expected = "the path of a file of factors, or a list of LayerFactors (of Thor.kept_factors, RunDirectory.factors)"
    if not isinstance(value, Sequence) or not all(isinstance(item, LayerFactors) for item in value):
        raise wrong_type(name, expected, value)
    if not value:
        raise ValueError(f"{name} must not be empty. Before the first step an optimizer has no factors.")
    return tuple(value)


def check_fits(factors: Sequence[LayerFactors], space: WeightSpace) -> None:
    """Checks that factors are of a network's own weights.

    Raises:
        PlaneError: they are not.
    """
    shapes = {tensor.name: tensor.shape for tensor in space.trainable}
    if wrong := [layer.weight for layer in factors if shapes.get(layer.weight) != layer.shape]:
        raise PlaneError(
            f"the factors are of another network than {space.network}: it has no trainable {', '.join(wrong[:5])} of "
            "their shape. Give those that were saved with the same training."
        )


def _direction(vector: FactorVector, space: WeightSpace) -> Direction:
    return {
        tensor.name: (vector.array if tensor.name == vector.weight else np.zeros(tensor.shape)).astype(
            direction_dtype(tensor.dtype)
        )
        for tensor in space.trainable
    }


def _digest(factors: Sequence[LayerFactors]) -> str:
    digest = hashlib.sha256()
    for layer in factors:
        digest.update(f"{layer.weight} {layer.shape} {layer.positions!r}".encode())
        parts: tuple[Any, ...] = (layer.a, layer.g)
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
