"""Planes and lines through weights whose network is known; those of ``from_weights`` build on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.buffers_between import BuffersBetween, is_count, pruning_masks
from collectors.networks.weight_space import WeightSpace, some_names
from collectors.validation import check_int
from collectors.weights.aligned import AlignedState, Weights, align
from collectors.weights.safetensors_file import StateReader
from workers.users_code import warn_user

from ..errors import PlaneError
from ..roles import UNKNOWN, OriginRole
from .axis_curvature import AxisCurvature
from .directions import Direction, empty_direction, parts_of, random_direction
from .networks import Network, runs_of
from .passes import HERE, Passes, shards_of
from .pca import principal_directions
from .plane import Plane
from .projection import check_finite, difference_blocks, project

_LARGE_COSINE = 0.1


def plane_of_runs(
    networks: Sequence[Network], space: WeightSpace, *, centering: str = "none", passes: Passes = HERE
) -> Plane:
    """Returns a plane through the first run's last checkpoint, in the principal directions of the runs' checkpoints."""
    check_spannable(space)
    networks = tuple(network.opened(space).recognized() for network in networks)
    first, *others = list(runs_of(networks).values()) or [[]]
    # The plane runs through the last one that it is given.
    path = [network.weights for network in (*itertools.chain(*others), *first)]
    principal = principal_directions(path, space, centering=centering, passes=passes)
    origin = first[-1]
    # In the order of ``networks``, in which the first run comes first.
    near = np.roll(principal.coordinates, len(first), axis=0)
    weights = [network.weights for network in networks]
    identity = {
        "decomposition": "pca",
        "checkpoints": [network.sha256 for network in networks],
        "runs": [len(run) for run in (first, *others)],
        "centering": centering,
    }
    return Plane(
        space,
        *origin_state(origin.weights, space),
        principal.directions,
        "pca",
        "none",
        identity,
        explained_variance_ratio=principal.explained_variance_ratio,
        origin_role=origin.role,
        projection=project(weights, origin.weights, principal.directions, space, near, passes=passes),
        networks=networks,
        notes=principal.notes,
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
    check_spannable(space)
    dimension = check_int("dimension", dimension, minimum=1, maximum=2)
    state = align(reader, space)
    origin = origin_state(state, space)
    how: dict[str, Any] = {"seed": seed, "normalization": normalization}
    how["perturb_one_dimensional"] = perturb_one_dimensional
    directions = tuple(random_direction(space, state, index=index, **how) for index in range(dimension))
    if not any(values.any() for values in directions[0].values()):
        remedies = {}  # by what the tensors lack
        if not perturb_one_dimensional:
            remedies["two axes"] = "perturb_one_dimensional=True to move biases and normalization layers too"
        if normalization != "none":
            remedies["values other than zero"] = 'normalization="none" to move weights that are zero'
        raise PlaneError(
            f"the random direction is zero: no trainable tensor of the network {space.network} that may move has "
            f"{' and '.join(remedies)}. Pass {', or '.join(remedies.values())}."
        )
    how |= {"seed": int(seed), "perturb_one_dimensional": bool(perturb_one_dimensional)}
    identity = {"decomposition": "random", "origin": state.sha256(), **how, "dimension": dimension}
    # Gains of PyTorch's weight normalization: earlier versions moved them, each by exactly its size.
    unfiltered = [tensor.name for tensor in space.trainable if len(tensor.shape) > 1 and not tensor.filter_axes]
    if gains := sum(name.endswith((".original0", "_g")) for name in unfiltered):
        identity["gains"] = gains
    single = [tensor.name for tensor in space.trainable if tensor.filter_axes and tensor.filter_size == 1]
    note = f"Filters of one weight, each of which a direction moves by exactly its size: those of {some_names(single)}."
    notes = (note,) if single and normalization == "filter" else ()
    plane = Plane(space, *origin, directions, "random", normalization, identity, origin_role=role, notes=notes)
    if plane.cosine is not None and abs(plane.cosine) > _LARGE_COSINE:
        warn_user(
            f"the two random directions have a cosine of {plane.cosine:.3f}, so the plane is drawn as a parallelogram; "
            "few weights carry most of their length. Another seed or normalization gives another angle.",
        )
    return plane


def plane_of_points(weights: Mapping[str, Weights], space: WeightSpace) -> Plane:
    """Returns a plane through three networks with names, or a line through two; the first is the origin."""
    check_spannable(space)
    names = list(weights)
    networks = tuple(Network(item, name, label=name).opened(space).recognized() for name, item in weights.items())
    states = with_effective_weights([network.weights for network in networks], space)
    origin, others = states[0], states[1:]
    directions = tuple(empty_direction(space) for _ in others)
    for shard in shards_of(space):
        parts = parts_of(directions, shard)
        for block in difference_blocks(others, origin, shard):
            for part, row in zip(parts[block.piece], block.differences, strict=True):
                part[block.place] = row
    places = itertools.combinations([dict.fromkeys(directions[0], np.zeros(())), *directions], 2)
    for (one, other), (start, end) in zip(itertools.combinations(names, 2), places, strict=True):
        if not any((values != start[name]).any() for name, values in end.items()):
            raise PlaneError(
                f"{one!r} and {other!r} have the same weights, so there is no way between them; give networks that "
                "differ."
            )
    # By definition rather than by least squares, so that the corners are exactly (1, 0) and (0, 1).
    corners = np.eye(len(states), len(others), k=-1)
    parameters, buffers = origin_state(origin, space)
    ends = _end_buffers(states, space)
    note = ""
    if kept := BuffersBetween(space, buffers, ends).kept:
        note = (
            f"the buffers {some_names(kept)} differ between the networks and cannot be interpolated (masks, indices, "
            f"values that are not finite): between the networks they are those of {names[0]}."
        )
        warn_user(note)
    return Plane(
        space,
        parameters,
        buffers,
        directions,
        "points",
        "none",
        {"decomposition": "points", "points": [network.sha256 for network in networks]},
        origin_role=networks[0].role,
        projection=project(states, origin, directions, space, corners, is_exact=True),
        networks=networks,
        end_buffers=ends,
        notes=(note,) if note else (),
    )


def plane_of_eigenvectors(
    state: AlignedState,
    space: WeightSpace,
    directions: Sequence[Direction],
    curvature: AxisCurvature,
    identity: Mapping[str, Any],
    *,
    notes: Sequence[str] = (),
    role: OriginRole = UNKNOWN,
) -> Plane:
    """Returns a plane, or a line, through weights along one or two directions of length one."""
    # The identity is what they are the eigenvectors of, not their bits, which another machine computes a little unlike.
    check_spannable(space)
    how: dict[str, Any] = {"identity": {**identity}, "origin_role": role, "curvature": curvature}
    plane = Plane(space, *origin_state(state, space), tuple(directions), curvature.matrix, "none", **how)
    return replace(plane, notes=(*notes, *curvature.notes(plane.longest)))


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
        check_finite(parameters[tensor.name], state.label, tensor.name)
    return parameters, {tensor.name: state.read(tensor.name) for tensor in space.buffers}


def check_spannable(space: WeightSpace) -> None:
    if not space.dimension:
        raise PlaneError(
            f"the network {space.network} has no trainable parameter, so no plane can run through its weights; set "
            "requires_grad=True on the parameters that the plane should span."
        )
    if complex_names := [tensor.name for tensor in space.trainable if tensor.dtype.startswith("complex")]:
        raise PlaneError(
            f"the network {space.network} has complex trainable parameters {some_names(complex_names)}, which are not "
            "supported; set requires_grad=False on them to keep them as they are."
        )


def with_effective_weights(states: Sequence[StateReader], space: WeightSpace) -> tuple[StateReader, ...]:
    """Returns networks whose masks differ with weights that are multiplied by them, which are the same functions."""
    # The mean of two masks is none, and that of weights under one mask has weights that one of the networks lacks.
    differing = {
        weights: mask
        for mask, weights in pruning_masks(space).items()
        if len({state.read(mask).tobytes() for state in states}) > 1
    }
    return tuple(_Effective(state, differing) for state in states) if differing else tuple(states)


class _Effective:
    """A state in which some weights are multiplied by their masks, whose names ``masks`` has by the weights'."""

    def __init__(self, state: StateReader, masks: Mapping[str, str]) -> None:
        self._state, self._masks = state, masks
        self.label, self.shapes, self.dtypes = state.label, state.shapes, state.dtypes

    def read(self, name: str) -> NDArray[Any]:
        return self._masked(name, self._state.read)

    def read_block(self, name: str, start: int, stop: int) -> NDArray[Any]:
        return self._masked(name, lambda tensor: self._state.read_block(tensor, start, stop))

    def sha256(self) -> str:
        return self._state.sha256()

    def _masked(self, name: str, read: Callable[[str], NDArray[Any]]) -> NDArray[Any]:
        weights = read(name)
        return weights * read(self._masks[name]).astype(weights.dtype) if name in self._masks else weights
