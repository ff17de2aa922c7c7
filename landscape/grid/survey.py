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
from workers.measuring.checks import check_determinism, check_same_values, closeness_elsewhere
from workers.measuring.memory_shortage import shortage_text
from workers.pool import OriginValues, Pool, Result, Task

from ..planes.plane import Axes, Plane
from ..record.checks import PointStatus
from ..record.kind import LANDSCAPE
from ..record.lock import clean_temporaries, lock_landscape
from ..record.run import MeasurementReport, budget_text
from ..record.whole_file import check_replaceable
from ..sampling.adaptive_sampling import AdaptiveSampling
from ..sampling.sampling import coarse_and_fine, first_grid_counts, pending_points
from .data import LOSS_ERROR, LandscapeData
from .experiment import new_landscape
from .forecast import Forecast, make_forecast
from .landscape_file import LandscapeWriter
from .resume import UNDER_WAY, Source, begun_before
from .same_losses import Place, copy_same, same_losses
from .settings import SurveySettings
from .tasks import checkpoint_tasks, forget_unmeasured, grid_tasks, keep

_KINDS = {"pca": "PCA", "random": "random", "hessian": "Hessian", "ggn": "Gauss-Newton", "factors": "factor"}


@dataclass(frozen=True)
class SurveyReport(MeasurementReport):
    """What one survey cost; checkpoints count as points.

    Attributes:
        forecast: what it was expected to cost.
    """

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
    source: Source | None = None,
) -> tuple[LandscapeData, SurveyReport]:
    """Measures a plane on a grid, its origin, and its checkpoints; what the file has of this identity is kept."""
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if path is not None:
            stack.enter_context(lock_landscape(path))
            clean_temporaries(path)
        _load(pool, plane, axes)
        plan = pool.description.plan
        begun = _begin(pool, plane, axes, path, attributes, settings, start, source=source)
        data, forecast, copied = begun.data, begun.forecast, begun.copied
        before = _measured(data) - copied
        writer = stack.enter_context(LandscapeWriter(path, data))
        bar = stack.enter_context(_progress_bar(data, settings.progress))
        if settings.progress:
            if begun.kept:
                bar.write(f"{bar.desc}: {begun.kept}", file=bar.fp)
            bar.write(f"{bar.desc}: {forecast}", file=bar.fp)
            if isinstance(path, Path):
                bar.write(f"watch it: landscape watch {shlex.quote(str(path))}", file=bar.fp)
        clock = _Clock(start, settings.seconds)

        def write(result: Result) -> None:
            nonlocal copied
            keep(data, result)
            bar.update()
            if isinstance(result.key, tuple) and result.key[0] != "grid":
                more = copy_same(data, begun.same)
                copied += more
                bar.update(more)

        def measure(tasks: Iterable[Task]) -> None:
            nonlocal plan
            for result in pool.run(clock.until_late(tasks)):
                writer.update(functools.partial(write, result))
                if pool.description.plan != plan:
                    warnings.warn(shortage_text(plan.batch_size, pool.description.plan.batch_size), stacklevel=4)
                    plan = pool.description.plan
                    writer.update(functools.partial(data.attributes.update, measurement_plan=plan.to_json()))

        adaptive = AdaptiveSampling(
            data.shape, settings.tolerance, relative=settings.relative_tolerance, seed=settings.seed
        )
        data.attributes["sampling"] = settings.sampling_begun()
        next_points = adaptive.next_points if settings.sampling == "adaptive" else pending_points
        _measure_all(begun, measure, next_points, clock)
        data.attributes["sampling"]["finished"] = not clock.is_late
        if not clock.is_late:
            data.attributes.pop(UNDER_WAY, None)
        if settings.sampling == "adaptive" or (data.status == PointStatus.PENDING).any():
            writer.update(functools.partial(_fill_gaps, data, adaptive))
        if not clock.is_late:
            bar.total = bar.n  # adaptive sampling needed fewer points
    _warn_about(data)
    if clock.is_late:
        _warn_of_budget(data, settings, kept=path is not None)
    measured = _measured(data) - copied
    return data, SurveyReport(measured - before + 1, before, time.perf_counter() - start, pool.workers, forecast)


def forecast_survey(
    pool: Pool,
    plane: Plane,
    axes: Axes,
    *,
    path: AnyPath | None,
    settings: SurveySettings,
    timed: list[OriginValues] | None = None,
) -> tuple[Forecast, list[OriginValues]]:
    """Returns what ``survey`` would cost and the values of the origin; measures that and a corner or two, alone."""
    # As timed, what was returned for another plane of the network: points take as long, and nothing is measured.
    start = time.perf_counter()
    if timed is None:
        _load(pool, plane, axes)
    begun = _begin(pool, plane, axes, path, {}, settings, start, timed)
    return begun.forecast, begun.origins


def check_file(pool: Pool, plane: Plane, axes: Axes, *, path: AnyPath, settings: SurveySettings) -> None:
    """Raises what ``survey`` would raise of the file that is there; the arguments are those of ``survey``."""
    _found(path, new_landscape(pool.description, plane, *axes, {}), settings)


class _Clock:
    """Ends a survey ``budget`` seconds after its start; never where that is None."""

    def __init__(self, start: float, budget: float | None) -> None:
        self._deadline = math.inf if budget is None else start + budget
        self.is_late = False

    def until_late(self, tasks: Iterable[Task]) -> Iterator[Task]:
        for task in tasks:
            if time.perf_counter() > self._deadline:
                self.is_late = True
                return
            yield task


@dataclass(frozen=True)
class _Begun:
    """A landscape whose origin is measured.

    Attributes:
        path: what is still to be measured of the checkpoints.
        same: which losses of checkpoints are other ones too.
        copied: how many of them are known already.
        origins: by which the time of a point is known.
        kept: what another grid's points are good for, in words; empty where there is no other grid.
    """

    data: LandscapeData
    path: list[Task]
    same: dict[Place, Place]
    copied: int
    forecast: Forecast
    origins: list[OriginValues]
    kept: str = ""


def _begin(
    pool: Pool,
    plane: Plane,
    axes: Axes,
    path: AnyPath | None,
    attributes: Mapping[str, Any],
    settings: SurveySettings,
    began: float,
    timed: list[OriginValues] | None = None,
    source: Source | None = None,
) -> _Begun:
    """Returns the landscape of the loaded plane with its origin measured, and what the rest will cost."""
    # Where another plane's origin is given as timed, it only tells how long a point takes.
    data, kept = _found(path, new_landscape(pool.description, plane, *axes, attributes), settings, source)
    origins = timed or pool.measure_origin()
    precision = pool.description.options.precision
    values = check_determinism(origins, precision)
    seconds_per_point = max(origin.measured.seconds for origin in origins)
    stored = data.origin
    if stored.status == PointStatus.MEASURED and timed is None:
        where, tolerance = "now, after the file's own value", closeness_elsewhere(precision)
        far = origins[0].measured.elsewhere
        check_same_values("the origin", stored.metrics, values, where, tolerance, elsewhere=far)
    elif timed is None:
        stored.metrics, stored.status = values, PointStatus.MEASURED
    forget_unmeasured(data)
    # The file that holds them is about to be replaced.
    data.kept_samples = {name: samples.held() for name, samples in data.kept_samples.items()}
    same = same_losses(plane, data)
    copied = copy_same(data, same)
    tasks = checkpoint_tasks(plane, data, same)
    spent = time.perf_counter() - began
    forecast = make_forecast(pool, plane, data, tasks, seconds_per_point, settings, origins[0], spent)
    return _Begun(data, tasks, same, copied, forecast, origins, kept)


def _found(
    path: AnyPath | None, fresh: LandscapeData, settings: SurveySettings, source: Source | None = None
) -> tuple[LandscapeData, str]:
    """Returns the landscape with what is measured of it; and in words what another grid's points are good for."""
    if path is None or not settings.overwrite:
        return begun_before(path, fresh, source)
    check_replaceable(path, LANDSCAPE)
    return fresh, ""


def _load(pool: Pool, plane: Plane, axes: Axes) -> None:
    """Puts a plane on the workers, who find out at its origin and the grid's corners how the loss is added up."""
    ends = [(float(axis[0]), float(axis[-1])) for axis in axes if axis is not None]
    corners = sorted(itertools.product(*ends), key=lambda corner: -math.hypot(*corner))
    end_buffers = () if pool.description.options.buffers == "fixed" else plane.end_buffers
    pool.load(plane.origin, plane.directions, plane.buffers, end_buffers, corners)


def _measure_all(
    begun: _Begun,
    measure: Callable[[Iterable[Task]], None],
    next_points: Callable[[Any, Any], list[int]],
    clock: _Clock,
) -> None:
    """Measures the coarse grid, then the checkpoints, then the fine grid: a budget may end it at any time."""
    data, path = begun.data, begun.path
    while True:
        points = next_points(data.metrics["loss"], data.status)
        if not (points or path) or clock.is_late:
            return
        coarse, fine = coarse_and_fine(data.shape, points)
        measure(itertools.chain(grid_tasks(data, coarse), path, grid_tasks(data, fine)))
        path = []


def _fill_gaps(data: LandscapeData, adaptive: AdaptiveSampling) -> None:
    filled = adaptive.fill(data.metrics, data.status)
    for name, values in filled.metrics.items():
        data.metrics[name][...] = values
    data.status[...] = filled.status
    if (data.status == PointStatus.INTERPOLATED).any() or not (data.status == PointStatus.PENDING).any():
        data.metrics[LOSS_ERROR] = filled.loss_error
    data.attributes["sampling"] |= filled.report.to_json()


def _progress_bar(data: LandscapeData, shown: bool) -> Any:
    kind = _KINDS.get(str(data.attributes["decomposition"]), "")
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
    ended = (
        f"the landscape after {counts[PointStatus.MEASURED]} of {data.status.size} points"
        + (f"; of the others {' and '.join(others)}" if others else "")
        + _missing_text(data)
    )
    warnings.warn(budget_text(settings.budget, ended, kept=kept), stacklevel=4)


def _missing_text(data: LandscapeData) -> str:
    """Returns what keeps an ended landscape from being a fine picture, and which losses of checkpoints it lacks."""
    text = ""
    known, size = first_grid_counts(data.status)
    if known < size:
        text += (
            f": it is a coarse picture so far, as {known} of the {size} points are measured between which it is "
            "interpolated"
        )
    path = [] if data.checkpoints is None else data.statuses[1:]
    missing = sum(int((status == PointStatus.PENDING).sum()) for status in path)
    if missing:
        text += f". {missing} of {sum(status.size for status in path)} losses of checkpoints are not measured"
    return text
