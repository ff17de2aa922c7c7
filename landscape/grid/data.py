"""A landscape file's contents in memory; ``metrics["loss"][j, i]`` was measured at ``(x[i], y[j])``: rows are y."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from collectors.files.places import AnyPath
from collectors.shapes import Float64, UInt8

from ..record.checks import PointStatus, check_array, check_axis, check_metrics, check_status
from .checkpoints import CheckpointsData, OriginData, check_checkpoints, check_origin
from .samples import KeptLosses

LOSS_ERROR = "loss_error"
"""The estimated error of the loss, among the metrics of a landscape with interpolated points; 0 where measured."""
# Below this cosine (0.06 degrees from a right angle) a picture of 1,000 pixels would be sheared by less than one.
_RIGHT_ANGLE = 1e-3


@dataclass
class DirectionsData:
    """What remains of the d directions without their vectors.

    Attributes:
        norms: their Euclidean lengths, float64[d].
        explained_variance_ratio: float64[d], or None where the directions come from no decomposition.
        cosine: between the two directions of a plane, or None for a line.
        eigenvalues: of the matrix whose eigenvectors the directions are, float64[d], or None where they are none.
        residuals: no true eigenvalue is further away than that, float64[d], or None.
    """

    norms: Float64[np.ndarray, " d"]
    explained_variance_ratio: Float64[np.ndarray, " d"] | None = None
    cosine: float | None = None
    eigenvalues: Float64[np.ndarray, " d"] | None = None
    residuals: Float64[np.ndarray, " d"] | None = None


@dataclass(eq=False, repr=False)
class LandscapeData:
    """A loss landscape: a grid of measured points, the networks projected on it, and where all of it comes from."""

    x: Float64[np.ndarray, " nx"]  # finite and increasing, as y
    y: Float64[np.ndarray, " ny"] | None  # None for a line, whose grid arrays have the shape (nx,)
    metrics: dict[str, Float64[np.ndarray, "*grid"]]  # by name, "loss" among them; NaN while pending or failed
    status: UInt8[np.ndarray, "*grid"]  # ``PointStatus`` of each point
    directions: DirectionsData
    origin: OriginData
    checkpoints: CheckpointsData | None = None  # those of runs and networks of no run, projected onto the plane
    errors: dict[str, str] = field(default_factory=dict)  # by place: "grid/3,5" (row, column), "checkpoints/4/own"
    attributes: dict[str, Any] = field(default_factory=dict)  # JSON values; from a file, tuples come back as lists
    # The loss of each sample at every measured point, by the data set's name, the main one first, where it is kept.
    kept_samples: dict[str, KeptLosses] = field(default_factory=dict)
    path: AnyPath | None = None  # the file that it was read from

    @classmethod
    def empty(
        cls,
        x: Float64[np.ndarray, " nx"],
        y: Float64[np.ndarray, " ny"] | None,
        directions: DirectionsData,
        metric_names: Iterable[str] = ("loss",),
        checkpoints: CheckpointsData | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> LandscapeData:
        names = tuple(metric_names)
        x = np.array(x, np.float64)
        y = None if y is None else np.array(y, np.float64)
        shape = (len(x),) if y is None else (len(y), len(x))
        metrics = {name: np.full(shape, np.nan) for name in names}
        origin = OriginData(y=None if y is None else 0.0, metrics=dict.fromkeys(names, float("nan")))
        data = LandscapeData(x, y, metrics, np.zeros(shape, np.uint8), directions, origin, checkpoints)
        data.attributes |= attributes or {}
        data.validate()
        return data

    def __repr__(self) -> str:
        points = " x ".join(str(len(axis)) for axis in (self.x, self.y) if axis is not None)
        measured = int((self.status == PointStatus.MEASURED).sum())
        parts = [f"{points} points, {measured} measured", f"metrics {', '.join(self.metrics)}"]
        if self.checkpoints is not None:
            parts.append(f"{len(self.checkpoints.number)} networks projected")
        parts += [] if self.path is None else [str(self.path)]
        return f"LandscapeData({'; '.join(parts)})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of every grid array: (ny, nx), or (nx,) for a line."""
        return (len(self.x),) if self.y is None else (len(self.y), len(self.x))

    @property
    def complete(self) -> bool:
        """Whether the survey is finished and nothing is pending: grid, checkpoints, origin."""
        return (
            bool((self.attributes.get("sampling") or {}).get("finished", True))
            and self.origin.status != PointStatus.PENDING
            and not any((status == PointStatus.PENDING).any() for status in self.statuses)
        )

    @property
    def statuses(self) -> list[UInt8[np.ndarray, ...]]:
        """``PointStatus`` of every kind of measurement: the grid's, then the checkpoints'."""
        return [self.status, *(self.checkpoints.statuses if self.checkpoints is not None else [])]

    @property
    def status_counts(self) -> dict[PointStatus, int]:
        """How many grid points have each status."""
        return {status: int((self.status == status).sum()) for status in PointStatus}

    @property
    def loss(self) -> Float64[np.ndarray, "*grid"]:
        """The loss, shape (ny, nx); NaN while pending or failed, predicted where ``status`` says interpolated."""
        return self.metrics["loss"]

    @property
    def loss_range(self) -> tuple[float, float]:
        """The smallest and the largest finite loss of the grid; NaN where there is none."""
        finite = self.loss[np.isfinite(self.loss)]
        return (float(finite.min()), float(finite.max())) if len(finite) else (float("nan"), float("nan"))

    @property
    def explained_variance_ratio(self) -> Float64[np.ndarray, " d"] | None:
        """The share of the path's variance along each direction; None where there is no decomposition."""
        return self.directions.explained_variance_ratio

    @property
    def cosine(self) -> float | None:
        """The cosine between the two directions; None for a line."""
        return self.directions.cosine

    @property
    def geometry(self) -> PlaneGeometry | None:
        """Lengths and angles on a plane; None for a line, and where a file does not say them."""
        norms, cosine = self.directions.norms, self.directions.cosine
        if self.y is None or cosine is None or not abs(cosine) < 1 or len(norms) != 2:
            return None
        is_known = np.isfinite(norms).all() and (norms > 0).all()
        return PlaneGeometry(float(norms[0]), float(norms[1]), float(cosine)) if is_known else None

    def __getitem__(self, name: str) -> Float64[np.ndarray, "*grid"]:
        """Returns a metric by name, shape (ny, nx)."""
        if name not in self.metrics:
            raise KeyError(f"the landscape has no metric {name!r}; it has {sorted(self.metrics)}")
        return self.metrics[name]

    def validate(self) -> None:
        """Checks names, shapes, types and status; a ValueError names the array, what was expected and what came."""
        check_axis("x", self.x)
        if self.y is not None:
            check_axis("y", self.y)
        check_metrics("metrics", self.metrics, self.shape)
        check_status("status", self.status, self.shape)
        count = 1 if self.y is None else 2
        check_array("directions.norms", self.directions.norms, (count,), np.float64)
        for name in ("explained_variance_ratio", "eigenvalues", "residuals"):
            if (values := getattr(self.directions, name)) is not None:
                check_array(f"directions.{name}", values, (count,), np.float64)
        check_origin(self.origin, line=self.y is None)
        if self.checkpoints is not None:
            check_checkpoints(self.checkpoints, line=self.y is None)
        for samples in self.kept_samples.values():
            samples.check(self.shape)


@dataclass(frozen=True)
class PlaneGeometry:
    """The metric of a plane: point (x, y) is the origin plus x times the first direction plus y times the second.

    Orthonormal coordinates (u, v) have the same origin: u runs along the first direction, v at a right angle to it on
    the side of the second. Two points are as far apart in (u, v) as their networks are in weight space.

    Attributes:
        first: Euclidean length of the first direction, positive.
        second: of the second direction, positive.
        cosine: of the angle between them, from -1 to 1, both excluded.
    """

    first: float
    second: float
    cosine: float = 0.0

    @property
    def gram(self) -> Float64[np.ndarray, "2 2"]:
        """The directions' inner products; a step (dx, dy) has the squared length (dx, dy) gram (dx, dy)."""
        mixed = self.first * self.second * self.cosine
        return np.array([[self.first**2, mixed], [mixed, self.second**2]])

    @property
    def oblique(self) -> bool:
        """Whether the directions are so far from a right angle that a picture shows it."""
        return abs(self.cosine) >= _RIGHT_ANGLE

    @property
    def cosine_text(self) -> str:
        """The cosine in as many digits as it takes that an oblique angle is no right one."""
        return f"{self.cosine:{'z.2f' if abs(self.cosine) >= 0.005 else '.1g'}}"

    @property
    def to_distances(self) -> Float64[np.ndarray, "2 2"]:
        """The matrix that takes (x, y) to (u, v); its transpose times itself is ``gram``."""
        sine = math.sqrt(1 - self.cosine**2)
        return np.array([[self.first, self.second * self.cosine], [0.0, self.second * sine]])

    def distances(
        self, x: ArrayLike, y: ArrayLike
    ) -> tuple[Float64[np.ndarray, "*shape"], Float64[np.ndarray, "*shape"]]:
        """Returns orthonormal coordinates u and v of points of the plane; x and y may be of any shapes that fit."""
        (along, shear), (_, across) = self.to_distances
        x, y = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64))
        return np.asarray(along * x + shear * y), np.asarray(across * y)

    def coordinates(
        self, u: ArrayLike, v: ArrayLike
    ) -> tuple[Float64[np.ndarray, "*shape"], Float64[np.ndarray, "*shape"]]:
        """Returns the plane's coordinates x and y of points given by orthonormal coordinates."""
        (along, shear), (_, across) = self.to_distances
        u, v = np.broadcast_arrays(np.asarray(u, np.float64), np.asarray(v, np.float64))
        y = v / across
        return np.asarray((u - shear * y) / along), np.asarray(y)
