"""Measures a plane with workers of its own: from what a user asks for to the data of a landscape."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import WeightSpace
from workers.pool import Pool
from workers.users_code import warn_user

from ..planes.plane import Axes, Plane, buffer_policy
from ..planes.plane_file import check_directions, write_directions
from ..record.driver import Stored, measure, open_record
from ..record.options import SurveyOptions
from ..record.provenance import function_attribute
from ..record.run import Run
from ..record.workers import open_workers
from ..sampling.settings import SamplingSettings
from .data import LandscapeData
from .experiment import GridExperiment
from .forecast import SurveyReport, fewest_points
from .kept_plane import keep_directions, keep_plane
from .landscape_file import LANDSCAPE_FILE

# How far the loss drawn at a network may be from its own, as a share of the larger one.
_ROUNDING = {"float32": 1e-5, "tf32": 1e-2, "bfloat16": 5e-2}


def measure_plane(
    plane: Plane,
    callback_fn: Callable[[], Any],
    grid: Callable[[Plane], Axes],
    chosen: SurveyOptions,
    *,
    path: AnyPath | None = None,
    device_ids: list[int] | None = None,
    num_samples: int | Mapping[str, int | None] | None = None,
    closing: Callable[[Pool, LandscapeData], Mapping[str, Any]] | None = None,
) -> tuple[LandscapeData, SurveyReport]:
    """Measures a plane or a line; ``closing`` returns further attributes while the plane is still loaded."""
    axes = grid(plane)
    sampling, run = SamplingSettings.checked(chosen), Run.checked(chosen)
    buffers = buffer_policy(chosen["buffers"], plane.decomposition, plane.end_buffers)
    if (save := chosen["save_directions"]) and path is None:
        raise ValueError("save_directions needs output, beside which the directions are kept; give output a path.")
    if save and path is not None:
        check_directions(path)
    how = {**chosen, "buffers": buffers, "num_samples": num_samples, "device_ids": device_ids}
    with contextlib.ExitStack() as stack:
        stored = stack.enter_context(open_record(LANDSCAPE_FILE, path, run))
        points = fewest_points(tuple(len(axis) for axis in axes[::-1] if axis is not None), sampling.sampling)
        pool = stack.enter_context(open_workers(callback_fn, how, stored=[stored], points=points, seconds=run.budget))
        check_same_network(plane, pool.description.space)
        if chosen["buffers"] not in ("auto", pool.description.options.buffers):
            raise ValueError(
                f'buffers="{buffers}" does not reach the Evaluator that callback_fn returns, whose description says '
                f'"{pool.description.options.buffers}". Leave buffers out, or build the Evaluator with these options.'
            )
        if path is not None and plane.curvature is not None:
            plane = keep_plane(stored, plane, overwrite=run.overwrite)
            # Eigenvalues that were kept have other last digits, and so have the ends of the axes.
            axes = grid(plane)
        attributes = {"seed": sampling.seed, "samples": chosen["samples"], **function_attribute(callback_fn)}
        experiment = GridExperiment(plane, axes, sampling, attributes, closing=closing)
        data, report = measure_grid(experiment, stored, pool, run, save_directions=save)
    warn_of_other_losses(plane, data)
    return data, report


def measure_grid(
    experiment: GridExperiment, stored: Stored[LandscapeData], pool: Pool, run: Run, *, save_directions: bool = False
) -> tuple[LandscapeData, SurveyReport]:
    """Measures what a landscape's file lacks, and keeps its plane beside it where that is asked for."""
    plane, path = experiment.plane, stored.path
    # Planes along eigenvectors are kept in any case.
    wanted = path if save_directions and plane.curvature is None else None
    kept = wanted is None or keep_directions(stored, plane, overwrite=run.overwrite)
    data, report = measure(experiment, stored, pool, run)
    if wanted is not None and not kept:
        write_directions(wanted, plane)
    assert experiment.predicted is not None
    # The origin is measured in any case, and what is copied is not.
    measured = report.measured + 1 - experiment.copied
    return data, SurveyReport(measured, report.resumed, report.seconds, report.workers, experiment.predicted)


def check_same_network(plane: Plane, space: WeightSpace) -> None:
    """Raises a LandscapeError where a plane is of another network than callback_fn returns."""
    if differences := space.differences(plane.space):
        raise LandscapeError(
            f"the plane was made for another network ({plane.space.network}) than callback_fn returns:\n  "
            + "\n  ".join(differences[:20])
            + "\nUse the same network for both, also where callback_fn asks whether there is a GPU."
        )


def warn_of_other_losses(plane: Plane, data: LandscapeData) -> None:
    """Warns where a line, a plane or a curve through networks does not meet the loss of one of them."""
    found, named = data.checkpoints, plane.identity.get("points") or plane.checkpoints
    if plane.decomposition not in ("points", "path") or found is None:
        return
    own, drawn = (part["loss"][: len(named)] for part in (found.metrics, found.projected))
    rounding = _ROUNDING[data.attributes["measurement_plan"].get("precision", "float32")]
    with np.errstate(invalid="ignore"):
        far = np.abs(own - drawn) > rounding * np.maximum(1e-2, np.fmax(np.abs(own), np.abs(drawn)))
    for row in np.flatnonzero(far).tolist():
        warn_user(
            f"the loss drawn at {found.label(row, 'network')} is {drawn[row]:.6g}, but its own is {own[row]:.6g}: "
            "something that is no trainable weight differs between the networks (a frozen parameter, or buffers that "
            "are the first network's everywhere).",
        )
