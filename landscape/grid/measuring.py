"""Measures a grid over a plane, or single points of it, from what a user asks for to the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectors.files.places import AnyPath
from collectors.shapes import Bool, Float64
from collectors.validation import check_instance, wrong_type, wrong_value
from workers.measuring.checks import check_determinism
from workers.pool import PointTask, Pool, Result
from workers.users_code import warn_user

from ..planes.curved_line import check_on_curve
from ..planes.plane import Axes, Plane, buffer_policy, check_searched
from ..planes.plane_file import check_directions
from ..record.checks import PointStatus
from ..record.driver import Experiment, Stored, carry_out, forecast_text, open_record
from ..record.identity import function_attribute
from ..record.run import Cost, Run
from ..record.workers import Workers
from ..sampling.sampling import SamplingSettings
from .checkpoints import OriginData
from .data import DirectionsData, LandscapeData
from .experiment import GridExperiment, check_same_network, load_plane
from .forecast import SurveyReport, fewest_points
from .kept_plane import keep_plane
from .landscape_file import LANDSCAPE_FILE
from .tasks import keep_result, shares

A_PLANE = "a Plane (from random_plane, pca_plane, plane_through, line_between)"
"""What is expected where a plane is, in words."""


@dataclass(frozen=True)
class Grid:
    """Where the points of a grid are: at given coordinates, or evenly spaced on the plane's own axes."""

    size: int | tuple[int, int] = 40  # points along each axis where the plane's own axes are taken
    x: Any = None  # coordinates; None takes the plane's own axes
    y: Any = None
    limits: tuple[float, ...] | None = None
    margin: float | None = None

    def __call__(self, plane: Plane) -> Axes:
        needs_axes = self.x is None or (self.y is None and plane.dimension == 2)
        x, y = plane.axes(self.size, self.margin, self.limits) if needs_axes else (None, None)
        x = x if self.x is None else _axis("x", self.x)
        assert x is not None
        check_on_curve("x", plane, x)
        return x, y if self.y is None else _axis("y", self.y)


def _axis(name: str, values: object) -> Float64[np.ndarray, " n"]:
    try:
        axis = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise wrong_type(name, "an array of numbers", values) from error
    if axis.ndim != 1 or not len(axis) or not np.isfinite(axis).all() or not (np.diff(axis) > 0).all():
        raise ValueError(
            f"{name} must be a one-dimensional array of finite, increasing coordinates, but got shape {axis.shape} "
            f"with values {np.array2string(axis.reshape(-1)[:6], threshold=6)}."
        )
    return axis


def measure_plane(
    plane: Plane,
    callback_fn: Callable[[], Any],
    grid: Callable[[Plane], Axes],  # returns the axes of the grid over a plane
    chosen: Mapping[str, Any],  # ``MeasureOptions`` and ``GridOptions``, all of them
    path: AnyPath | None,  # of the landscape file; None keeps it in memory
    closing: Callable[[Pool, LandscapeData], Mapping[str, Any]] | None = None,  # attributes while the plane is loaded
) -> tuple[LandscapeData, SurveyReport] | None:
    """Measures a plane or a line; None after a dry run."""
    axes = grid(plane)
    sampling, run = SamplingSettings.checked(chosen), Run.checked(chosen)
    if not run.rehearsal:
        check_searched(plane)
    buffers = buffer_policy(chosen["buffers"], plane.decomposition, plane.end_buffers)
    if (save := chosen["save_directions"]) and path is None:
        raise ValueError("save_directions needs output, beside which the directions are kept; give output a path.")
    if save and path is not None:
        check_directions(path)
    attributes = {"seed": sampling.seed, "samples": chosen["samples"], **function_attribute(callback_fn)}
    shape = tuple(len(axis) for axis in axes[::-1] if axis is not None)
    points = fewest_points(shape, sampling.sampling, sampling.share)
    with open_record(LANDSCAPE_FILE, path, run) as stored:

        def experiments(workers: Workers) -> list[GridExperiment]:
            description = workers.pool.description
            check_same_network(plane, description.space)
            if chosen["buffers"] not in ("auto", description.options.buffers):
                raise ValueError(
                    f'buffers="{buffers}" does not reach the Evaluator that callback_fn returns, whose description '
                    f'says "{description.options.buffers}". Leave buffers out, or build the Evaluator with these '
                    "options."
                )
            # Eigenvalues that were kept have other last digits, and so have the ends of the axes.
            kept = keep_plane(stored, plane, run)
            return [GridExperiment(kept, grid(kept), sampling, attributes, closing=closing, save_directions=save)]

        how = {**chosen, "buffers": buffers}
        return next(iter(carry_out(experiments, [stored], callback_fn, how, run, points=points)), None)


@dataclass(eq=False)
class PointsExperiment(Experiment[LandscapeData]):
    """The loss at points, in coordinates of the plane's directions; its record has them as those of a line."""

    plane: Plane
    places: list[tuple[float, ...]]
    unit: str = "point"
    name: str = "points"
    again: str = "The next call starts anew."
    _seconds: float = 0.0

    def check(self, stored: Stored[LandscapeData], pool: Pool) -> None:
        check_same_network(self.plane, pool.description.space)

    def begin(self, stored: Stored[LandscapeData], pool: Pool) -> LandscapeData:
        load_plane(pool, self.plane, self.places)
        count = len(self.places)
        metrics, status = {name: np.full(count, np.nan) for name in pool.description.metrics}, np.zeros(count, np.uint8)
        return LandscapeData(np.arange(float(count)), None, metrics, status, DirectionsData(np.ones(1)), OriginData())

    def resume(self, record: LandscapeData, pool: Pool) -> Bool[np.ndarray, " k"]:
        origins = pool.measure_origin()
        check_determinism(origins, pool.description.options.precision)
        self._seconds = max(origin.measured.seconds for origin in origins)
        return np.ones(len(self.places), bool)

    def forecast(self, record: LandscapeData, todo: Bool[np.ndarray, " k"], pool: Pool, run: Run) -> Cost:
        return forecast_text(f"{len(todo)} points", 0, len(todo), "point", self._seconds, pool.workers)

    def results(self, record: LandscapeData, todo: Bool[np.ndarray, " k"], pool: Pool, run: Run) -> Iterator[Result]:
        points = (PointTask(("grid", row), shares(self.plane, place)) for row, place in enumerate(self.places))
        return pool.run(run.in_time(points))

    def keep(self, record: LandscapeData, result: Result) -> int:
        keep_result(record, result)
        return 1

    def warn(self, record: LandscapeData, run: Run) -> None:
        if record.errors:
            row = int(np.flatnonzero(record.status == PointStatus.FAILED)[0])
            warn_user(
                f"{len(record.errors)} of {len(self.places)} points failed and are NaN; the first one is "
                f"points[{row}]:\n{record.errors[f'grid/{row}']}",
            )


def measure_points(
    plane: Plane, callback_fn: Callable[[], Any], points: object, chosen: Mapping[str, Any]
) -> dict[str, Float64[np.ndarray, " k"]] | None:
    """Measures points of a plane or a line with workers of its own; None after a dry run."""
    check_instance("plane", plane, Plane, A_PLANE)
    if not chosen["dry_run"]:
        check_searched(plane)
    places = _places(points, plane.dimension)
    check_on_curve("points", plane, places)
    how = {**chosen, "buffers": buffer_policy(chosen["buffers"], plane.decomposition, plane.end_buffers)}
    experiments, no_file = [PointsExperiment(plane, places)], [Stored[Any](LANDSCAPE_FILE, None, None)]
    measured = carry_out(lambda _: experiments, no_file, callback_fn, how, Run.checked(chosen), points=len(places))
    return measured[0][0].metrics if measured else None


def _places(points: object, dimension: int) -> list[tuple[float, ...]]:
    expected = f"an array of the shape (k, {dimension}) with finite coordinates, k at least 1"
    try:
        places = np.array(points, np.float64)
    except (TypeError, ValueError) as error:
        raise wrong_type("points", expected, points) from error
    if places.ndim != 2 or places.shape[1] != dimension or not len(places) or not np.isfinite(places).all():
        raise wrong_value("points", expected, places.shape if np.isfinite(places).all() else points)
    return [tuple(place) for place in places.tolist()]
