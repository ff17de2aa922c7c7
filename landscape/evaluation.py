"""``evaluate``: measures any plane or line, for people who never ran a collector."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.validation import check_instance, wrong_type

from .grid.measuring import measure_plane
from .landscape import Landscape
from .paths.path import Path
from .planes.extent import check_extent
from .planes.plane import Axes, Plane
from .record.options import SurveyOptions, documented, with_defaults
from .record.writer import output_file

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import Float64
    from numpy.typing import ArrayLike


@documented(SurveyOptions)
def evaluate(
    plane: Plane | Path,
    callback_fn: Callable[[], Any],
    *,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    size: int | tuple[int, int] = 40,
    device_ids: list[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    num_samples: int | Mapping[str, int | None] | None = None,
    **options: Unpack[SurveyOptions],
) -> Landscape:
    """Measures a plane or a line.

    Args:
        plane: from ``random_plane``, ``pca_plane``, ``plane_through``, ``line_between``, ``hessian_plane``, ..., or a
            ``Path``. The vectors of ``hessian_plane`` are always kept beside ``output``, as ``save_directions`` does,
            and the control points of a path in ``<stem>_path.safetensors``.
        callback_fn: takes no argument, returns (model, network, dataset, metrics) or an Evaluator.
        x: coordinates along the first direction, shape (nx,), increasing; None takes the plane's own axes, or those
            of ``limits`` or ``margin``.
        y: coordinates along the second direction, shape (ny,), increasing; a line has none.
        size: points along each axis where the plane's own axes are taken.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        output: the landscape file, or its fsspec URL such as ``s3://bucket/run/landscape.h5``; None keeps the landscape
            in memory only. A file of the same identity is continued; if it is on another grid, all that is measured
            must be on the new grid as well, and is kept.
        num_samples: samples that a value is averaged over; None means all of the data set. Where callback_fn returns
            several data sets by name, one number for each of them, or a mapping by name.
        **options: see ``SurveyOptions``.

    Returns:
        The landscape; its ``path`` is ``output``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.
    """
    chosen: SurveyOptions = with_defaults("evaluate", SurveyOptions, options)
    route, plane = (plane, plane.line()) if isinstance(plane, Path) else (None, plane)
    if route is not None and chosen["save_directions"]:
        raise ValueError("save_directions must be left out for a path, whose control points are kept in any case.")
    check_instance("plane", plane, Plane, "a Plane (from random_plane, pca_plane, plane_through, line_between)")
    if plane.dimension == 1 and y is not None:
        raise ValueError("y must be None for a line, which has one direction; use a plane, or leave y out.")
    limits, margin = check_extent(chosen["limits"], chosen["margin"])
    if not (x is None and y is None) and not (limits is None and margin is None):
        raise ValueError("x and y say where the grid ends; leave out limits and margin, or x and y.")

    def grid(plane: Plane) -> Axes:
        needs_axes = x is None or (y is None and plane.dimension == 2)
        own_x, own_y = plane.axes(size, margin, limits) if needs_axes else (None, None)
        x_axis = own_x if x is None else _axis("x", x)
        assert x_axis is not None
        return x_axis, own_y if y is None else _axis("y", y)

    path = None if output is None else output_file(output, plane.checkpoints)
    if route is not None and path is not None:
        route.check_beside(path)
    data, report = measure_plane(
        plane, callback_fn, grid, chosen, path=path, device_ids=device_ids, num_samples=num_samples
    )
    if route is not None and path is not None:
        route.keep_beside(path)
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
