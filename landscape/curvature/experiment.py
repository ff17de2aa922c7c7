"""Curvature at one set of weights or along a run: an experiment, its identity, its tasks, where their results go."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import RunDirectory
from collectors.shapes import Bool
from collectors.summary.recorded_values import gradient_descent_rates
from collectors.validation import check_int, wrong_type, wrong_value
from collectors.weights.aligned import AlignedState, align
from collectors.weights.safetensors_file import StateReader
from workers.curvature.measuring import CurvatureSettings
from workers.curvature.products import Matrix, ProductSettings
from workers.errors import CurvatureError
from workers.measuring.checks import check_same_values, closeness_elsewhere
from workers.pool import CurvatureResult, CurvatureTask, Pool
from workers.users_code import warn_user

from ..errors import PlaneError, error_message
from ..grid.tasks import openers
from ..planes.directions import NORMALIZATIONS, as_direction
from ..planes.from_checkpoints import random_plane_of
from ..planes.plane import Plane
from ..record.checks import PointStatus
from ..record.driver import Experiment, Stored, carry_out, forecast_text, open_record
from ..record.hdf5 import CURVATURE
from ..record.identity import OF_LOSS, function_attribute, identity_of, measured_attributes, run_attributes
from ..record.record import record_format
from ..record.run import Cost, Run
from ..record.workers import Workers
from ..roles import CHECKPOINT
from .curvature import Curvature
from .data import MATRIX_NAMES, CurvatureData, Eigenvectors, curvature_file, has_vectors, write_vectors
from .facts import counted, failures

_OF_IDENTITY = ("top", "bottom", "trace_probes", "density_probes", "tolerance", "max_products", "seed")
_OF_SETTINGS = (*_OF_IDENTITY, "density_steps", "keep_vectors")
_ERRORS_IN_WARNING = 3
_NUMBER = 0  # of a single set of weights
_MOST_RATES = 1000  # that an attribute holds


def measure_weights(
    reader: StateReader, callback_fn: Callable[[], Any], path: AnyPath | None, chosen: Mapping[str, Any]
) -> Curvature | None:
    return _measure(lambda space: {_NUMBER: align(reader, space)}, callback_fn, path, CHECKPOINT, {}, chosen)


def measure_run(
    directory: RunDirectory,
    callback_fn: Callable[[], Any],
    numbers: Iterable[int] | None,
    folder: AnyPath,
    chosen: Mapping[str, Any],
) -> Curvature | None:
    """Measures the curvature at a run's checkpoints for ``SummaryLandscape.gen_curvature``; None after a dry run."""
    measured_numbers = _numbers(directory, numbers)
    path = folder / curvature_file(chosen["name"] or "curvature", measured_numbers, chosen["matrix"])
    attributes = {
        "step_per_epoch": directory.metadata.step_per_epoch,
        **run_attributes(directory.path, {}, folder),
        **_learning_rate(directory),
    }

    def weights(space: WeightSpace) -> dict[int, AlignedState]:
        return {number: align(directory.checkpoint(number, space), space) for number in measured_numbers}

    return _measure(weights, callback_fn, path, directory.settings.unit, attributes, chosen)


def _learning_rate(run: RunDirectory) -> dict[str, float | dict[str, float]]:
    """Returns the attribute on the learning rate of gradient descent, if the run recorded it: one, or by number."""
    steps_of = 1 if run.settings.unit == "step" else run.metadata.step_per_epoch
    numbers = sorted(run.metadata.files)
    if steps_of is None or len(numbers) > _MOST_RATES:
        return {}
    rates = gradient_descent_rates(run.path, [number * steps_of for number in numbers]) or []
    known = {str(number): rate for number, rate in zip(numbers, rates, strict=False) if rate is not None}
    single = set(known.values())
    return {"learning_rate": single.pop() if len(single) == 1 else known} if known else {}


def _measure(
    weights: Callable[[WeightSpace], Mapping[int, AlignedState]],
    callback_fn: Callable[[], Any],
    path: AnyPath | None,
    unit: str,
    attributes: Mapping[str, Any],
    chosen: Mapping[str, Any],
) -> Curvature | None:
    products = ProductSettings(cast("Matrix", chosen["matrix"]))
    settings = CurvatureSettings(products, **{name: chosen[name] for name in _OF_SETTINGS})
    run, vectors = Run.checked(chosen), dict[int, Eigenvectors]()
    about = {"samples": chosen["samples"], **function_attribute(callback_fn), **attributes}

    def experiments(workers: Workers) -> list[CurvatureExperiment]:
        return [CurvatureExperiment(weights(workers.pool.description.space), settings, about, unit, vectors)]

    with open_record(record_format(CurvatureData), path, run) as stored:
        # Products run eagerly.
        measured = carry_out(experiments, [stored], callback_fn, {**chosen, "compile": False}, run)
    return Curvature(measured[0][0], report=measured[0][1], vectors=vectors) if measured else None


def _numbers(run: RunDirectory, numbers: Iterable[int] | None) -> list[int]:
    unit = run.settings.unit
    if numbers is None:
        present, missing = run.present_numbers, run.missing(tuple(sorted(run.metadata.files)))
        if missing:
            warn_user(f"{run.path} has no checkpoints of {unit}s {missing}; the curvature is measured without them.")
        if not present:
            raise RunDirectoryError(f"{run.path} has no checkpoint at which curvature could be measured. Train first.")
        return present
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise wrong_type("numbers", f"a list of {unit}s such as [0, 5, 20], or None for all", numbers)
    found = sorted({check_int("numbers", number, minimum=0) for number in numbers})
    if not found:
        raise wrong_value("numbers", f"a list of {unit}s that is not empty, or None for all", [])
    return found


@dataclass
class CurvatureExperiment(Experiment[CurvatureData]):
    weights: Mapping[int, AlignedState]  # by their numbers
    settings: CurvatureSettings
    attributes: Mapping[str, Any]  # what the file says beside what the experiment knows itself
    unit: str  # what the numbers count, such as "epoch"
    vectors: dict[int, Eigenvectors] = field(default_factory=dict)  # those that lie in no file, by number
    trial: str = "making a few products"

    def begin(self, stored: Stored[CurvatureData], pool: Pool) -> CurvatureData:
        find_out_how_losses_add_up(pool, self.weights)
        description, settings = pool.description, self.settings
        asked = {
            "matrix": settings.products.matrix,
            **{name: getattr(settings, name) for name in _OF_IDENTITY},
            # Without a start, its length is nobody's.
            **({"density_steps": settings.density_steps} if settings.density_probes else {}),
        }
        numbers = sorted(self.weights)
        sizes = {"pair": settings.top + settings.bottom}
        if settings.density_probes:
            sizes |= {"probe": settings.density_probes, "step": settings.density_steps}
        rows = {"number": numbers, "sha256": [self.weights[number].sha256() for number in numbers]}
        attributes = {
            **self.attributes,
            "unit": self.unit,
            **asked,
            **measured_attributes(description),
            "weights": description.space.dimension,
            "identity": identity_of(description, OF_LOSS, asked),
        }
        return CurvatureData.empty(rows, sizes, attributes).continuing(stored)

    def resume(self, record: CurvatureData, pool: Pool) -> Bool[np.ndarray, " n"]:
        """Returns which rows are measured, or, where vectors are missing, once more."""
        todo = np.array([number in self.weights for number in record.number.tolist()])
        for row in np.flatnonzero(todo & (record.status == PointStatus.MEASURED)).tolist():
            kept = record.path is not None and (not self.settings.keep_vectors or has_vectors(record.path, record, row))
            todo[row] = not kept
        record.forget_failed(np.flatnonzero(todo).tolist())
        return todo

    def forecast(self, record: CurvatureData, todo: Bool[np.ndarray, " n"], pool: Pool, run: Run) -> Cost:
        count, numbers, seconds = len(self.weights), record.number[todo].tolist(), 0.0
        if numbers:
            begin = time.perf_counter()
            result = self._probe(numbers[-1], pool)
            if result.values is None:
                raise CurvatureError(f"{CURVATURE.word} cannot be measured: {error_message(result.error or '')}")
            seconds = (time.perf_counter() - begin) / max(result.values.products, 1)
        products = len(numbers) * expected_products(self.settings, pool.description.space.dimension)
        tasks, workers = counted(count, self.unit), min(pool.workers, max(len(numbers), 1))
        return forecast_text(tasks, count - len(numbers), products, "product", seconds, workers)

    def results(
        self, record: CurvatureData, todo: Bool[np.ndarray, " n"], pool: Pool, run: Run
    ) -> Iterator[str | CurvatureResult]:
        """Yields results: as long as there are enough tasks for all workers each has one, then all share one."""
        numbers = record.number[todo].tolist()
        if numbers:
            self._check_loss(record, todo, pool)
            each = expected_products(self.settings, pool.description.space.dimension)
            matrix = MATRIX_NAMES[self.settings.products.matrix]
            yield f"{counted(len(numbers), self.unit)}, about {each} products of the {matrix} with a vector for each"
        tasks = [curvature_task(number, self.weights[number], self.settings) for number in numbers]
        whole = len(tasks) - len(tasks) % pool.workers
        shared = (pool.measure_curvature(task) for task in run.in_time(tasks[whole:]))
        for result in itertools.chain(pool.run_curvature(run.in_time(tasks[:whole])), shared):
            # First these, so that a row that is measured has them.
            self._keep_vectors(record, result)
            yield result

    def keep(self, record: CurvatureData, result: CurvatureResult) -> int:
        row, values = record.places[(result.key,)], result.values
        if values is None:
            record.status[row] = PointStatus.FAILED
            record.errors[record.place_of(row)] = result.error or "no traceback"
            return 1
        for name in ("loss", "gradient_norm", "products", "forward_passes", "eigenvalues", "residuals", "converged"):
            getattr(record, name)[row] = getattr(values, name)
        record.angle_bound[row] = values.angle_bounds
        if values.trace is not None:
            trace = values.trace
            record.trace[row], record.trace_low[row], record.trace_high[row] = trace.value, trace.low, trace.high
        if values.density is not None:
            record.density_nodes[row], record.density_weights[row] = values.density.nodes, values.density.weights
        # What the values say of their own pairs is of this set of weights alone.
        notes = [f"{self.unit} {result.key}: {note}" if "eigenpairs" in note else note for note in values.notes]
        record.attributes["notes"] = list(dict.fromkeys([*record.attributes["notes"], *notes]))
        record.status[row] = PointStatus.MEASURED
        record.errors.pop(record.place_of(row), None)
        return 1

    def warn(self, record: CurvatureData, run: Run) -> None:
        counts = record.status_counts
        texts = failures(record)
        more = len(texts) - _ERRORS_IN_WARNING
        listed = "\n  ".join([*texts[:_ERRORS_IN_WARNING], *([f"and {more} more"] if more > 0 else [])])
        if texts and not counts[PointStatus.MEASURED]:
            raise CurvatureError(f"the curvature could be measured nowhere: {listed}")
        if counts[PointStatus.FAILED]:
            warn_user(
                f"the curvature at {counts[PointStatus.FAILED]} of {counted(len(record.number), self.unit)} could not "
                f"be measured:\n  {listed}",
            )
        rows = np.flatnonzero((record.status == PointStatus.MEASURED) & (record.converged == 0).any(axis=1))
        if len(rows):
            warn_user(
                f"eigenvalues at {self.unit} {', '.join(str(record.number[row]) for row in rows[:8])} are known less "
                f"well than the tolerance of {self.settings.tolerance:g} asks for: `converged` and `residuals` say "
                "which and how well. Raise max_products, or the tolerance.",
            )

    def _probe(self, number: int, pool: Pool) -> CurvatureResult:
        """Makes a few products at a set of weights."""
        probe = replace(self.settings, top=0, bottom=0, trace_probes=2, density_probes=0, keep_vectors=False)
        return next(iter(pool.run_curvature([curvature_task(number, self.weights[number], probe)])))

    def _check_loss(self, record: CurvatureData, todo: Bool[np.ndarray, " n"], pool: Pool) -> None:
        """Checks that weights which the file has measured still have its loss: a function is part of no identity."""
        known = np.flatnonzero(
            (record.status == PointStatus.MEASURED) & ~todo & np.isin(record.number, [*self.weights])
        )
        if not len(known):
            return
        number, losses = int(record.number[known[-1]]), np.abs(record.loss[np.isfinite(record.loss)])
        values = self._probe(number, pool).values
        if values is not None:
            stored, now, largest = (
                {"loss": float(loss)} for loss in (record.loss[known[-1]], values.loss, losses.max())
            )
            where, tolerance = "now, after the file's own value", closeness_elsewhere("float32", same_kind=False)
            check_same_values(f"{self.unit} {number}", stored, now, where, tolerance, elsewhere=largest)

    def _keep_vectors(self, record: CurvatureData, result: CurvatureResult) -> None:
        if not self.settings.keep_vectors or result.values is None or result.values.vectors is None:
            return
        number = cast("int", result.key)
        state = self.weights[number]
        directions = tuple(as_direction(row, state.space) for row in result.values.vectors)
        arrays = {tensor.name: state.read(tensor.name) for tensor in state.space.tensors}
        vectors = Eigenvectors(state.space, arrays, directions)
        if record.path is None:
            self.vectors[number] = vectors
        else:
            write_vectors(record.path, record, record.places[(number,)], vectors)


def curvature_task(key: Any, state: AlignedState, settings: CurvatureSettings) -> CurvatureTask:
    read, source = openers(state, state.space)
    return CurvatureTask(key, read, settings, source)


def expected_products(settings: CurvatureSettings, dimension: int) -> int:
    """Returns about how many products one set of weights takes, as a convolutional network and a transformer did."""
    # Two largest eigenvalues took 6 to 10 products, five 12 to 17, and the lowest one 18 to 35 more.
    pairs = (4 + 2 * settings.top if settings.top else 0) + (22 + 3 * settings.bottom if settings.bottom else 0)
    return (
        min(pairs, settings.max_products, dimension)
        + settings.trace_probes
        + settings.density_probes * min(settings.density_steps, dimension)
    )


def find_out_how_losses_add_up(pool: Pool, weights: Mapping[int, AlignedState]) -> int | None:
    """Lets workers find out whether the loss splits into samples, on a random line from the last finite weights.

    Returns their number; None where none are finite.
    """
    for number in sorted(weights, reverse=True):
        try:
            with np.errstate(over="raise"):
                line = _random_line(weights[number], pool.description.space)
        except (CheckpointError, FloatingPointError):
            continue  # a training that diverged; each such set gets an error of its own
        pool.load(line.origin, line.directions, line.buffers, (), [(1.0,)])
        return number
    return None


def _random_line(state: AlignedState, space: WeightSpace) -> Plane:
    # Weights that are all zero have no scale: only the last normalization moves them.
    *scaled, unscaled = NORMALIZATIONS
    line = functools.partial(random_plane_of, state, space, seed=0, perturb_one_dimensional=True, dimension=1)
    for normalization in scaled:
        with contextlib.suppress(PlaneError):
            return line(normalization=normalization)
    return line(normalization=unscaled)
