"""A plane surveyed with a pool of its own: from what a user asks for to the data of a landscape."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import WeightSpace
from collectors.validation import check_bool
from workers.measurement_options import MeasurementOptions
from workers.pool import Pool
from workers.pools.open_pool import open_pool

from ..planes.curved_line import CurvedLine
from ..planes.plane import Axes, Plane, buffer_policy
from ..planes.plane_file import check_directions, write_directions
from ..record.options import SurveyOptions, pool_options
from .curved_pool import CurvedPool
from .data import LandscapeData
from .experiment import choose_plan, function_attribute
from .forecast import fewest_points
from .kept_plane import keep_directions, keep_plane
from .landscape_file import add_attributes
from .settings import SurveySettings
from .survey import SurveyReport, survey

# How far the loss drawn at a network may be from its own, as a share of the larger one.
_ROUNDING = {"float32": 1e-5, "tf32": 1e-2, "bfloat16": 5e-2}


def survey_plane(
    plane: Plane,
    callback_fn: Callable[[], Any],
    grid: Callable[[Plane], Axes],
    chosen: SurveyOptions,
    *,
    path: AnyPath | None = None,
    device_ids: list[int] | None = None,
    num_samples: int | Mapping[str, int | None] | None = None,
    then: Callable[[Pool, LandscapeData], None] | None = None,
) -> tuple[LandscapeData, SurveyReport]:
    """Opens a pool and measures a plane or a line; ``then`` is called at the end, while the plane is still loaded."""
    axes = grid(plane)
    settings = SurveySettings.checked(chosen)
    buffers = buffer_policy(chosen["buffers"], plane.decomposition, plane.end_buffers)
    measured = MeasurementOptions(
        num_samples,
        chosen["samples"],
        settings.seed,
        buffers,
        chosen["recalibration_batch_size"],
        chosen["precision"],
        chosen["groups"],
        chosen["seed_each_point"],
        chosen["extremes"],
        chosen["keep_samples"],
    )
    if check_bool("save_directions", chosen["save_directions"]) and path is None:
        raise ValueError("save_directions needs output, beside which the directions are kept; give output a path.")
    if chosen["save_directions"] and path is not None:
        check_directions(path)
    with open_pool(
        callback_fn,
        measured,
        device_ids=device_ids,
        **pool_options(chosen),
        plan=choose_plan(
            chosen["plan"], [path] if path is not None and not settings.overwrite else [], measured.precision
        ),
        points=fewest_points(tuple(len(axis) for axis in axes[::-1] if axis is not None), settings.sampling),
        seconds=settings.budget,
    ) as opened:
        pool = CurvedPool(opened, plane.shape) if isinstance(plane, CurvedLine) else opened
        check_same_network(plane, pool.description.space)
        if chosen["buffers"] not in ("auto", pool.description.options.buffers):
            raise ValueError(
                f'buffers="{buffers}" does not reach the Evaluator that callback_fn returns, whose description says '
                f'"{pool.description.options.buffers}". Leave buffers out, or build the Evaluator with these options.'
            )
        if path is not None and plane.curvature is not None:
            plane = keep_plane(path, plane, overwrite=settings.overwrite)
            # Eigenvalues that were kept have other last digits, and so have the ends of the axes.
            axes = grid(plane)
        wanted = path if chosen["save_directions"] and plane.curvature is None else None
        kept = wanted is not None and keep_directions(wanted, plane, overwrite=settings.overwrite)
        said: dict[str, Any] = {"seed": settings.seed, "samples": measured.samples, **function_attribute(callback_fn)}
        data, report = survey(pool, plane, axes, path=path, attributes=said, settings=settings)
        warn_of_other_losses(plane, data)
        if isinstance(plane, CurvedLine):
            add_attributes(path, data, {"path": plane.facts(data.x)})
        if wanted is not None and not kept:
            write_directions(wanted, plane)
        if then is not None:
            then(pool, data)
    return data, report


def check_same_network(plane: Plane, space: WeightSpace) -> None:
    """Raises a LandscapeError where a plane is of another network than callback_fn returns."""
    if differences := space.differences(plane.space):
        raise LandscapeError(
            f"the plane was made for another network ({plane.space.network}) than callback_fn returns:\n  "
            + "\n  ".join(differences[:20])
            + "\nUse the same network for both."
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
        warnings.warn(
            f"the loss drawn at {found.label(row, 'network')} is {drawn[row]:.6g}, but its own is {own[row]:.6g}: "
            "something that is no trainable weight differs between the networks (a frozen parameter, or buffers that "
            "are the first network's everywhere).",
            UserWarning,
            stacklevel=4,
        )
