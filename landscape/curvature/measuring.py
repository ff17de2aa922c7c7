"""Measures the curvature at one set of weights, or along a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from collectors.errors import RunDirectoryError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import RunDirectory
from collectors.summary.recorded_values import gradient_descent_rates
from collectors.validation import check_int, wrong_type, wrong_value
from collectors.weights.aligned import AlignedState, align
from collectors.weights.safetensors_file import StateReader
from workers.curvature.measuring import CurvatureSettings
from workers.curvature.products import Matrix, ProductSettings
from workers.users_code import warn_user

from ..record.driver import carry_out, open_record
from ..record.provenance import function_attribute, run_attributes
from ..record.record import record_format
from ..record.run import Run
from ..record.workers import Workers
from ..roles import CHECKPOINT
from .curvature import Curvature
from .data import CurvatureData
from .experiment import CurvatureExperiment
from .vectors_file import Eigenvectors

_NUMBER = 0  # of a single set of weights
_MOST_RATES = 1000  # that an attribute holds
_OF_SETTINGS = (
    "top", "bottom", "trace_probes", "density_probes", "density_steps", "tolerance", "max_products", "keep_vectors",
    "seed",
)  # fmt: skip


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
    span = f"{measured_numbers[0]}-{measured_numbers[-1]}" if len(measured_numbers) > 1 else f"{measured_numbers[0]}"
    matrix = "" if chosen["matrix"] == "hessian" else f"_{chosen['matrix']}"
    path = folder / f"{chosen['name'] or 'curvature'}_{span}{matrix}.h5"
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
    """Returns the numbers of the checkpoints to measure, in order, each once."""
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
