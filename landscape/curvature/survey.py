"""Measures the curvature at sets of weights with a pool, keeps it in a file, continues where a run stopped."""

from __future__ import annotations

import contextlib
import functools
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from collectors.files.places import AnyPath
from collectors.networks.weight_space import WeightSpace
from collectors.progress_bar import progress_bar
from collectors.weights.aligned import AlignedState, NetworkState
from collectors.weights.safetensors_file import portable
from workers.curvature.measuring import CurvatureSettings
from workers.errors import CurvatureError
from workers.measuring.memory_shortage import shortage_text
from workers.pool import CurvatureResult, CurvatureTask, Pool

from ..errors import error_message
from ..file.checks import PointStatus
from ..file.kind import CURVATURE
from ..file.lock import clean_temporaries, lock_landscape
from ..file.writer import LandscapeWriter
from ..record.read_only_record import MeasurementReport
from ..record.record_file import record_bytes
from ..record.store import continued
from ..survey.adding_up import find_out_how_losses_add_up
from ..survey.settings import Conduct, duration_text
from .curvature import Curvature
from .data import MATRIX_NAMES, CurvatureData
from .facts import failures
from .rows import Held, keep, left_to_measure, nothing_measured
from .vectors_file import Eigenvectors, write_vectors

_ERRORS_IN_WARNING = 3
# A row may have cost minutes, and there are few.
_FLUSH_SECONDS = 0.5


def survey_curvature(
    pool: Pool,
    weights: Held,
    settings: CurvatureSettings,
    *,
    path: AnyPath | None,
    attributes: Mapping[str, Any],
    run: Conduct,
) -> Curvature:
    """Measures the curvature at sets of weights; what the file holds of this identity stays.

    Args:
        pool: where it is measured.
        weights: by their numbers.
        settings: what is measured.
        path: the curvature file; None keeps all in memory.
        attributes: what the file says beside what the survey knows itself.
        run: how.

    Raises:
        CurvatureError: nothing can be differentiated, or the curvature could be measured at no set of weights.
        LandscapeError: the file cannot be used or written; the subclass says why.
        PoolError: no worker is left.
    """
    start = time.perf_counter()
    find_out_how_losses_add_up(pool, weights)
    with contextlib.ExitStack() as lock:
        if path is not None:
            lock.enter_context(lock_landscape(path, CURVATURE))
            clean_temporaries(path)
        fresh = nothing_measured(pool.description, weights, settings, attributes)
        data, was_there = continued(path, fresh, overwrite=run.overwrite)
        todo = left_to_measure(data, weights, settings, path)
        # What is measured a second time, because its vectors are missing, is no row of before.
        again = np.searchsorted(data.number, todo)
        data.forget_failed(again.tolist())
        before = int((np.delete(data.status, again) == PointStatus.MEASURED).sum())
        held: dict[int, Eigenvectors] = {}
        try:
            _measure(pool, weights, settings, data, todo, held, path, run)
        except CurvatureError:
            if isinstance(path, Path) and not was_there:
                path.unlink(missing_ok=True)  # it says nothing yet
            raise
    _warn_about(data, settings, run, kept=path is not None)
    measured = data.status_counts[PointStatus.MEASURED]
    report = MeasurementReport(measured - before, before, time.perf_counter() - start, pool.workers)
    if data.errors and not measured:
        raise CurvatureError(f"the curvature could be measured nowhere: {_failures(data)}")
    return Curvature(data, path, report, held)


def forecast_curvature(
    pool: Pool, weights: Held, settings: CurvatureSettings, *, path: AnyPath | None, run: Conduct, unit: str
) -> str:
    """Returns in words what ``survey_curvature`` would cost; makes a few products, and writes nothing.

    Raises:
        CurvatureError: nothing can be differentiated.
        LandscapeError: the file cannot be used; the subclass says why.
    """
    find_out_how_losses_add_up(pool, weights)
    fresh = nothing_measured(pool.description, weights, settings, {"unit": unit})
    data, _ = continued(path, fresh, overwrite=run.overwrite)
    todo = left_to_measure(data, weights, settings, path)
    counts = f"{len(weights)} {unit}{'s' if len(weights) > 1 else ''}"
    known = len(weights) - len(todo)
    text = f"{counts}, {known} of them measured before" if known else counts
    if not todo:
        return f"{text}; nothing is left to measure"
    each = expected_products(settings, pool.description.space.dimension)
    probe = replace(settings, top=0, bottom=0, trace_probes=2, density_probes=0, keep_vectors=False)
    begin = time.perf_counter()
    result = next(iter(pool.run_curvature([_task(todo[-1], weights, probe)])))
    if result.values is None:
        raise CurvatureError(f"{CURVATURE.word} cannot be measured: {error_message(result.error or '')}")
    product = (time.perf_counter() - begin) / max(result.values.products, 1)
    at_once = min(pool.workers, len(todo))
    return (
        f"{text}; about {each} products for each, a product takes {duration_text(product)}: about "
        f"{duration_text(each * len(todo) * product / at_once)}"
        + (f" on {pool.workers} workers" if pool.workers > 1 else "")
    )


def expected_products(settings: CurvatureSettings, dimension: int) -> int:
    """Returns about how many products one set of weights takes: measured on a convolutional network and a transformer.

    Args:
        settings: what is measured.
        dimension: how many weights are trainable.
    """
    # Two largest eigenvalues took 6 to 10 products, five 12 to 17, and the lowest one 18 to 35 more.
    pairs = (4 + 2 * settings.top if settings.top else 0) + (22 + 3 * settings.bottom if settings.bottom else 0)
    return (
        min(pairs, settings.max_products, dimension)
        + settings.trace_probes
        + settings.density_probes * min(settings.density_steps, dimension)
    )


def _measure(
    pool: Pool,
    weights: Held,
    settings: CurvatureSettings,
    data: CurvatureData,
    todo: Sequence[int],
    held: dict[int, Eigenvectors],
    path: AnyPath | None,
    run: Conduct,
) -> None:
    space, plan = pool.description.space, pool.description.plan
    writer = LandscapeWriter(path, data, _FLUSH_SECONDS, encode=record_bytes, kind=CURVATURE)
    unit = str(data.attributes["unit"])
    bar = progress_bar(len(data.number), unit, shown=run.progress, done=len(data.number) - len(todo), name="curvature")
    with writer, bar:
        if run.progress and todo:
            each = expected_products(settings, space.dimension)
            bar.write(
                f"{bar.desc}: {len(todo)} {unit}{'s' if len(todo) > 1 else ''}, about {each} products of the "
                f"{MATRIX_NAMES[settings.products.matrix]} with a vector for each",
                file=bar.fp,
            )
        tasks = [_task(number, weights, settings) for number in todo]
        for result in _results(pool, tasks, run):
            number = cast("int", result.key)
            row = int(np.searchsorted(data.number, number))
            if settings.keep_vectors and result.values is not None and result.values.vectors is not None:
                state = NetworkState(_opener(weights[number]), space, own_buffers=True)()
                found = Eigenvectors.of(space, *state, result.values.vectors)
                if path is None:
                    held[number] = found
                else:
                    # First these, so that a row that is measured has them.
                    write_vectors(path, data, row, found)
            writer.update(functools.partial(keep, data, row, result))
            if pool.description.plan != plan:
                warnings.warn(shortage_text(plan.batch_size, pool.description.plan.batch_size), stacklevel=4)
                plan = pool.description.plan
                writer.update(functools.partial(data.attributes.update, measurement_plan=plan.to_json()))
            bar.update()


def _results(pool: Pool, tasks: Sequence[CurvatureTask], run: Conduct) -> Iterator[CurvatureResult]:
    """Yields the results of tasks: as long as there are enough for all workers each has one, then all share one."""

    def until_late(some: Iterable[CurvatureTask]) -> Iterator[CurvatureTask]:
        for task in some:
            if run.is_late:
                return
            yield task

    whole = len(tasks) - len(tasks) % pool.workers
    yield from pool.run_curvature(until_late(tasks[:whole]))
    for task in until_late(tasks[whole:]):
        yield pool.measure_curvature(task)


def _task(number: int, weights: Held, settings: CurvatureSettings) -> CurvatureTask:
    state = weights[number]
    elsewhere = portable(state)
    space: WeightSpace = state.space
    return CurvatureTask(
        number,
        NetworkState(_opener(state), space, own_buffers=True),
        settings,
        None if elsewhere is None else NetworkState(elsewhere, space, own_buffers=True),
    )


def _opener(state: AlignedState) -> Any:
    return lambda: state


def _failures(data: CurvatureData) -> str:
    texts = failures(data)
    more = len(texts) - _ERRORS_IN_WARNING
    return "\n  ".join([*texts[:_ERRORS_IN_WARNING], *([f"and {more} more"] if more > 0 else [])])


def _warn_about(data: CurvatureData, settings: CurvatureSettings, run: Conduct, *, kept: bool) -> None:
    counts, unit = data.status_counts, data.attributes["unit"]
    if counts[PointStatus.FAILED] and counts[PointStatus.MEASURED]:
        warnings.warn(
            f"the curvature at {counts[PointStatus.FAILED]} of {len(data.number)} {unit}s could not be measured:\n  "
            f"{_failures(data)}",
            stacklevel=4,
        )
    rows = np.flatnonzero((data.status == PointStatus.MEASURED) & (data.converged == 0).any(axis=1))
    if len(rows):
        warnings.warn(
            f"eigenvalues at {unit} {', '.join(str(data.number[row]) for row in rows[:8])} are known less well than "
            f"the tolerance of {settings.tolerance:g} asks for: `converged` and `residuals` say which and how well. "
            "Raise max_products, or the tolerance.",
            stacklevel=4,
        )
    if counts[PointStatus.PENDING] and run.is_late:
        remedy = "The same call continues from here." if kept else "Give output= a path, and a later call can continue."
        warnings.warn(
            f"the budget of {duration_text(run.budget or 0)} ended the measurement after "
            f"{counts[PointStatus.MEASURED]} of {len(data.number)} {unit}s. {remedy}",
            stacklevel=4,
        )
