"""A plane or a line through weight space: its origin, directions, axes, and who is on it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collectors.files.places import AnyPath, check_directory
from collectors.networks.buffers_between import BuffersBetween, has_statistics
from collectors.networks.weight_space import WeightSpace, move_along
from collectors.run_directory.directory import RunDirectory
from collectors.shapes import Float64
from collectors.validation import check_choice, check_float, check_instance, wrong_value
from collectors.weights.aligned import Weights
from collectors.weights.safetensors_file import MemoryState, StateReader
from workers.measurement_options import BUFFER_POLICIES

from ..roles import UNKNOWN, OriginRole, check_name
from .axis_curvature import AxisCurvature
from .directions import Direction, check_arrays_of, inner_product, norm
from .extent import MARGIN, axes_around, axis_reaching, check_extent, check_sizes, ends_holding, spans, symmetric_axis
from .networks import Network, find_named, find_networks, joined, networks_text
from .plane_file import read_plane, write_plane
from .projection import ProjectedCheckpoints, Projection, check_independent, project
from .side_file import place_to_save

Axes: TypeAlias = "tuple[Float64[np.ndarray, ' nx'], Float64[np.ndarray, ' ny'] | None]"
"""The coordinates of a grid: x of the shape (nx,) and y of the shape (ny,), or None for a line."""

DECOMPOSITIONS = ("pca", "random", "points", "custom", "hessian", "ggn", "factors", "path")


@dataclass(frozen=True, eq=False, repr=False)
class Plane:
    """The points ``origin + x * directions[0] + y * directions[1]``, or a line when there is one direction.

    Attributes:
        space: the network.
        origin: every parameter by name, frozen ones included, in its own element type.
        buffers: every buffer of the origin by name.
        end_buffers: on a line or a plane through given networks, for each direction: of the network at 1 along it, by
            name, the buffers that are not the same in all of these networks. Empty where there is none, and on all
            other planes.
        directions: one or two; name to array for each trainable parameter, float32 (float64 for float64 parameters).
        decomposition: "pca", "random", "points", "custom", or the matrix whose eigenvectors the directions are:
            "hessian", "ggn", or "factors" (of a second-order optimizer, by earlier versions).
        normalization: how the directions were scaled: "filter", "layer", "weight" or "none".
        identity: what origin and directions were made from, in values that ``json`` can write.
        explained_variance_ratio: shape (dimension,); for "pca".
        notes: what a reader of the plane's landscapes must know.
        origin_role: which network the origin is.
        projection: where ``networks`` lie; None where there are none.
        networks: checkpoints of runs, and networks that belong to no run.
        curvature: how the loss bends along the directions, for "hessian" and "ggn"; for "factors" what the optimizer
            sees.

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
    networks: tuple[Network, ...] = field(default=(), repr=False)
    end_buffers: tuple[Mapping[str, NDArray[Any]], ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    curvature: AxisCurvature | None = None

    def __post_init__(self) -> None:
        check_choice("decomposition", self.decomposition, DECOMPOSITIONS)
        if len(self.directions) not in (1, 2):
            raise wrong_value("directions", "a tuple of one direction (a line) or two (a plane)", len(self.directions))
        check_arrays_of(self)
        check_independent(self.norms, self.cosine)

    def __repr__(self) -> str:
        kind = f"{self.decomposition} {'line' if self.dimension == 1 else 'plane'}"
        parts = [
            f"{kind} of {self.space.network} ({self.space.dimension} weights)",
            f"normalization {self.normalization}",
            f"norms {', '.join(f'{length:.4g}' for length in self.norms)}",
        ]
        if self.cosine is not None:
            parts.append(f"cosine {self.cosine:.2g}")
        if self.explained_variance_ratio is not None:
            shares = ", ".join(f"{share:.4f}" for share in self.explained_variance_ratio)
            parts.append(f"explained variance {shares}")
        if self.curvature is not None:
            parts.append(f"eigenvalues {', '.join(f'{value:.4g}' for value in self.curvature.eigenvalues)}")
        return f"Plane({'; '.join([*parts, *([networks_text(self.networks)] if self.networks else [])])})"

    @property
    def dimension(self) -> int:
        """1 for a line, 2 for a plane."""
        return len(self.directions)

    @property
    def checkpoints(self) -> tuple[StateReader, ...]:
        """The weights of the networks."""
        return tuple(network.weights for network in self.networks)

    @cached_property
    def norms(self) -> Float64[np.ndarray, " dimension"]:
        """The directions' Euclidean norms."""
        return np.array([norm(direction, self.space) for direction in self.directions])

    @cached_property
    def cosine(self) -> float | None:
        """The cosine between the two directions, NaN where one of them is zero, or None for a line."""
        if self.dimension == 1:
            return None
        first, second = self.directions
        length = float(self.norms.prod())
        return inner_product(first, second, self.space) / length if length else math.nan

    def project(
        self,
        checkpoints: Sequence[Weights] | RunDirectory | Mapping[str, Sequence[Weights] | RunDirectory],
        *,
        numbers: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    ) -> ProjectedCheckpoints:
        """Returns where any checkpoints lie, by least squares on all directions; measures nothing.

        Own and projected losses come with ``with_checkpoints`` and ``evaluate``.

        Args:
            checkpoints: a list of n weights, a ``RunDirectory``, or a dict from runs' names to either.
            numbers: one for each checkpoint; 0, 1, 2, ... by default, or those of the ``RunDirectory``, of which it
                then chooses. For a dict of runs, a dict with the same names.

        Returns:
            Coordinates of the shape (n, dimension), distances to the plane and to the origin, numbers and runs.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a value that is not allowed.
            CheckpointError: a checkpoint does not fit the network or is not finite.
        """
        networks = [network.opened(self.space) for network in find_networks(checkpoints, numbers)]
        projection = self._projected(networks)
        return ProjectedCheckpoints(
            coordinates=np.stack(projection.coordinates, axis=1),
            residuals=projection.residual,
            norms=projection.norm,
            numbers=np.array([network.number for network in networks], np.int64),
            runs=tuple(str(network.run) for network in networks),
        )

    def with_checkpoints(
        self,
        runs: Mapping[str, Sequence[Weights] | RunDirectory] | None = None,
        networks: Mapping[str, Weights] | None = None,
        *,
        numbers: Mapping[str, Sequence[int]] | None = None,
        name: str | None = None,
    ) -> Plane:
        """Returns this plane with further runs and networks on it, which are measured and drawn with it.

        Origin and directions stay what they are, and so does the identity: a landscape file of this plane is continued,
        and what it holds is measured no second time.

        Args:
            runs: name to the checkpoints in the order of training, or to a ``RunDirectory``; each is drawn as a path.
                If these are the checkpoints that the plane's own run has, that run only gets the name.
            networks: name to weights that belong to no path, such as averages or other seeds' final weights; each is
                drawn as a mark.
            numbers: of runs' checkpoints, by the run's name; 0, 1, 2, ... by default, or those of the ``RunDirectory``.
            name: what the plane's own run is called, where it has no name; the name of its folder by default, or "run".

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: nothing is given, or a name is wrong or taken.
            CheckpointError: a checkpoint does not fit the network or is not finite.
        """
        added: list[Network] = []
        if runs is not None and runs != {}:
            expected = "a dict from the runs' names to lists of checkpoints or RunDirectories"
            for name_of_run in check_instance("runs", runs, Mapping, expected):
                check_name("a key of runs", name_of_run)
            added += find_networks(runs, numbers, "runs")
        if networks is not None:
            added += find_named(networks, "networks")
        if not added:
            raise ValueError(
                "with_checkpoints needs runs or networks, such as runs={'adam': RunDirectory('run_adam')} or "
                "networks={'EMA': ema.state_dict()}."
            )
        return self.with_networks(added, name)

    def with_networks(self, added: Sequence[Network], name: str | None = None) -> Plane:
        """Returns this plane with further networks on it, such as those of another plane; see ``with_checkpoints``."""
        present, new = joined(self.networks, [network.opened(self.space).recognized() for network in added], name)
        projection = self._projected(new) if new else None
        if self.projection is not None:
            projection = self.projection if projection is None else self.projection.followed_by(projection)
        role = self.origin_role
        for before, now in zip(self.networks, present, strict=True):
            # A run that keeps its name keeps the numbers that its origin has, too.
            if (before.run, before.number) == (self.origin_role.run, self.origin_role.number) and now.run != before.run:
                role = replace(role, run=str(now.run), number=now.number)
        return replace(self, networks=(*present, *new), projection=projection, origin_role=role)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> AnyPath:
        """Writes the plane as a safetensors file, which ``load`` reads, and returns its path.

        It holds origin, buffers, directions, the identity, and who is on the plane: names, coordinates, and where their
        files lie, but not their weights. A landscape file of the plane is continued with the loaded one.

        Args:
            path: of the file, or its fsspec URL.
            overwrite: whether a file of that name is replaced.

        Raises:
            LandscapeWriteError: a file is there and ``overwrite`` is false, or it cannot be written.
            NotADirectoryError: the file's directory does not exist.
        """
        check_searched(self)
        target = place_to_save(path, overwrite=overwrite)
        write_plane(target, self)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a plane that ``save`` wrote, or ``save_directions=True`` beside a landscape.

        Args:
            path: of the file, or its fsspec URL.

        Raises:
            CheckpointError: there is no such file, or it is damaged.
            PlaneError: it holds no plane, or directions without their origin.
        """
        return read_plane(check_directory("path", path), cls)

    def axes(
        self, size: int | tuple[int, int], margin: float | None = None, limits: Sequence[float] | None = None
    ) -> Axes:
        """Returns the coordinates to measure at.

        They span the range of the checkpoints that the plane goes through and ``margin`` times that range on each side,
        or [-1, 1] (exactly symmetric, with 0 in the middle of an odd size) for random and custom directions. Along an
        eigenvector they reach as far as the loss, if it were a parabola, rises by the plane's ``rise``. Where
        runs or networks that were added lie outside, the axes go on with the same step until they hold everybody, so
        that no point of the plane's own grid is lost; if that takes more than four times as many points, ``size``
        points are spread over the whole. Where the checkpoints have no range along an axis, that axis gets the length
        in weight space of the other one, or a tenth of the origin's norm each side if neither has a range, and a
        warning.

        Args:
            size: points along each axis, or (points along x, points along y); at least 3.
            margin: on each side, a share of the checkpoints' range, or of [-1, 1]; by default 0.2 or none.
            limits: instead of all this, the lowest and the highest coordinate of all axes, or (x0, x1, y0, y1).

        Returns:
            x with shape (nx,) and y with shape (ny,), strictly increasing; y is None for a line.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a value that is not allowed.
        """
        sizes = check_sizes(size, self.dimension)
        ends, margin = check_extent(limits, margin)
        if ends is not None:
            axes = [np.linspace(*span, count) for span, count in zip(spans(ends, self.dimension), sizes, strict=True)]
        else:
            axes = [axis_reaching(axis, *span) for axis, span in self._own_axes_and_ends(sizes, margin)]
        return axes[0], axes[1] if self.dimension == 2 else None

    def ends(self, margin: float | None) -> list[tuple[float, float]]:
        """Returns how far each axis has to reach; those of ``axes`` go on to the end of a step."""
        return [span for _, span in self._own_axes_and_ends([3] * self.dimension, margin)]

    def _own_axes_and_ends(
        self, sizes: Sequence[int], margin: float | None
    ) -> list[tuple[NDArray[np.float64], tuple[float, float]]]:
        """Returns the plane's own axes, each with the ends of one that holds the networks that were added, too."""
        share = MARGIN if margin is None else margin
        # The coordinates of the networks that the plane goes through come first, then those of all others.
        count = len(self.identity.get("checkpoints") or self.identity.get("points") or ())
        coordinates = [] if self.projection is None else self.projection.coordinates
        if count and coordinates:
            axes = axes_around([values[:count] for values in coordinates], sizes, share, self.norms, self.longest)
        else:
            ends_at = [1.0] * self.dimension if self.curvature is None else self.curvature.half_widths(self.longest)
            wider = 1 + 2 * (margin or 0.0)
            axes = [symmetric_axis(count, end * wider) for count, end in zip(sizes, ends_at, strict=True)]
        added = [values[count:] for values in coordinates] or [np.empty(0)] * self.dimension
        return [(axis, ends_holding(axis, values, share)) for axis, values in zip(axes, added, strict=True)]

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
        policy = buffer_policy(buffers, self.decomposition, self.end_buffers)
        if policy == "recalibrate":
            raise wrong_value("buffers", '"auto", "fixed" or "interpolate": a plane has no samples', buffers)
        state = {**self.origin, **(self.known_buffers(values, policy) or {})}
        moved = move_along(self.space, self.origin, self.directions, values)
        return {name: np.array(array) for name, array in state.items()} | moved

    def known_buffers(self, coordinates: Sequence[float], policy: str) -> dict[str, NDArray[Any]] | None:
        """Returns every buffer at a point by "fixed", "interpolate" or "recalibrate"; None where samples tell them."""
        if policy == "fixed":
            return dict(self.buffers)
        if policy == "recalibrate" and self.between.network_at(coordinates) is None:
            return None
        return {**self.buffers, **self.between.at(coordinates)}

    @cached_property
    def between(self) -> BuffersBetween:
        """The buffers at the networks that the plane goes through, and between them."""
        return BuffersBetween(self.space, self.buffers, self.end_buffers)

    def _projected(self, networks: Sequence[Network]) -> Projection:
        origin = MemoryState(self.origin, "the plane's origin")
        return project([network.weights for network in networks], origin, self.directions, self.space)

    @property
    def longest(self) -> float:
        """How far an axis along an eigenvector may reach: the length of the trainable weights."""
        squares = [float(np.sum(np.square(self.origin[t.name].astype(np.float64)))) for t in self.space.trainable]
        return math.sqrt(math.fsum(squares)) or 10.0


def check_searched(plane: Plane) -> None:
    if plane.curvature is not None and not plane.curvature.is_known:
        raise ValueError(
            "plane must be along eigenvectors that were searched, but this one comes from a dry run, with any vectors "
            "in their place. Call hessian_plane without dry_run."
        )


def buffer_policy(buffers: str, decomposition: str, end_buffers: Sequence[Iterable[str]] = ()) -> str:
    """Returns how buffers are treated on a plane: as the user asks, or for "auto" as suits the plane."""
    # "auto" is not "fixed" where networks with buffers of their own are given, because the line or the plane then meets
    # their own losses. Along a curve statistics of normalization are recalibrated, as they were where it was fitted.
    check_choice("buffers", buffers, ("auto", *BUFFER_POLICIES))
    if buffers == "interpolate" and decomposition not in ("points", "path"):
        raise ValueError(
            'buffers="interpolate" needs a line, a plane or a curve through given networks; on a '
            f'{decomposition} plane, interpolated variances would become negative. Use buffers="fixed" (the origin\'s '
            'buffers everywhere) or "recalibrate".'
        )
    if buffers != "auto":
        return buffers
    if not end_buffers:
        return "fixed"
    return "recalibrate" if decomposition == "path" and has_statistics(end_buffers[0]) else "interpolate"
