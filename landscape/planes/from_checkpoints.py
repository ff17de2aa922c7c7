"""Planes and lines from readers of weights whose network is known; those of ``from_weights`` build on them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.buffers_between import BuffersBetween, is_count
from collectors.networks.weight_space import TensorInfo, WeightSpace, some_names
from collectors.validation import check_int
from collectors.weights.aligned import align
from collectors.weights.safetensors_file import StateReader

from ..errors import PlaneError
from ..roles import UNKNOWN, Members, OriginRole
from .directions import Direction, empty_direction, random_direction
from .pca import principal_directions
from .plane import Plane
from .projection import difference_blocks, not_finite, project, projection_at
from .pruned_weights import with_effective_weights
from .runs import Run

_LARGE_COSINE = 0.1


def plane_of_runs(runs: Sequence[Run], space: WeightSpace, *, centering: str = "none") -> Plane:
    """Returns a plane through the last checkpoint of the first run, in the principal directions of all checkpoints."""
    check_spannable(space)
    first, *others = (tuple(align(reader, space) for reader in run.readers) for run in runs)
    states = (*first, *itertools.chain(*others))
    # The plane runs through the last one that it is given.
    principal = principal_directions((*itertools.chain(*others), *first), space, centering=centering)
    origin = first[-1]
    digests = tuple(state.sha256() for state in states)
    members = Members.of_runs({run.name: run.numbers for run in runs}, [run.finished for run in runs])
    identity = {
        "decomposition": "pca",
        "checkpoints": list(digests),
        "runs": [len(run.readers) for run in runs],
        "centering": centering,
    }
    return Plane(
        space,
        *origin_state(origin, space),
        principal.directions,
        "pca",
        "none",
        identity,
        explained_variance_ratio=principal.explained_variance_ratio,
        origin_role=members.origin(len(first) - 1),
        projection=project(states, origin, principal.directions, space),
        checkpoints=states,
        notes=principal.notes,
        members=replace(members, sha256=digests),
    )


def random_plane_of(
    reader: StateReader,
    space: WeightSpace,
    *,
    seed: int,
    normalization: str,
    perturb_one_dimensional: bool = False,
    dimension: int = 2,
    role: OriginRole = UNKNOWN,
) -> Plane:
    """Returns a plane, or a line, in random directions through one checkpoint."""
    check_spannable(space)
    dimension = check_int("dimension", dimension, minimum=1, maximum=2)
    state = align(reader, space)
    origin = origin_state(state, space)
    directions = tuple(
        random_direction(
            space,
            state,
            seed=seed,
            index=index,
            normalization=normalization,
            perturb_one_dimensional=perturb_one_dimensional,
        )
        for index in range(dimension)
    )
    if not any(values.any() for values in directions[0].values()):
        lacking, remedies = [], []
        if not perturb_one_dimensional:
            lacking.append("two axes")
            remedies.append("perturb_one_dimensional=True to move biases and normalization layers too")
        if normalization != "none":
            lacking.append("values other than zero")
            remedies.append('normalization="none" to move weights that are zero')
        raise PlaneError(
            f"the random direction is zero: no trainable tensor of the network {space.network} that may move has "
            f"{' and '.join(lacking)}. Pass {', or '.join(remedies)}."
        )
    identity = {
        "decomposition": "random",
        "origin": state.sha256(),
        "seed": int(seed),
        "normalization": normalization,
        "perturb_one_dimensional": bool(perturb_one_dimensional),
        "dimension": dimension,
    }
    # Earlier versions moved them, each by exactly its size.
    if gains := [tensor.name for tensor in space.trainable if _is_gain(tensor)]:
        identity["gains"] = len(gains)
    single = [tensor.name for tensor in space.trainable if tensor.filter_axes and tensor.filter_size == 1]
    note = f"Filters of one weight, each of which a direction moves by exactly its size: those of {some_names(single)}."
    notes = (note,) if single and normalization == "filter" else ()
    plane = Plane(space, *origin, directions, "random", normalization, identity, origin_role=role, notes=notes)
    if plane.cosine is not None and abs(plane.cosine) > _LARGE_COSINE:
        warnings.warn(
            f"the two random directions have a cosine of {plane.cosine:.3f}, so the plane is drawn as a parallelogram; "
            "few weights carry most of their length. Another seed or normalization gives another angle.",
            UserWarning,
            stacklevel=2,
        )
    return plane


def plane_of_points(readers: Mapping[str, StateReader], space: WeightSpace) -> Plane:
    """Returns a plane through three networks with names, or a line through two; the first is the origin."""
    check_spannable(space)
    networks = tuple(align(reader, space) for reader in readers.values())
    digests = tuple(network.sha256() for network in networks)
    states = with_effective_weights(networks, space)
    members = Members.of_networks(list(readers))
    origin, others = states[0], states[1:]
    directions = tuple(empty_direction(space) for _ in others)
    for block in difference_blocks(others, origin, space):
        for direction, row in zip(directions, block.differences, strict=True):
            direction[block.name].reshape(-1)[block.start : block.stop] = row
    _check_different(list(readers), directions)
    identity = {"decomposition": "points", "points": list(digests)}
    # By definition rather than by least squares, so that the corners are exactly (1, 0) and (0, 1).
    corners = np.eye(len(states), len(others), k=-1)
    parameters, buffers = origin_state(origin, space)
    ends = _end_buffers(states, space)
    kept = BuffersBetween(space, buffers, ends).kept
    note = ""
    if kept:
        first = next(iter(readers))
        note = (
            f"the buffers {some_names(kept)} differ between the networks and cannot be interpolated (masks, indices, "
            f"values that are not finite): between the networks they are those of {first}."
        )
        warnings.warn(note, UserWarning, stacklevel=3)
    return Plane(
        space,
        parameters,
        buffers,
        directions,
        "points",
        "none",
        identity,
        origin_role=members.origin(0),
        projection=projection_at(states, corners, origin, directions, space),
        checkpoints=networks,
        end_buffers=ends,
        notes=(note,) if note else (),
        members=replace(members, sha256=digests),
    )


def _is_gain(tensor: TensorInfo) -> bool:
    """Whether a tensor is the gain of a weight normalization of PyTorch."""
    return len(tensor.shape) > 1 and not tensor.filter_axes and tensor.name.endswith((".original0", "_g"))


def _check_different(names: Sequence[str], directions: Sequence[Direction]) -> None:
    """Checks that networks lie at different places; directions lead from the first to each of the others."""
    places = zip(itertools.combinations(names, 2), itertools.combinations([None, *directions], 2), strict=True)
    for (one, other), (start, end) in places:
        assert end is not None
        if not any(values.any() if start is None else (values != start[name]).any() for name, values in end.items()):
            raise PlaneError(
                f"{one!r} and {other!r} have the same weights, so there is no way between them; give networks that "
                "differ."
            )


def _end_buffers(states: Sequence[StateReader], space: WeightSpace) -> tuple[dict[str, NDArray[Any]], ...]:
    """Returns the buffers of all networks but the first that are not the same in all; nothing where all are."""
    ends: tuple[dict[str, NDArray[Any]], ...] = tuple({} for _ in states[1:])
    for tensor in space.buffers:
        first, *others = (state.read(tensor.name) for state in states)
        if any(first.tobytes() != other.tobytes() for other in others):
            for end, array in zip(ends, others, strict=True):
                end[tensor.name] = array
    # What counts batches is never computed with.
    return ends if any(not is_count(name) for end in ends for name in end) else ()


def origin_state(state: StateReader, space: WeightSpace) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Returns copies of all parameters and of all buffers; the trainable ones are checked to be finite."""
    parameters = {tensor.name: state.read(tensor.name) for tensor in space.parameters}
    for tensor in space.trainable:
        if not np.isfinite(parameters[tensor.name]).all():
            raise not_finite(state.label, tensor.name)
    return parameters, {tensor.name: state.read(tensor.name) for tensor in space.buffers}


def check_spannable(space: WeightSpace) -> None:
    """Raises a PlaneError where nothing of a network is trainable, or a trainable tensor is complex."""
    if not space.dimension:
        raise PlaneError(
            f"the network {space.network} has no trainable parameter, so no plane can run through its weights; set "
            "requires_grad=True on the parameters that the plane should span."
        )
    complex_names = [tensor.name for tensor in space.trainable if tensor.dtype.startswith("complex")]
    if complex_names:
        raise PlaneError(
            f"the network {space.network} has complex trainable parameters {some_names(complex_names)}, which are not "
            "supported; set requires_grad=False on them to keep them as they are."
        )
