"""Measures the lines through all networks with one pool, keeps them in a file, continues where a run stopped."""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from collectors.errors import CheckpointError, LandscapeError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import WeightSpace, direction_dtype
from collectors.progress_bar import progress_bar
from collectors.weights.aligned import AlignedState
from workers.errors import CurvatureError, NondeterministicLossError
from workers.measuring.checks import check_determinism, check_same_values, closeness_elsewhere
from workers.measuring.memory_shortage import shortage_text
from workers.pool import PointTask, Pool, Result

from ..errors import PlaneError
from ..file.checks import PointStatus
from ..file.kind import COMPARISON
from ..file.lock import clean_temporaries, lock_landscape
from ..file.writer import LandscapeWriter
from ..planes.directions import random_direction
from ..planes.from_checkpoints import check_spannable, origin_state
from ..record.read_only_record import MeasurementReport
from ..record.record_file import record_bytes
from ..record.store import continued
from ..survey.second_differences import find_trace_by_lines
from ..survey.settings import Conduct, duration_text
from .blocks import block_names
from .comparison import Comparison
from .data import TRACE_LINES, ComparisonData
from .measures import left_out
from .networks import Recipes, as_states
from .rows import nothing_measured
from .settings import ComparisonSettings

_FLUSH_SECONDS = 1.0
# Of the directions that workers hold at once; each makes every point a little dearer.
_MOST_BYTES = 2**30
_MOST_DIRECTIONS = 16
_NAMED = 8


def survey_comparison(
    pool: Pool,
    recipes: Recipes,
    settings: ComparisonSettings,
    *,
    path: AnyPath | None,
    attributes: Mapping[str, Any],
    run: Conduct,
) -> Comparison:
    """Measures the lines through all networks; what the file holds of this identity stays.

    Args:
        pool: where losses are measured.
        recipes: the networks.
        settings: along which lines.
        path: the comparison file; None keeps all in memory.
        attributes: what the file says beside what the survey knows itself.
        run: how.

    Raises:
        CheckpointError: a network is another one than callback_fn returns.
        NondeterministicLossError: the same weights gave two losses.
        LandscapeError: the file cannot be used or written; the subclass says why.
        PoolError: no worker is left.
    """
    start = time.perf_counter()
    check_spannable(pool.description.space)
    states = as_states(recipes, pool.description.space)
    _find_out_how_losses_add_up(pool, recipes, states, settings)
    with contextlib.ExitStack() as lock:
        if path is not None:
            lock.enter_context(lock_landscape(path, COMPARISON))
            clean_temporaries(path)
        fresh = nothing_measured(pool.description, recipes, states, settings, attributes)
        data, was_there = continued(path, fresh, overwrite=run.overwrite)
        data.forget_failed(range(len(states)))
        before = data.status_counts[PointStatus.MEASURED]
        try:
            _measure_all(pool, states, settings, data, path, run)
        except NondeterministicLossError:
            if isinstance(path, Path) and not was_there:
                path.unlink(missing_ok=True)  # it says nothing yet
            raise
    found = data.status_counts[PointStatus.MEASURED]
    if not found and data.errors:
        raise LandscapeError(f"no network could be measured: {_reasons(data)}")
    _warn_about(data, run, kept=path is not None)
    report = MeasurementReport(found - before, before, time.perf_counter() - start, pool.workers)
    return Comparison(data, path, report)


def forecast_comparison(
    pool: Pool, recipes: Recipes, settings: ComparisonSettings, *, path: AnyPath | None, run: Conduct
) -> str:
    """Returns in words what ``survey_comparison`` would cost; measures one network's own loss, and writes nothing.

    Raises:
        CheckpointError: a network is another one than callback_fn returns.
        LandscapeError: the file cannot be used; the subclass says why.
    """
    check_spannable(pool.description.space)
    states = as_states(recipes, pool.description.space)
    _find_out_how_losses_add_up(pool, recipes, states, settings)
    data, _ = continued(
        path, nothing_measured(pool.description, recipes, states, settings, {}), overwrite=run.overwrite
    )
    seconds = max(origin.measured.seconds for origin in pool.measure_origin())
    return _forecast(pool, data, len(states), settings, seconds)


def _find_out_how_losses_add_up(
    pool: Pool, recipes: Recipes, states: Sequence[AlignedState], settings: ComparisonSettings
) -> None:
    """Puts the first finite network on the workers, who find out whether the loss splits into samples."""
    for state in states:
        with contextlib.suppress(CheckpointError, PlaneError, FloatingPointError):
            _Lines(pool, state, settings).load([0])
            return
    labels = ", ".join(entry.label for entry in recipes.entries[:_NAMED])
    raise CheckpointError(f"no network has weights that are finite numbers and not all zero: {labels}")


def _forecast(pool: Pool, data: ComparisonData, networks: int, settings: ComparisonSettings, seconds: float) -> str:
    wanted = data.status[:networks, : settings.directions]
    pending = int((wanted != PointStatus.MEASURED).sum())
    points = pending * (settings.points - 1) + int((wanted != PointStatus.MEASURED).any(1).sum())
    traces = sum(_lacks_trace(data, row, settings) for row in range(networks)) * 2 * settings.trace_lines
    workers = f"{pool.workers} worker{'' if pool.workers == 1 else 's'}"
    known = f", {wanted.size - pending} of them measured before" if pending < wanted.size else ""
    if not points and not traces:
        return f"{networks} networks x {settings.directions} lines, all measured before"
    return (
        f"{networks} networks x {settings.directions} lines{known}: {points + traces:,} points x "
        f"{duration_text(seconds)} on {workers}: about {duration_text((points + traces) * seconds / pool.workers)}"
    )


def _measure_all(
    pool: Pool,
    states: Sequence[AlignedState],
    settings: ComparisonSettings,
    data: ComparisonData,
    path: AnyPath | None,
    run: Conduct,
) -> None:
    writer = LandscapeWriter(path, data, _FLUSH_SECONDS, encode=record_bytes, kind=COMPARISON)
    wanted = data.status[: len(states), : settings.directions]
    done = int((wanted == PointStatus.MEASURED).sum())
    bar = progress_bar(wanted.size, "line", shown=run.progress, done=done, name="comparison")
    with writer, bar:
        said = not run.progress
        plan = pool.description.plan
        for row, state in enumerate(states):
            if run.is_late:
                return
            lines = _Lines(pool, state, settings)
            try:
                for found in lines.measure(data, row, run):
                    if found.seconds is not None:
                        if not said:
                            text = _forecast(pool, data, len(states), settings, found.seconds)
                            bar.write(f"{bar.desc}: {text}", file=bar.fp)
                        said = True
                        continue
                    writer.update(functools.partial(found.keep, data))
                    bar.update()
                trace = lines.trace(data, row)
            except (CheckpointError, PlaneError, CurvatureError, FloatingPointError) as error:
                writer.update(functools.partial(_fail, data, row, error, settings.directions))
                continue
            if trace is not None:
                writer.update(functools.partial(_keep_trace, data, row, trace, settings.trace_lines))
            if pool.description.plan != plan:
                warnings.warn(shortage_text(plan.batch_size, pool.description.plan.batch_size), stacklevel=4)
                plan = pool.description.plan
                writer.update(functools.partial(data.attributes.update, measurement_plan=plan.to_json()))


@dataclass
class _Line:
    """What came of a line so far, or, with ``seconds``, only how long a point takes.

    Attributes:
        row: of its network.
        direction: its number.
        losses: by place on the line.
        blocks: the same of the blocks of samples, at the network and the two ends.
        error: of a point that failed.
        seconds: of a point.
    """

    row: int
    direction: int = 0
    losses: dict[int, float] = field(default_factory=dict)
    blocks: dict[int, list[float]] = field(default_factory=dict)
    error: str | None = None
    seconds: float | None = None

    def keep(self, data: ComparisonData) -> None:
        """Writes it to its place."""
        place, last = (self.row, self.direction), len(data.t) - 1
        if self.error is not None:
            data.status[place] = PointStatus.FAILED
            data.errors[f"{data.place_of(self.row)}/direction/{self.direction}"] = self.error
            return
        data.loss[place] = [self.losses[point] for point in range(last + 1)]
        if data.block_size.size:
            own, low, high = (np.array(self.blocks[point]) for point in (last // 2, 0, last))
            data.block_rise[place] = (low + high) / 2 - own
        data.status[place] = PointStatus.MEASURED


class _Lines:
    """The lines through one network.

    Args:
        pool: where losses are measured.
        state: the network.
        settings: along which lines.

    Raises:
        CheckpointError: the weights cannot be read, or are not finite.
    """

    def __init__(self, pool: Pool, state: AlignedState, settings: ComparisonSettings) -> None:
        self._pool, self._state, self._settings = pool, state, settings

    def load(self, directions: Sequence[int]) -> None:
        """Puts the network and some of the directions on the workers."""
        space, settings = self._pool.description.space, self._settings
        parameters, buffers = origin_state(self._state, space)
        vectors = [
            random_direction(space, self._state, seed=settings.seed, index=number, normalization=settings.normalization)
            for number in directions
        ]
        if not any(values.any() for values in vectors[0].values()):
            raise PlaneError(
                f"a random direction is zero at {self._state.label}: no trainable tensor of the network "
                f"{space.network} that may move has two axes and values other than zero."
            )
        self._pool.load(parameters, vectors, buffers, (), [_at(len(directions), 0, settings.radius)])

    def measure(self, data: ComparisonData, row: int, run: Conduct) -> Iterator[_Line]:
        """Yields first how long a point takes, then each line that was not measured, as soon as it is whole."""
        settings = self._settings
        wanted = data.status[row, : settings.directions]
        todo = np.flatnonzero(wanted != PointStatus.MEASURED).tolist()
        size = _directions_at_once(self._pool.description.space, settings.directions)
        origin: dict[str, float] | None = None
        for begin in range(0, len(todo), size):
            chunk = todo[begin : begin + size]
            self.load(chunk)
            if origin is None:
                origins = self._pool.measure_origin()
                origin = self._check(check_determinism(origins, self._pool.description.options.precision), data, row)
                yield _Line(row, seconds=max(item.measured.seconds for item in origins))
            yield from self._along(data, row, chunk, origin, run)

    def trace(self, data: ComparisonData, row: int) -> Any:
        """Returns the trace of the Hessian where it is asked for and not known from as many lines."""
        settings = self._settings
        if not _lacks_trace(data, row, settings):
            return None
        parameters, buffers = origin_state(self._state, self._pool.description.space)
        return find_trace_by_lines(
            self._pool, parameters, buffers, settings.trace_lines, seed=settings.seed, confidence=settings.confidence
        )

    def _check(self, origin: dict[str, float], data: ComparisonData, row: int) -> dict[str, float]:
        if not np.isfinite(origin["loss"]):
            raise CheckpointError(f"the loss at {self._state.label} is not a finite number")
        measured = np.flatnonzero(data.status[row] == PointStatus.MEASURED)
        if len(measured):
            stored = {"loss": float(data.loss[row, measured[0], len(data.t) // 2])}
            tolerance = closeness_elsewhere(self._pool.description.options.precision)
            where = "now, after the file's own value"
            check_same_values("a network", stored, {"loss": origin["loss"]}, where, tolerance)
        return origin

    def _along(
        self, data: ComparisonData, row: int, chunk: Sequence[int], origin: Mapping[str, float], run: Conduct
    ) -> Iterator[_Line]:
        middle, last = len(data.t) // 2, len(data.t) - 1
        names = block_names(self._pool.description.metrics)
        lines = {
            number: _Line(row, number, {middle: origin["loss"]}, {middle: [origin[name] for name in names]})
            for number in chunk
        }
        left = dict.fromkeys(chunk, last)

        def tasks() -> Iterable[PointTask]:
            for place, number in enumerate(chunk):
                if run.is_late:
                    return
                for point, t in enumerate(data.t.tolist()):
                    if point != middle:
                        yield PointTask((number, point), _at(len(chunk), place, t))

        for result in self._pool.run(tasks()):
            number, point = cast("tuple[int, int]", result.key)
            line = lines[number]
            _take(line, point, result, names, ends=(0, last))
            left[number] -= 1
            if not left[number]:
                yield line


def _take(line: _Line, point: int, result: Result, names: Sequence[str], ends: tuple[int, int]) -> None:
    if result.values is None:
        line.error = line.error or result.error or "no traceback"
        return
    line.losses[point] = result.values["loss"]
    if point in ends:
        line.blocks[point] = [result.values[name] for name in names]


def _at(axes: int, place: int, t: float) -> tuple[float, ...]:
    """Returns a place on one of the axes."""
    coordinates = [0.0] * axes
    coordinates[place] = t
    return tuple(coordinates)


def _directions_at_once(space: WeightSpace, directions: int) -> int:
    size = sum(tensor.size * direction_dtype(tensor.dtype).itemsize for tensor in space.trainable)
    return max(1, min(directions, _MOST_DIRECTIONS, _MOST_BYTES // max(size, 1)))


def _fail(data: ComparisonData, row: int, error: Exception, directions: int) -> None:
    wanted = data.status[row, :directions]
    wanted[wanted != PointStatus.MEASURED] = PointStatus.FAILED
    data.errors[data.place_of(row)] = f"{type(error).__name__}: {error}"


def _lacks_trace(data: ComparisonData, row: int, settings: ComparisonSettings) -> bool:
    if not settings.trace_lines:
        return False
    return bool(np.isnan(data.trace[row])) or data.trace_lines.get(data.sha256[row]) != settings.trace_lines


def _keep_trace(data: ComparisonData, row: int, trace: Any, lines: int) -> None:
    data.trace[row], data.trace_low[row], data.trace_high[row] = trace.value, trace.low, trace.high
    data.attributes[TRACE_LINES] = {**data.trace_lines, data.sha256[row]: lines}


def _reasons(data: ComparisonData) -> str:
    out = left_out(data)
    texts = [f"{data.recipe[row]} {data.name[row]} ({reason})" for row, reason in list(out.items())[:_NAMED]]
    return "; ".join([*texts, *([f"and {len(out) - _NAMED} more"] if len(out) > _NAMED else [])])


def _warn_about(data: ComparisonData, run: Conduct, *, kept: bool) -> None:
    if run.is_late and not data.complete:
        remedy = "The same call continues from here." if kept else "Give output= a path, and a later call can continue."
        warnings.warn(
            f"the budget of {duration_text(run.budget or 0)} ended the comparison after "
            f"{data.status_counts[PointStatus.MEASURED]} of {data.status.size} lines. {remedy}",
            stacklevel=4,
        )
    elif left_out(data):
        warnings.warn(f"left out of the comparison: {_reasons(data)}", stacklevel=4)
