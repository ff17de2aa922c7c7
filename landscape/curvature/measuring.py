"""``measure_curvature``: the curvature at one set of weights, and what it shares with a run's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from collectors.errors import RunDirectoryError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import RunDirectory
from collectors.summary.recorded_values import gradient_descent_rates
from collectors.validation import check_int, wrong_type, wrong_value
from collectors.weights.aligned import AlignedState, Weights, align, as_reader
from workers.curvature.measuring import CurvatureSettings
from workers.curvature.products import Matrix, ProductSettings
from workers.users_code import warn_user

from ..record.driver import carry_out, open_record
from ..record.options import CurvatureOptions, RunCurvatureOptions, documented, with_defaults
from ..record.provenance import function_attribute, run_attributes
from ..record.record import record_format
from ..record.run import Run
from ..record.writer import output_file
from ..roles import CHECKPOINT
from .curvature import Curvature
from .data import CurvatureData
from .experiment import CurvatureExperiment
from .vectors_file import Eigenvectors

if TYPE_CHECKING:
    from typing import Unpack

_NUMBER = 0  # of a single set of weights
_MOST_RATES = 1000  # that an attribute holds
_OF_SETTINGS = (
    "top", "bottom", "trace_probes", "density_probes", "density_steps", "tolerance", "max_products", "keep_vectors",
    "seed",
)  # fmt: skip
_DRY_RUN = "dry run: reads the data set and makes a few products at the last checkpoint; writes nothing"


@documented(CurvatureOptions)
def measure_curvature(
    weights: Weights,
    callback_fn: Callable[[], Any],
    *,
    device_ids: list[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    num_samples: int | Mapping[str, int | None] | None = None,
    **options: Unpack[CurvatureOptions],
) -> Curvature:
    """Measures how a loss bends at one set of weights: eigenvalues of its Hessian, their sum, their density.

    Args:
        weights: a network, a state dict, or the path of a file of weights.
        callback_fn: takes no argument, returns (model, network, dataset, metrics) of PyTorch or JAX.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        output: the curvature file, or its fsspec URL; None keeps all in memory. A file of the same identity is
            continued.
        num_samples: samples that the loss is a mean over; None means all of the data set. Where callback_fn returns
            several data sets by name, that of the first one counts.
        **options: see ``CurvatureOptions``.

    Returns:
        The curvature, with one row; its ``path`` is ``output``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        CurvatureError: the loss is not finite, or the network or the loss has no second derivative.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.
    """
    chosen: CurvatureOptions = with_defaults("measure_curvature", CurvatureOptions, options)
    settings, run = _settings(chosen), Run.checked(chosen)
    reader = as_reader("weights", weights)
    path = None if output is None else output_file(output, (reader,))
    how = {**chosen, "device_ids": device_ids, "num_samples": num_samples}
    measured = _measure(
        lambda space: {_NUMBER: align(reader, space)}, callback_fn, path, CHECKPOINT, {}, how, settings, run
    )
    assert measured is not None
    return measured


def measure_run(
    directory: RunDirectory,
    callback_fn: Callable[[], Any],
    numbers: Iterable[int] | None,
    folder: AnyPath,
    *,
    stem: str,
    device_ids: list[int] | None,
    num_samples: int | Mapping[str, int | None] | None,
    chosen: RunCurvatureOptions,
) -> Curvature | None:
    """Measures the curvature at a run's checkpoints for ``SummaryLandscape.gen_curvature``; None after a dry run."""
    settings, run = _settings(chosen), Run.checked(chosen)
    measured_numbers = _numbers(directory, numbers)
    span = f"{measured_numbers[0]}-{measured_numbers[-1]}" if len(measured_numbers) > 1 else f"{measured_numbers[0]}"
    path = folder / f"{stem}_{span}{'' if chosen['matrix'] == 'hessian' else '_' + chosen['matrix']}.h5"
    attributes = {
        "step_per_epoch": directory.metadata.step_per_epoch,
        **run_attributes(directory.path, {}, folder),
        **_learning_rate(directory),
    }
    how = {**chosen, "device_ids": device_ids, "num_samples": num_samples}

    def weights(space: WeightSpace) -> dict[int, AlignedState]:
        return {number: align(directory.checkpoint(number, space), space) for number in measured_numbers}

    return _measure(weights, callback_fn, path, directory.settings.unit, attributes, how, settings, run)


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
    options: Mapping[str, Any],
    settings: CurvatureSettings,
    run: Run,
) -> Curvature | None:
    """Returns the curvature at sets of weights, or None after a dry run, which prints a forecast."""
    run.say(_DRY_RUN, timed=False)
    vectors: dict[int, Eigenvectors] = {}
    about = {"samples": options["samples"], **function_attribute(callback_fn), **attributes}

    def experiment(space: WeightSpace) -> CurvatureExperiment:
        return CurvatureExperiment(weights(space), settings, about, unit, vectors)

    with open_record(record_format(CurvatureData), path, run) as stored:
        # Products run eagerly.
        measured = carry_out(experiment, stored, callback_fn, {**options, "compile": False}, run)
    return None if measured is None else Curvature(measured[0], report=measured[1], vectors=vectors)


def _settings(chosen: CurvatureOptions) -> CurvatureSettings:
    """Returns what is measured, checked."""
    return CurvatureSettings(
        ProductSettings(cast("Matrix", chosen["matrix"])),
        **{name: chosen[name] for name in _OF_SETTINGS},  # type: ignore[literal-required]
    )


def _numbers(run: RunDirectory, numbers: Iterable[int] | None) -> list[int]:
    """Returns the numbers of the checkpoints to measure, in order, each once."""
    unit = run.settings.unit
    if numbers is None:
        every = tuple(sorted(run.metadata.files))
        present, missing = run.present(every), run.missing(every)
        if missing:
            warn_user(
                f"{run.path} has no checkpoints of {unit}s {missing}; the curvature is measured without them.",
            )
        if not present:
            raise RunDirectoryError(f"{run.path} has no checkpoint at which curvature could be measured. Train first.")
        return present
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise wrong_type("numbers", f"a list of {unit}s such as [0, 5, 20], or None for all", numbers)
    found = sorted({check_int("numbers", number, minimum=0) for number in numbers})
    if not found:
        raise wrong_value("numbers", f"a list of {unit}s that is not empty, or None for all", [])
    return found
