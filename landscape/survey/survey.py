"""Drives sampling, pool and file: measures a plane, keeps what is measured, continues where a run stopped."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import shlex
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collectors.files.places import AnyPath
from collectors.progress_bar import progress_bar
from workers.measuring.checks import check_determinism, check_same_values
from workers.measuring.memory_shortage import shortage_text
from workers.pool import ORIGIN_MEASUREMENTS, Pool, Task

from ..errors import LandscapeNotFoundError
from ..file.checks import PointStatus
from ..file.data import LOSS_ERROR, LandscapeData
from ..file.landscape_file import read_landscape
from ..file.lock import clean_temporaries, lock_landscape
from ..file.writer import LandscapeWriter
from ..planes.plane import Axes, Plane
from ..sampling.adaptive_sampling import AdaptiveSampling
from ..sampling.sampling import pending_points
from .experiment import check_identity, new_landscape, take_roles
from .forecast import Forecast, make_forecast
from .settings import SurveySettings, duration_text
from .tasks import checkpoint_tasks, forget_unmeasured, grid_tasks, keep


@dataclass(frozen=True)
class SurveyReport:
    """What one survey cost.

    Attributes:
        measured: points and checkpoints measured in this run.
        resumed: points and checkpoints that were measured before.
        seconds: wall time of the survey, without the pool's start.
        workers: how many measured.
        forecast: what it was expected to cost.
    """

    measured: int
    resumed: int
    seconds: float
    workers: int
    forecast: Forecast

    @property
    def points_per_second(self) -> float:
        """Measurements per second of wall time."""
        return self.measured / self.seconds if self.seconds else 0.0


def survey(
    pool: Pool,
    plane: Plane,
    axes: Axes,
    *,
    path: AnyPath | None,
    attributes: Mapping[str, Any],
    settings: SurveySettings,
) -> tuple[LandscapeData, SurveyReport]:
    """Measures a plane on a grid, its origin, and its checkpoints.

    Args:
        pool: where points are measured.
        plane: what is measured.
        axes: the coordinates of the grid, as ``Plane.axes`` returns them.
        path: the landscape file; None keeps the landscape in memory only.
        attributes: what the file says beside what the survey knows itself.
        settings: which points, how exactly, for how long.

    Raises:
        NondeterministicLossError: the same weights gave two losses.
        LandscapeError: the file cannot be used or written; the subclass says why.
        PoolError: no worker is left.
    """
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if path is not None:
            stack.enter_context(lock_landscape(path))
            clean_temporaries(path)
        _load(pool, plane, axes)
        plan = pool.description.plan
        data, forecast = _begin(pool, plane, axes, path, attributes, settings)
        before = _measured(data)
        writer = stack.enter_context(LandscapeWriter(path, data))
        bar = stack.enter_context(_progress_bar(data, settings.progress))
        if settings.progress:
            bar.write(f"{bar.desc}: {forecast}", file=bar.fp)
            if isinstance(path, Path):
                bar.write(f"watch it: landscape watch {shlex.quote(str(path))}", file=bar.fp)
        clock = _Clock(start, settings.seconds)

        def measure(tasks: Iterable[Task]) -> None:
            nonlocal plan
            for result in pool.run(clock.until_late(tasks)):
                writer.update(functools.partial(keep, data, result))
                bar.update()
                if pool.description.plan != plan:
                    warnings.warn(shortage_text(plan.batch_size, pool.description.plan.batch_size), stacklevel=4)
                    plan = pool.description.plan
                    writer.update(functools.partial(data.attributes.update, measurement_plan=plan.to_json()))

        adaptive = AdaptiveSampling(
            data.shape, settings.tolerance, relative=settings.relative_tolerance, seed=settings.seed
        )
        data.attributes["sampling"] = {"mode": settings.sampling, "finished": False}
        next_points = adaptive.next_points if settings.sampling == "adaptive" else pending_points
        _measure_grid(plane, data, measure, next_points, clock)
        data.attributes["sampling"]["finished"] = not clock.is_late
        if settings.sampling == "adaptive" or (data.status == PointStatus.PENDING).any():
            writer.update(functools.partial(_fill_gaps, data, adaptive))
        if not clock.is_late:
            bar.total = bar.n  # adaptive sampling needed fewer points
    _warn_about(data)
    if clock.is_late:
        _warn_of_budget(data, settings, kept=path is not None)
    measured = _measured(data)
    return data, SurveyReport(measured - before + 1, before, time.perf_counter() - start, pool.workers, forecast)


def forecast_survey(
    pool: Pool, plane: Plane, axes: Axes, *, path: AnyPath | None, settings: SurveySettings
) -> Forecast:
    """Returns what ``survey`` would cost; measures the origin and a corner or two alone, and writes nothing.

    Raises:
        NondeterministicLossError: the same weights gave two losses.
        LandscapeError: the file cannot be used; the subclass says why.
    """
    _load(pool, plane, axes)
    return _begin(pool, plane, axes, path, {}, settings)[1]


class _Clock:
    """Ends a survey at its deadline.

    Args:
        start: when it began.
        budget: seconds that it may take, or None.
    """

    def __init__(self, start: float, budget: float | None) -> None:
        self._deadline = math.inf if budget is None else start + budget
        self.is_late = False

    def until_late(self, tasks: Iterable[Task]) -> Iterator[Task]:
        for task in tasks:
            if time.perf_counter() > self._deadline:
                self.is_late = True
                return
            yield task


def _begin(
    pool: Pool,
    plane: Plane,
    axes: Axes,
    path: AnyPath | None,
    attributes: Mapping[str, Any],
    settings: SurveySettings,
) -> tuple[LandscapeData, Forecast]:
    """Returns the landscape of the loaded plane with its origin measured, and what the rest will cost."""
    fresh = new_landscape(pool.description, plane, *axes, attributes)
    data = _stored(path, fresh) if path is not None and not settings.overwrite else fresh
    start = time.perf_counter()
    origins = pool.measure_origin()
    values = check_determinism(origins)
    seconds_per_point = (time.perf_counter() - start) / ORIGIN_MEASUREMENTS  # all workers do it at once
    stored = data.origin
    if stored.status == PointStatus.MEASURED:
        where = "now, after the file's own value"
        check_same_values("the origin", stored.metrics, values, where, elsewhere=origins[0].elsewhere)
    else:
        stored.metrics, stored.status = values, PointStatus.MEASURED
    forget_unmeasured(data)
    return data, make_forecast(pool, plane, data, seconds_per_point, settings, origins[0].pass_cost)


def _load(pool: Pool, plane: Plane, axes: Axes) -> None:
    """Puts a plane on the workers, who find out at its origin and the grid's corners how the loss is added up."""
    ends = [(float(axis[0]), float(axis[-1])) for axis in axes if axis is not None]
    corners = sorted(itertools.product(*ends), key=lambda corner: -math.hypot(*corner))
    interpolated = pool.description.options.buffers == "interpolate"
    pool.load(plane.origin, plane.directions, plane.buffers, plane.end_buffers if interpolated else (), corners)


def _measure_grid(
    plane: Plane,
    data: LandscapeData,
    measure: Callable[[Iterable[Task]], None],
    next_points: Callable[[Any, Any], list[int]],
    clock: _Clock,
) -> None:
    first = checkpoint_tasks(plane, data)
    while True:
        points = next_points(data.metrics["loss"], data.status)
        if not (points or first) or clock.is_late:
            return
        measure(itertools.chain(first, grid_tasks(data, points)))
        first = []


def _fill_gaps(data: LandscapeData, adaptive: AdaptiveSampling) -> None:
    filled = adaptive.fill(data.metrics, data.status)
    for name, values in filled.metrics.items():
        data.metrics[name][...] = values
    data.status[...] = filled.status
    data.metrics[LOSS_ERROR] = filled.loss_error
    data.attributes["sampling"] |= filled.report.to_json()


def _stored(path: AnyPath, fresh: LandscapeData) -> LandscapeData:
    """Returns the landscape on disk when it is this one, or the fresh one when there is none."""
    try:
        stored = read_landscape(path)
    except LandscapeNotFoundError:
        return fresh
    check_identity(stored.attributes.get("identity", {}), fresh.attributes["identity"], path)
    if not stored.complete:
        _tell_what_changed(stored.attributes, fresh.attributes)
    take_roles(stored, fresh)
    return stored


def _tell_what_changed(stored: dict[str, Any], now: Mapping[str, Any]) -> None:
    """Adds to the file's attributes what this run says of itself, where the rest is measured in another way."""
    notes = [*(stored.get("notes") or ()), *now["notes"]]
    plans = [
        ", ".join(f"{name} {value}" for name, value in sorted(plan.items()) if name != "reason")
        for plan in (stored.get("measurement_plan") or {}, now["measurement_plan"])
    ]
    if plans[0] != plans[1]:
        notes.append(f"the landscape was continued with another measurement plan: first {plans[0]}; then {plans[1]}.")
        stored["measurement_plan"] = now["measurement_plan"]
    stored["notes"] = list(dict.fromkeys(notes))


def _progress_bar(data: LandscapeData, shown: bool) -> Any:
    kind = {"pca": "PCA", "random": "random"}.get(str(data.attributes["decomposition"]), "")
    label = " ".join(item for item in (kind, "landscape" if data.y is not None else "line") if item)
    total = sum(status.size for status in data.statuses)
    return progress_bar(total, "point", shown=shown, done=_measured(data), name=label)


def _measured(data: LandscapeData) -> int:
    return sum(int((status == PointStatus.MEASURED).sum()) for status in data.statuses)


def _warn_about(data: LandscapeData) -> None:
    loss = data.metrics["loss"]
    if failed := data.status_counts[PointStatus.FAILED]:
        place, text = next(iter(data.errors.items()))
        warnings.warn(
            f"{failed} of {data.status.size} points failed and are marked so in the file; the first one is "
            f"{place}:\n{text}",
            stacklevel=4,
        )
    if (data.status == PointStatus.MEASURED).any() and not np.isfinite(loss).any():
        warnings.warn(
            "the loss is NaN or infinite at every point; it is stored as it is. Check the data and the checkpoint "
            "that the plane is centred on, or measure a smaller region.",
            stacklevel=4,
        )


def _warn_of_budget(data: LandscapeData, settings: SurveySettings, *, kept: bool) -> None:
    counts = data.status_counts
    others = [
        f"{counts[status]} {text}"
        for status, text in (
            (PointStatus.INTERPOLATED, "are interpolated"),
            (PointStatus.PENDING, "have no value yet"),
        )
        if counts[status]
    ]
    warnings.warn(
        f"the budget of {duration_text(settings.budget or 0)} ended the landscape after "
        f"{counts[PointStatus.MEASURED]} of {data.status.size} points"
        + (f"; of the others {' and '.join(others)}. " if others else ". ")
        + (
            "The same call continues from here."
            if kept
            else "Give output= a path, and a later call can continue; without it, the next one starts anew."
        ),
        stacklevel=4,
    )
