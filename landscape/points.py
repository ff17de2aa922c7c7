"""``measure_points``: measures a plane or a line at any points, without a grid and without a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.validation import check_instance, wrong_type, wrong_value
from workers.measuring.checks import check_determinism
from workers.pool import PointTask
from workers.users_code import warn_user

from .grid.measuring import check_same_network
from .planes.plane import Plane, buffer_policy
from .record.options import PointOptions, documented, with_defaults
from .record.workers import open_workers

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import Float64
    from numpy.typing import ArrayLike


@documented(PointOptions)
def measure_points(
    plane: Plane,
    callback_fn: Callable[[], Any],
    points: ArrayLike,
    *,
    device_ids: list[int] | None = None,
    num_samples: int | Mapping[str, int | None] | None = None,
    **options: Unpack[PointOptions],
) -> dict[str, Float64[np.ndarray, " k"]]:
    """Measures k points of a plane or a line, wherever they lie; nothing is interpolated or written.

    With the options of a landscape, the numbers are the same as that landscape's, to the last bit with its plan too.

    Args:
        plane: from ``random_plane``, ``pca_plane``, ``Plane.load``, ...
        callback_fn: takes no argument, returns (model, network, dataset, metrics) or an Evaluator.
        points: coordinates, shape (k, 2) on a plane and (k, 1) on a line, in units of the directions.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        num_samples: samples that a value is averaged over; None means all of the data set.
        **options: see ``PointOptions``.

    Returns:
        Every metric by name, "loss" first, each of the shape (k,) in the order of the points; NaN where a point failed,
        which a warning says.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        NondeterministicLossError: the same weights gave two losses.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.
    """
    chosen: PointOptions = with_defaults("measure_points", PointOptions, options)
    check_instance("plane", plane, Plane, "a Plane (from random_plane, pca_plane, plane_through, line_between)")
    places = _check_points(points, plane.dimension)
    buffers = buffer_policy(chosen["buffers"], plane.decomposition, plane.end_buffers)
    how = {**chosen, "buffers": buffers, "num_samples": num_samples, "device_ids": device_ids}
    with open_workers(callback_fn, how, points=len(places)) as pool:
        check_same_network(plane, pool.description.space)
        ends = () if pool.description.options.buffers == "fixed" else plane.end_buffers
        corners = sorted((tuple(map(float, place)) for place in places), key=lambda place: -math.hypot(*place))
        pool.load(plane.origin, plane.directions, plane.buffers, ends, corners[:4])
        check_determinism(pool.measure_origin(), pool.description.options.precision)
        found = {name: np.full(len(places), np.nan) for name in pool.description.metrics}
        failures = []
        tasks = [PointTask(row, tuple(map(float, place))) for row, place in enumerate(places)]
        for result in pool.run(tasks):
            row = int(result.key)  # type: ignore[call-overload]
            if result.values is None:
                failures.append((row, result.error))
                continue
            for name, value in result.values.items():
                found[name][row] = value
    if failures:
        row, text = min(failures)
        warn_user(
            f"{len(failures)} of {len(places)} points failed and are NaN; the first one is points[{row}]:\n{text}",
        )
    return found


def _check_points(points: object, dimension: int) -> Float64[np.ndarray, "k d"]:
    expected = f"an array of the shape (k, {dimension}) with finite coordinates, k at least 1"
    try:
        places = np.array(points, np.float64)
    except (TypeError, ValueError) as error:
        raise wrong_type("points", expected, points) from error
    if places.ndim != 2 or places.shape[1] != dimension or not len(places) or not np.isfinite(places).all():
        raise wrong_value("points", expected, places.shape if np.isfinite(places).all() else points)
    return places
