"""``Path``: a curve between two networks, along which the loss may stay low."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from collectors.files.places import AnyPath, check_directory
from collectors.networks.weight_space import WeightSpace
from collectors.shapes import Float64
from collectors.validation import check_float, check_int, wrong_value
from collectors.weights.safetensors_file import MemoryState
from workers.curves.curve import CurveShape, FittingSettings
from workers.measurement_plan import MeasurementPlan

from ..errors import PlaneError
from ..planes.curved_line import CurvedLine
from ..planes.directions import as_direction
from ..planes.from_checkpoints import plane_of_points
from ..planes.from_weights import line_between
from ..planes.plane import Plane
from ..planes.side_file import place_to_save
from ..record.driver import carry_out, open_record
from ..record.run import MeasurementReport, Run
from ..record.workers import Workers
from ..replacing import holds_another
from .fitting import CURVE_FILE, CurveExperiment, FittedCurve, curve_beside, read_curve, write_curve

_BEND = "bend"


@dataclass(frozen=True, eq=False, repr=False)
class Path:
    """A curve from one network to another: ``Measure.connect`` makes it, ``grid`` and ``barrier`` measure it.

    Attributes:
        curve: the control points, and how they were fitted.
        report: how long the fitting took, where this is its result.
    """

    curve: FittedCurve
    report: MeasurementReport | None = None

    def __repr__(self) -> str:
        shape, settings = self.shape, self.curve.settings
        bends = f"{shape.bends} bend{'s' * (shape.bends > 1)}"
        return (
            f"Path({shape.kind} of {self.space.network} from {self.names[0]} to {self.names[1]}, {bends}, "
            f"{settings.steps} steps; length {self.length:.4g}, {self.length / self.chord:.3f} of the straight line's)"
        )

    @property
    def space(self) -> WeightSpace:
        """The network."""
        return self.curve.space

    @property
    def shape(self) -> CurveShape:
        """Which curve it is, and how many bends it has."""
        return self.curve.settings.shape

    @property
    def names(self) -> tuple[str, str]:
        """What pictures call the two networks."""
        return self.curve.names

    @property
    def losses(self) -> Float64[np.ndarray, " steps"]:
        """The loss of each step of the fitting, at its place and on its batch, shape (steps,)."""
        return self.curve.fitting.losses

    @property
    def measurement_plan(self) -> MeasurementPlan:
        """How the losses of the fitting were computed; ``Measure(plan=...)`` takes it."""
        return MeasurementPlan.from_json(self.curve.attributes["measurement_plan"])

    @cached_property
    def length(self) -> float:
        """The way along the curve, in weight space."""
        return float(self._line.norms[0])

    @cached_property
    def chord(self) -> float:
        """The straight way from the first network to the last one."""
        return float(np.sqrt(self._line.products[-1, -1]))

    def point(self, t: float) -> dict[str, NDArray[Any]]:
        """Returns the network's state at a place of the curve.

        Args:
            t: 0 is the first network, 1 the last one.

        Returns:
            All parameters and, by the first network, all buffers: statistics of BatchNorm must be computed anew.

        Raises:
            TypeError: ``t`` is no number.
            ValueError: ``t`` is not from 0 to 1.
        """
        if not 0 <= check_float("t", t) <= 1:
            raise wrong_value("t", "a number from 0 to 1", t)
        return self._line.point((float(t),))

    def bend(self, number: int = 0) -> dict[str, NDArray[Any]]:
        """Returns the network's state at a control point between the ends; the buffers are the first network's.

        Args:
            number: from 0.

        Raises:
            TypeError: ``number`` is no int.
            ValueError: there are fewer bends.
        """
        check_int("number", number, minimum=0, maximum=self.shape.bends - 1)
        first = self.curve.first
        bend = as_direction(self.curve.fitting.bends[number], self.space)
        return {**first, **{name: array.astype(first[name].dtype) for name, array in bend.items()}}

    def line(self) -> CurvedLine:
        """Returns the curve as what is measured; ``Measure.grid`` takes the path itself as well."""
        return self._line

    def plane(self) -> Plane:
        """Returns the plane through both networks and the bend that is farthest from the line between them.

        The first network is its origin, the last one lies at (1, 0), the bend at (0, 1). A curve with one bend lies in
        it; of others ``routes`` draws the nearest points. Measure it with ``buffers="recalibrate"`` where the network
        has BatchNorm.

        Raises:
            PlaneError: the bend is on the line.
        """
        name = next(name for name in (_BEND, f"{_BEND} of the curve", f"the {_BEND}") if name not in self._ends)
        return plane_of_points({**self._ends, name: MemoryState(self.bend(self._farthest), name)}, self.space)

    def routes(self, points: int = 101) -> dict[str, Float64[np.ndarray, "points axes"]]:
        """Returns where the straight way and the curve run in ``plane``, for ``figures.plot_routes``.

        Args:
            points: of the curve.

        Returns:
            "straight" and "curved": coordinates, shape (points, 2).
        """
        line = self._line
        # The directions of the plane are among the curve's: the last one, and that of the bend.
        pair = [len(line.directions) - 1, self._farthest]
        shares = line.shares(np.linspace(0, 1, points))
        inner = line.products[np.ix_(pair, pair)]
        on_plane = np.linalg.solve(inner, line.products[pair] @ shares.T).T
        return {"straight": np.array([[0.0, 0.0], [1.0, 0.0]]), "curved": on_plane}

    @contextlib.contextmanager
    def kept_beside(self, landscape: AnyPath | None, options: Mapping[str, Any]) -> Iterator[None]:
        """Writes the control points beside the file of a landscape along the curve, once that is measured.

        Raises:
            LandscapeWriteError: another file is there, which is checked first.
            LandscapeIdentityError: another path is there, and ``overwrite`` is false.
        """
        beside = None if landscape is None else curve_beside(landscape)
        if beside is not None:
            CURVE_FILE.check(beside, CURVE_FILE.kind)
            is_there = beside.exists() and not options["overwrite"]
            if is_there and read_curve(beside).line_identity != self.curve.line_identity:
                raise holds_another(beside, "another path")
        yield
        if beside is not None and not options["dry_run"]:
            write_curve(beside, self.curve)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> AnyPath:
        """Writes the path as a safetensors file, which ``load`` reads, and returns the file's path.

        Args:
            path: of the file, or its fsspec URL.
            overwrite: whether a file of that name is replaced.

        Raises:
            LandscapeWriteError: a file is there and ``overwrite`` is false, or it cannot be written.
        """
        target = place_to_save(path, overwrite=overwrite)
        write_curve(target, self.curve)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a path that ``save`` or ``connect(output=...)`` wrote.

        Args:
            path: of the file, or its fsspec URL.

        Raises:
            CheckpointError: there is no such file, or it is damaged.
            PlaneError: it holds no path, or one whose fitting has not ended.
        """
        place = check_directory("path", path)
        curve = read_curve(place)
        if not curve.complete:
            raise PlaneError(
                f"{place} holds a path that is fitted for {curve.fitting.step} of {curve.settings.steps} steps. Call "
                "connect again with the same arguments and output, and it goes on from there."
            )
        return cls(curve)

    @cached_property
    def _ends(self) -> dict[str, MemoryState]:
        states = zip(self.names, (self.curve.first, self.curve.last), strict=True)
        return {name: MemoryState(state, name) for name, state in states}

    @cached_property
    def _farthest(self) -> int:
        return int(np.argmax(self._line.distances_of_bends()))

    @cached_property
    def _line(self) -> CurvedLine:
        straight, first = plane_of_points(self._ends, self.space), self.curve.first
        bends = (as_direction(row, self.space) for row in self.curve.fitting.bends)
        towards = ({name: array - first[name].astype(array.dtype) for name, array in bend.items()} for bend in bends)
        same = ("space", "origin", "buffers", "normalization", "origin_role", "projection", "end_buffers")
        ends = zip(straight.networks, self.curve.ends_sha256, strict=True)
        return CurvedLine(
            **{name: getattr(straight, name) for name in same},
            directions=(*towards, straight.directions[0]),
            decomposition="path",
            identity=self.curve.line_identity,
            networks=tuple(replace(network, sha256=digest) for network, digest in ends),
            shape=self.shape,
            fitting={name: value for name, value in asdict(self.curve.settings).items() if name != "shape"},
        )


def fit_curve(
    ends: tuple[Any, Any],
    names: Sequence[str] | None,
    callback_fn: Callable[[], Any],
    settings: FittingSettings,
    path: AnyPath | None,
    chosen: Mapping[str, Any],
) -> Path | None:
    run = Run.checked(chosen)

    def experiments(workers: Workers) -> list[CurveExperiment]:
        return [CurveExperiment(line_between(*ends, network=workers.space, names=names), settings)]

    with open_record(CURVE_FILE, path, run) as stored:
        # Gradients are computed eagerly.
        fitted = carry_out(experiments, [stored], callback_fn, {**chosen, "compile": False}, run)
    return Path(*fitted[0]) if fitted else None
