"""``evaluate``: measures any plane or line, for people who never ran a collector."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath, check_can_be_file, check_directory
from collectors.files.remote_path import RemotePath
from collectors.networks.weight_space import WeightSpace
from collectors.validation import check_bool, check_instance, wrong_type
from workers.evaluator import MeasurementOptions
from workers.pools.open_pool import open_pool

from .landscape import Landscape
from .planes.plane import Plane, buffer_policy, write_directions
from .survey.experiment import choose_plan
from .survey.forecast import fewest_points
from .survey.options import SurveyOptions, documented, with_defaults
from .survey.settings import SurveySettings
from .survey.survey import survey

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import Float64
    from numpy.typing import ArrayLike


@documented(SurveyOptions)
def evaluate(
    plane: Plane,
    callback_fn: Callable[[], Any],
    *,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    size: int | tuple[int, int] = 40,
    device_ids: list[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    num_samples: int | None = None,
    **options: Unpack[SurveyOptions],
) -> Landscape:
    """Measures a plane or a line.

    Args:
        plane: from ``random_plane``, ``pca_plane``, ``plane_through``, ``line_between``, ...
        callback_fn: takes no argument, returns (model, network, dataset, metrics) or an Evaluator.
        x: coordinates along the first direction, shape (nx,), increasing; None takes the plane's own axes.
        y: coordinates along the second direction, shape (ny,), increasing; a line has none.
        size: points along each axis where the plane's own axes are taken.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        output: the landscape file, or its fsspec URL such as ``s3://bucket/run/landscape.h5``; None keeps the landscape
            in memory only. A file of the same identity is continued.
        num_samples: samples that a value is averaged over; None means all of the data set.
        **options: see ``SurveyOptions``.

    Returns:
        The landscape; its ``path`` is ``output``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.
    """
    chosen: SurveyOptions = with_defaults("evaluate", SurveyOptions, options)
    check_instance("plane", plane, Plane, "a Plane (from random_plane, pca_plane, plane_through, line_between)")
    if plane.dimension == 1 and y is not None:
        raise ValueError("y must be None for a line, which has one direction; use a plane, or leave y out.")
    own_x, own_y = plane.axes(size) if x is None or (y is None and plane.dimension == 2) else (None, None)
    x_axis = own_x if x is None else _axis("x", x)
    y_axis = own_y if y is None else _axis("y", y)
    assert x_axis is not None
    settings = SurveySettings.checked(chosen)
    buffers = buffer_policy(chosen["buffers"], plane.decomposition, plane.end_buffers)
    measured = MeasurementOptions(
        num_samples, chosen["samples"], settings.seed, buffers, chosen["recalibration_batch_size"]
    )
    path = None if output is None else _output_file(output)
    if check_bool("save_directions", chosen["save_directions"]) and path is None:
        raise ValueError("save_directions needs output, beside which the directions are kept; give output a path.")
    with open_pool(
        callback_fn,
        measured,
        device_ids=device_ids,
        devices_per_worker=chosen["devices_per_worker"],
        workers_per_device=chosen["workers_per_device"],
        address=chosen["address"],
        sample_memory=chosen["sample_memory"],
        plan=choose_plan(chosen["plan"], [path] if path is not None and not settings.overwrite else []),
        compile=chosen["compile"],
        points=fewest_points(len(x_axis) * (1 if y_axis is None else len(y_axis)), settings.sampling),
        seconds=settings.budget,
    ) as pool:
        _check_same_network(plane, pool.description.space)
        if chosen["buffers"] not in ("auto", pool.description.options.buffers):
            raise ValueError(
                f'buffers="{buffers}" does not reach the Evaluator that callback_fn returns, whose description says '
                f'"{pool.description.options.buffers}". Leave buffers out, or build the Evaluator with these options.'
            )
        data, report = survey(
            pool,
            plane,
            (x_axis, y_axis),
            path=path,
            attributes={"seed": settings.seed, "samples": measured.samples},
            settings=settings,
        )
        if chosen["save_directions"] and path is not None:
            write_directions(path, plane)
    return Landscape(data, path, report)


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


def _output_file(output: object) -> AnyPath:
    path = check_directory("output", output)
    if isinstance(path, RemotePath):
        path.parent.check_writable("output")
    else:
        check_can_be_file("output", path)
    return path


def _check_same_network(plane: Plane, space: WeightSpace) -> None:
    if differences := space.differences(plane.space):
        raise LandscapeError(
            f"the plane was made for another network ({plane.space.network}) than callback_fn returns:\n  "
            + "\n  ".join(differences[:20])
            + "\nUse the same network for both."
        )
