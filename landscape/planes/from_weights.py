"""Planes and lines through weights in any form: networks, state dicts, StateReaders, paths and URLs of checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collectors.networks.readers import describe_network, is_network, without_average
from collectors.networks.weight_space import WeightSpace, canonical_name, direction_dtype, state_sha256
from collectors.run_directory.directory import RunDirectory
from collectors.validation import check_choice, check_instance, wrong_type, wrong_value
from collectors.weights.aligned import Weights, align, as_array, as_reader

from ..roles import check_name, named_origin
from .directions import NORMALIZATIONS, Direction, normalize
from .from_checkpoints import check_spannable, origin_state, plane_of_points, plane_of_runs, random_plane_of
from .networks import find_networks
from .plane import Plane


def random_plane(
    origin: Weights,
    *,
    network: object = None,
    seed: int = 0,
    normalization: str = "filter",
    perturb_one_dimensional: bool = False,
    name: str | None = None,
) -> Plane:
    """Returns a plane in two random directions through a set of weights.

    Args:
        origin: the weights.
        network: the network, or its ``WeightSpace``; needed unless ``origin`` is a network.
        seed: non-negative; the same seed gives the same bits.
        normalization: "filter", "layer", "weight" or "none".
        perturb_one_dimensional: also moves biases and the parameters of normalization layers.
        name: what pictures call the network, such as "SGD"; None calls it the origin.

    Raises:
        TypeError: an argument has the wrong type, or nothing describes the network.
        ValueError: an argument has a value that is not allowed.
        CheckpointError: the weights do not fit the network or are not finite.
        PlaneError: the network has nothing to move.

    Source: Li, Xu, Taylor, Studer, Goldstein 2018.
    """
    how = {"seed": seed, "normalization": normalization, "perturb_one_dimensional": perturb_one_dimensional}
    return _random(origin, network, name, 2, **how)


def random_line(
    origin: Weights,
    *,
    network: object = None,
    seed: int = 0,
    normalization: str = "filter",
    perturb_one_dimensional: bool = False,
    name: str | None = None,
) -> Plane:
    """Returns a line in a random direction through a set of weights; see ``random_plane``."""
    how = {"seed": seed, "normalization": normalization, "perturb_one_dimensional": perturb_one_dimensional}
    return _random(origin, network, name, 1, **how)


def pca_plane(
    checkpoints: Sequence[Weights] | RunDirectory | Mapping[str, Sequence[Weights] | RunDirectory],
    *,
    network: object = None,
    numbers: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    centering: str = "none",
) -> Plane:
    """Returns a plane through a run's last checkpoint, in the two principal directions of all checkpoints.

    Args:
        checkpoints: at least 3. A list in the order of training is one run, and so is a ``RunDirectory``. A dict from
            a name to either is several runs, each with a path of its own, and the plane runs through the last
            checkpoint of the first one. Files of several folders are several runs, named like the folders; folders
            such as ``checkpoint-500`` belong to the run above them. A list of ``RunDirectory`` is several runs too.
        network: the network, or its ``WeightSpace``; needed unless a checkpoint is a network.
        numbers: one for each checkpoint; 0, 1, 2, ... by default, or those of the ``RunDirectory``, of which it then
            chooses. For a dict of runs, a dict with the same names.
        centering: "none" or "mean", see ``principal_directions``.

    Raises:
        TypeError: an argument has the wrong type, or nothing describes the network.
        ValueError: an argument has a value that is not allowed.
        CheckpointError: a checkpoint does not fit the network or is not finite.
        DegenerateTrajectoryError: the checkpoints do not span a plane.
    """
    networks = find_networks(checkpoints, numbers, needed=False)
    space = network_space(network, *(item.weights for item in networks))
    return plane_of_runs(networks, space, centering=centering)


def plane_through(
    a: Weights | Mapping[str, Weights],
    b: Weights | None = None,
    c: Weights | None = None,
    *,
    network: object = None,
    names: Sequence[str] | None = None,
) -> Plane:
    """Returns the plane through three networks, which get the coordinates (0, 0), (1, 0) and (0, 1).

    Args:
        a: the weights of the origin; or, alone, a dict from three names to weights.
        b: weights.
        c: weights.
        network: the network, or its ``WeightSpace``; needed unless one of the three is a network.
        names: what pictures call the three; by default the names of files, or "a", "b" and "c".

    Raises:
        TypeError: an argument has the wrong type, or nothing describes the network.
        ValueError: there are not three weights, or names are wrong.
        CheckpointError: weights do not fit the network or are not finite.
        PlaneError: the three lie on a line or repeat each other.

    Source: Garipov, Izmailov, Podoprikhin, Vetrov, Wilson 2018 (the plane, here without orthogonalization).
    """
    return _through({"a": a, "b": b, "c": c}, names, network)


def line_between(
    a: Weights | Mapping[str, Weights],
    b: Weights | None = None,
    *,
    network: object = None,
    names: Sequence[str] | None = None,
) -> Plane:
    """Returns the line through two networks, which get the coordinates 0 and 1; see ``plane_through``.

    Source: Goodfellow, Vinyals, Saxe 2015.
    """
    return _through({"a": a, "b": b}, names, network)


def custom_plane(
    origin: Weights,
    directions: Sequence[Mapping[str, Any]],
    *,
    network: object = None,
    normalization: str = "none",
    name: str | None = None,
) -> Plane:
    """Returns a plane, or a line, in directions of your own, such as eigenvectors of the Hessian.

    Args:
        origin: the weights.
        directions: one or two; name to tensor or array for every trainable parameter.
        network: the network, or its ``WeightSpace``; needed unless ``origin`` is a network.
        normalization: "filter", "layer", "weight" or "none"; biases are scaled like a filter, never set to zero.
        name: what pictures call the network, such as "SGD"; None calls it the origin.

    Raises:
        TypeError: an argument has the wrong type, or nothing describes the network.
        ValueError: the normalization is unknown, or a direction does not fit the trainable parameters.
        CheckpointError: the weights do not fit the network or are not finite.
        PlaneError: a direction is zero, or the two are parallel.
    """
    check_choice("normalization", normalization, NORMALIZATIONS)
    if isinstance(directions, Mapping):
        raise wrong_type("directions", "a list of one or two directions", directions)
    directions = _check_sequence("directions", directions)
    if len(directions) not in (1, 2):
        raise wrong_value("directions", "a list of one direction (a line) or two (a plane)", len(directions))
    space = network_space(network, origin)
    reader = align(as_reader("origin", origin), space)
    state = origin_state(reader, space)
    given = [_custom_direction(f"directions[{index}]", item, space) for index, item in enumerate(directions)]
    identity = {
        "decomposition": "custom",
        "origin": reader.sha256(),
        "directions": [state_sha256(direction) for direction in given],
        "normalization": normalization,
    }
    scaled = tuple(normalize(direction.__getitem__, reader, space, normalization, True) for direction in given)
    return Plane(space, *state, scaled, "custom", normalization, identity, origin_role=named_origin(name))


def network_space(network: object, *weights: Weights) -> WeightSpace:
    """Returns the description of ``network``, else of the first state that is one; a TypeError where none is."""
    if network is None:
        network = next((item for item in weights if is_network(item)), None)
    if network is None:
        raise TypeError(
            "network is missing: files and state dicts do not say which tensors are trainable or tied; pass "
            "network=<the network> (or its WeightSpace, from collectors.networks.readers.describe_network)."
        )
    space = network if isinstance(network, WeightSpace) else describe_network(without_average(network))
    check_spannable(space)
    return space


def _random(origin: Weights, network: object, name: str | None, dimension: int, **how: Any) -> Plane:
    space, role = network_space(network, origin), named_origin(name)
    return random_plane_of(as_reader("origin", origin), space, dimension=dimension, role=role, **how)


def _through(weights: Mapping[str, Weights | None], names: Sequence[str] | None, network: object) -> Plane:
    first, *others = weights.values()
    if all(item is None for item in others):
        if not isinstance(first, Mapping) or len(first) != len(weights):
            rest = " and ".join(list(weights)[1:])
            raise wrong_type("a", f"a dict from {len(weights)} names to weights where {rest} are left out", first)
        if names is not None:
            raise ValueError("names must be left out where a is a dict, whose keys are the names.")
        named = {check_name("a key of a", name): item for name, item in first.items()}
    elif missing := [label for label, item in weights.items() if item is None]:
        raise TypeError(f"{missing[0]} must be weights, but got None.")
    else:
        stems = [Path(item).stem for item in weights.values() if isinstance(item, str | os.PathLike)]
        usable = len(set(stems)) == len(weights) and all(stem.isprintable() and len(stem) <= 40 for stem in stems)
        labels = stems if usable else list(weights)
        if names is not None:
            labels = [check_name(f"names[{index}]", name) for index, name in enumerate(_check_sequence("names", names))]
            if len(labels) != len(weights) or len(set(labels)) != len(weights):
                raise wrong_value("names", f"a list of {len(weights)} different names", labels)
        named = dict(zip(labels, weights.values(), strict=True))
    space = network_space(network, *named.values())
    return plane_of_points(named, space)


def _custom_direction(label: str, direction: Mapping[str, Any], space: WeightSpace) -> Direction:
    check_instance(label, direction, Mapping, "a mapping from name to tensor or array")
    names = {alias: tensor for tensor in space.trainable for alias in (tensor.name, *tensor.aliases)}
    result: Direction = {}
    problems = []
    for name, value in direction.items():
        array = as_array(f"{label}[{name!r}]", value)
        if array.dtype.kind == "c":
            raise wrong_type(f"{label}[{name!r}]", "real (directions cannot be complex)", array)
        tensor = names.get(canonical_name(name))
        if tensor is None:
            problems.append(f"{name} is no trainable parameter")
        elif array.shape != tensor.shape:
            problems.append(f"{name} has the shape {array.shape}, the parameter {tensor.shape}")
        else:
            result[tensor.name] = np.array(array, direction_dtype(tensor.dtype), order="C")
    problems += [f"{tensor.name} is missing" for tensor in space.trainable if tensor.name not in result]
    if problems:
        raise ValueError(
            f"{label} does not fit the trainable parameters of {space.network}: {'; '.join(problems[:20])}. Give one "
            "array of the parameter's shape for each of them (zeros where it must not move)."
        )
    return result


def _check_sequence(name: str, value: Any) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise wrong_type(name, "a list", value)
    return list(value)
