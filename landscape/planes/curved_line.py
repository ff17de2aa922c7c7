"""A curve through weight space as what is measured: a line that bends, with one coordinate from 0 to 1."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import move_along
from collectors.shapes import Float64
from collectors.validation import wrong_value
from workers.curves.curve import CurveShape

from ..errors import PlaneError
from .directions import check_arrays_of
from .extent import check_sizes
from .networks import Network
from .plane import Axes, Plane

_STEPS = 1000  # of a curve, as its length is measured


def check_on_curve(name: str, plane: Plane, places: NDArray[Any] | Sequence[Any]) -> None:
    """Raises where coordinates lie beyond the ends of a curve; other planes go on for ever."""
    if isinstance(plane, CurvedLine) and not all(0 <= place <= 1 for place in np.ravel(places)):
        raise wrong_value(name, "from 0 to 1, between which a curve goes", np.ravel(places).tolist())


@dataclass(frozen=True, eq=False, repr=False)
class CurvedLine(Plane):
    """The points ``origin + sum of c_j(t) * directions[j]``: a curve that begins at the origin."""

    shape: CurveShape = field(default_factory=CurveShape)  # the shares c_j; directions for all control points but one
    fitting: Mapping[str, Any] = field(default_factory=dict)  # named as in ``FittingSettings``; empty if unknown

    def __post_init__(self) -> None:
        if len(self.directions) != self.shape.bends + 1:
            raise wrong_value("directions", f"a tuple of {self.shape.bends + 1}", len(self.directions))
        check_arrays_of(self)

    @property
    def dimension(self) -> int:
        return 1

    @cached_property
    def products(self) -> Float64[np.ndarray, "points points"]:
        """The inner products of the directions, which tell every length on the curve."""
        count = len(self.directions)
        products = np.zeros((count, count))
        for tensor in self.space.trainable:
            rows = np.stack([direction[tensor.name].reshape(-1) for direction in self.directions]).astype(np.float64)
            products += rows @ rows.T
        return products

    @cached_property
    def norms(self) -> Float64[np.ndarray, " one"]:
        """The curve's length, shape (1,)."""
        return self.lengths(np.array([1.0]))

    def shares(self, t: NDArray[Any] | float) -> Float64[np.ndarray, "places directions"]:
        """Returns how much of each direction is in the points at some places."""
        return self.shape.weights(t)[:, 1:]

    def lengths(self, t: NDArray[Any]) -> Float64[np.ndarray, " places"]:
        """Returns how long the way along the curve is from 0 to some places."""
        fine = np.linspace(0, 1, _STEPS * (self.shape.bends + 1) + 1)
        steps = np.diff(self.shares(fine), axis=0)
        way = np.concatenate([[0.0], np.cumsum(np.sqrt(np.einsum("ij,jk,ik->i", steps, self.products, steps)))])
        return np.asarray(np.interp(t, fine, way))

    def distances_of_bends(self) -> Float64[np.ndarray, " bends"]:
        """Returns how far the control points between the ends are from the straight line."""
        return self._from_chord(np.eye(len(self.directions))[:-1])

    def _from_chord(self, shares: Float64[np.ndarray, "places points"]) -> Float64[np.ndarray, " places"]:
        """Returns how far points are from the straight line between the ends."""
        along = self.products[-1, -1]
        foot = np.clip(shares @ self.products[-1] / along, 0, 1)
        shares[:, -1] -= foot
        squares = np.einsum("ij,jk,ik->i", shares, self.products, shares)
        return np.asarray(np.sqrt(np.maximum(squares, 0)))

    def axes(
        self, size: int | tuple[int, int], margin: float | None = None, limits: Sequence[float] | None = None
    ) -> Axes:
        """Returns ``size`` places from 0 to 1, both among them, and None for y; limits and margin are refused."""
        if limits is not None or margin is not None:
            raise ValueError("limits and margin must be left out: a curve goes from 0 to 1.")
        return np.linspace(0, 1, check_sizes(size, 1)[0]), None

    def ends(self, margin: float | None) -> list[tuple[float, float]]:
        """Returns 0 and 1; a margin is refused."""
        self.axes(3, margin)
        return [(0.0, 1.0)]

    def point(self, coordinates: Sequence[float], buffers: str = "auto") -> dict[str, NDArray[Any]]:
        """Returns all parameters at (t,) and the first network's buffers, for only a pool has samples."""
        (t,) = coordinates
        state = {name: np.array(array) for name, array in (*self.origin.items(), *self.buffers.items())}
        return state | move_along(self.space, self.origin, self.directions, self.shares(float(t))[0].tolist())

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> NoReturn:
        """Raises a PlaneError: a plane's file holds no curve."""
        raise PlaneError("a curve is no plane, whose file would hold it as one. Keep the path itself: Path.save.")

    def _projected(self, networks: Sequence[Network]) -> NoReturn:
        raise PlaneError(
            "no network can be projected onto a curve. Project it onto the plane of the path (Path.plane), or onto the "
            "straight line between the ends (line_between)."
        )

    def facts(self, t: NDArray[Any]) -> dict[str, Any]:
        """Returns what a file keeps of the curve; ``t`` are the places that are measured."""
        return {
            "kind": self.shape.kind,
            "bends": self.shape.bends,
            **({"fitting": dict(self.fitting)} if self.fitting else {}),
            "t": t.tolist(),
            "length": self.lengths(t).tolist(),
            "distance_to_chord": self._from_chord(self.shares(t)).tolist(),
        }
