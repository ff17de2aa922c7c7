"""A plane or a line through weight space: its origin, directions, path and axes, and the file of its directions."""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collectors.files.places import AnyPath
from collectors.files.remote_path import RemotePath
from collectors.networks.weight_space import WeightSpace, direction_dtype, interpolated_buffers, move_along
from collectors.validation import check_choice, check_float, check_int, wrong_value
from collectors.weights.safetensors_file import StateReader, write_checkpoint
from workers.evaluator import BUFFER_POLICIES

from ..errors import LandscapeWriteError
from ..roles import NOBODY, UNKNOWN, Members, OriginRole
from .directions import Direction, cosine, norm
from .projection import Projection, check_independent

if TYPE_CHECKING:
    from jaxtyping import Float64

Axes: TypeAlias = "tuple[Float64[np.ndarray, ' nx'], Float64[np.ndarray, ' ny'] | None]"
"""The coordinates of a grid: x of the shape (nx,) and y of the shape (ny,), or None for a line."""

DECOMPOSITIONS = ("pca", "random", "points", "custom")


@dataclass(frozen=True, eq=False)
class Plane:
    """The points ``origin + x * directions[0] + y * directions[1]``, or a line when there is one direction.

    Attributes:
        space: the network.
        origin: every parameter by name, frozen ones included, in its own element type.
        buffers: every buffer of the origin by name.
        end_buffers: on a line or a plane through given networks, for each direction: of the network at 1 along it, by
            name, the buffers that can be interpolated (floating-point ones, finite in all of these networks and not the
            same in all). Empty where there is none, and on all other planes.
        directions: one or two; name to array for each trainable parameter, float32 (float64 for float64 parameters).
        decomposition: "pca", "random", "points" or "custom".
        normalization: how the directions were scaled: "filter", "layer", "weight" or "none".
        identity: what origin and directions were made from, in values that ``json`` can write.
        explained_variance_ratio: shape (dimension,); for "pca".
        notes: what a reader of the plane's landscapes must know.
        origin_role: which network the origin is.
        projection: where ``checkpoints`` lie; None where there are none.
        checkpoints: of runs, or networks that belong to no run.
        members: who the checkpoints are.

    Raises:
        ValueError: a tensor is missing, unknown, or has the wrong shape or element type.
        PlaneError: a direction is zero, or the two are parallel.
    """

    space: WeightSpace
    origin: Mapping[str, NDArray[Any]]
    buffers: Mapping[str, NDArray[Any]]
    directions: tuple[Direction, ...]
    decomposition: str
    normalization: str
    identity: dict[str, Any]
    explained_variance_ratio: Float64[np.ndarray, " dimension"] | None = None
    origin_role: OriginRole = UNKNOWN
    projection: Projection | None = None
    checkpoints: tuple[StateReader, ...] = field(default=(), repr=False)
    end_buffers: tuple[Mapping[str, NDArray[Any]], ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    members: Members = NOBODY

    def __post_init__(self) -> None:
        check_choice("decomposition", self.decomposition, DECOMPOSITIONS)
        if len(self.directions) not in (1, 2):
            raise wrong_value("directions", "a tuple of one direction (a line) or two (a plane)", len(self.directions))
        own = {tensor.name: (tensor.shape, tensor.dtype) for tensor in self.space.tensors}
        spanned = {tensor.name: (tensor.shape, direction_dtype(tensor.dtype).name) for tensor in self.space.trainable}
        _check_arrays("origin", self.origin, {tensor.name: own[tensor.name] for tensor in self.space.parameters})
        _check_arrays("buffers", self.buffers, {tensor.name: own[tensor.name] for tensor in self.space.buffers})
        for index, direction in enumerate(self.directions):
            _check_arrays(f"directions[{index}]", direction, spanned)
        check_independent(self.norms, self.cosine)
        if len(self.members.number) != len(self.checkpoints):
            raise wrong_value("members", f"one for each of the {len(self.checkpoints)} checkpoints", self.members)

    @property
    def dimension(self) -> int:
        """1 for a line, 2 for a plane."""
        return len(self.directions)

    @cached_property
    def norms(self) -> Float64[np.ndarray, " dimension"]:
        """The directions' Euclidean norms."""
        return np.array([norm(direction, self.space) for direction in self.directions])

    @cached_property
    def cosine(self) -> float | None:
        """The cosine between the two directions, or None for a line."""
        return cosine(self.directions[0], self.directions[1], self.space) if self.dimension == 2 else None

    def axes(self, size: int | tuple[int, int], margin: float = 0.2) -> Axes:
        """Returns the coordinates to measure at.

        They span the checkpoints' range and ``margin`` times that range on each side, or [-1, 1] (exactly
        symmetric, with 0 in the middle of an odd size) for random and custom directions. Where the checkpoints
        have no range along an axis, that axis gets the length in weight space of the other one, or a tenth of
        the origin's norm each side if neither has a range, and a warning.

        Args:
            size: points along each axis, or (points along x, points along y); at least 3.
            margin: a share of the checkpoints' range.

        Returns:
            x with shape (nx,) and y with shape (ny,), strictly increasing; y is None for a line.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a value that is not allowed.
        """
        sizes = self._sizes(size)
        margin = check_float("margin", margin, minimum=0.0)
        path = self.projection
        if path is None or self.decomposition in ("random", "custom"):
            axes = [_symmetric_axis(count) for count in sizes]
        else:
            coordinates = [path.x] if path.y is None else [path.x, path.y]
            axes = self._axes_around(coordinates, sizes, margin)
        return axes[0], axes[1] if self.dimension == 2 else None

    def point(self, coordinates: Sequence[float], buffers: str = "auto") -> dict[str, NDArray[Any]]:
        """Returns the network's state at a point of the plane: all parameters and buffers.

        Args:
            coordinates: (x, y), or (x,) on a line.
            buffers: "fixed" (the origin's), "interpolate" (between the networks that the plane goes through) or "auto",
                which is that of the two with which ``evaluate`` measures by default.

        Raises:
            TypeError: a coordinate is no number.
            ValueError: there is not one coordinate for each direction, or the policy does not suit the plane.
        """
        if len(coordinates) != self.dimension:
            raise wrong_value("coordinates", f"{self.dimension} numbers, one for each direction", list(coordinates))
        values = [check_float(f"coordinates[{index}]", value) for index, value in enumerate(coordinates)]
        state = {name: np.array(array) for name, array in (*self.origin.items(), *self.buffers.items())}
        state |= move_along(self.space, self.origin, self.directions, values)
        policy = buffer_policy(buffers, self.decomposition, self.end_buffers)
        if policy == "recalibrate":
            raise wrong_value("buffers", '"auto", "fixed" or "interpolate": a plane has no samples', buffers)
        return state | (self.buffers_at(values) if policy == "interpolate" else {})

    def buffers_at(self, coordinates: Sequence[float]) -> dict[str, NDArray[Any]]:
        """Returns every buffer at a point, interpolated where that is possible; see ``inside_corners`` for the shares.

        Args:
            coordinates: (x, y), or (x,) on a line.
        """
        return {**self.buffers, **interpolated_buffers(self.space, self.buffers, self.end_buffers, coordinates)}

    def _sizes(self, size: int | tuple[int, int]) -> list[int]:
        if isinstance(size, tuple | list):
            if len(size) != self.dimension:
                raise wrong_value("size", f"an int, or {self.dimension} ints, one for each direction", size)
            return [check_int(f"size[{index}]", count, minimum=3) for index, count in enumerate(size)]
        return [check_int("size", size, minimum=3)] * self.dimension

    def _axes_around(
        self, coordinates: Sequence[Float64[np.ndarray, " n"]], sizes: Sequence[int], margin: float
    ) -> list[Float64[np.ndarray, " size"]]:
        axes = [_axis(values, count, margin) for values, count in zip(coordinates, sizes, strict=True)]
        lengths = [
            (axis[-1] - axis[0]) * length for axis, length in zip(axes, self.norms, strict=True) if axis is not None
        ]
        result = []
        for index, (axis, values, count) in enumerate(zip(axes, coordinates, sizes, strict=True)):
            if axis is not None:
                result.append(axis)
                continue
            width = max(lengths, default=self._default_length()) / self.norms[index]
            result.append(np.linspace(values[0] - width / 2, values[0] + width / 2, count))
            warnings.warn(
                f"the checkpoints have no range along {'xy'[index]}; that axis was given the width {width:.4g}.",
                UserWarning,
                stacklevel=3,
            )
        return result

    def _default_length(self) -> float:
        squares = [float(np.sum(np.square(self.origin[t.name].astype(np.float64)))) for t in self.space.trainable]
        return 0.2 * math.sqrt(math.fsum(squares)) or 2.0


def buffer_policy(buffers: str, decomposition: str, end_buffers: Sequence[object] = ()) -> str:
    """Returns how buffers are treated on a plane: "auto" becomes "interpolate" or "fixed".

    It is "interpolate" where networks with buffers of their own are given, because the line or the plane then meets
    their own losses, which that of fixed buffers misses.

    Args:
        buffers: what the user asks for.
        decomposition: the plane's.
        end_buffers: the plane's.

    Raises:
        ValueError: ``buffers`` is unknown, or "interpolate" where there is nothing to interpolate between.
    """
    check_choice("buffers", buffers, ("auto", *BUFFER_POLICIES))
    if buffers == "interpolate" and decomposition != "points":
        raise ValueError(
            'buffers="interpolate" needs a line or a plane through given networks (line_between, plane_through); on a '
            f'{decomposition} plane, interpolated variances would become negative. Use buffers="fixed" (the origin\'s '
            'buffers everywhere) or "recalibrate".'
        )
    if buffers == "auto":
        return "interpolate" if end_buffers else "fixed"
    return buffers


def directions_path(landscape_path: AnyPath) -> AnyPath:
    """Returns where the vectors of a landscape lie: ``<stem>_directions.safetensors``."""
    return landscape_path.parent / f"{landscape_path.stem}_directions.safetensors"


def write_directions(landscape_path: AnyPath, plane: Plane) -> None:
    """Writes the directions as ``direction_<axis>/<parameter>``, once; the origin is the checkpoint of the identity.

    Raises:
        LandscapeWriteError: they cannot be written.
    """
    path = directions_path(landscape_path)
    tensors = {
        f"direction_{axis}/{name}": array
        for axis, direction in enumerate(plane.directions)
        for name, array in direction.items()
    }
    metadata = {
        "decomposition": plane.decomposition,
        "normalization": plane.normalization,
        # All of them in the network's order, which the file's tensors do not have.
        "parameters": json.dumps([[tensor.name, list(tensor.shape)] for tensor in plane.space.parameters]),
    }
    try:
        if isinstance(path, RemotePath):
            with tempfile.TemporaryDirectory() as folder:
                write_checkpoint(Path(folder) / path.name, tensors, metadata)
                path.upload(Path(folder) / path.name)
        else:
            write_checkpoint(path, tensors, metadata)
    except OSError as error:
        raise LandscapeWriteError(
            f"the directions cannot be written to {path}: {error}. Free some space, then run again with "
            "save_directions=True."
        ) from error


def _axis(values: Float64[np.ndarray, " n"], count: int, margin: float) -> Float64[np.ndarray, " size"] | None:
    low, high = float(values.min()), float(values.max())
    width = high - low
    axis = np.linspace(low - margin * width, high + margin * width, count)
    return axis if np.all(np.diff(axis) > 0) else None


def _symmetric_axis(count: int) -> Float64[np.ndarray, " size"]:
    axis = np.linspace(-1.0, 1.0, count)
    return (axis - axis[::-1]) / 2


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
