"""``evaluate``: measures any plane or line, for people who never ran a collector."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath, check_can_be_file, check_directory
from collectors.files.remote_path import RemotePath
from collectors.validation import check_bool, check_instance, check_int, wrong_type
from workers.evaluator import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pools.open_pool import open_pool

from .landscape import Landscape
from .planes.plane import Plane, write_directions
from .survey.experiment import stored_plan
from .survey.forecast import fewest_points
from .survey.settings import SurveySettings
from .survey.survey import survey

if TYPE_CHECKING:
    from jaxtyping import Float64
    from numpy.typing import ArrayLike


def evaluate(
    plane: Plane,
    callback_fn: Callable[[], Any],
    *,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    size: int | tuple[int, int] = 40,
    device_ids: list[int] | None = None,
    devices_per_worker: int = 1,
    workers_per_device: int = 1,
    output: str | os.PathLike[str] | None = None,
    num_samples: int | None = None,
    samples: str = "first",
    seed: int = 0,
    buffers: str = "fixed",
    recalibration_batch_size: int = 256,
    sampling: str = "full",
    tolerance: float = 0.01,
    relative_tolerance: bool = False,
    budget: float | str | None = None,
    overwrite: bool = False,
    save_directions: bool = False,
    progress: bool = True,
    address: str | None = None,
    plan: MeasurementPlan | None = None,
    compile: bool | str = "auto",
) -> Landscape:
    """Measures a plane or a line.

    Args:
        plane: from ``random_plane``, ``pca_plane``, ``plane_through``, ``line_between``, ...
        callback_fn: takes no argument, returns (model, network, dataset, metrics) or an Evaluator.
        x: coordinates along the first direction, shape (nx,), increasing; None takes the plane's own axes.
        y: coordinates along the second direction, shape (ny,), increasing; a line has none.
        size: points along each axis where the plane's own axes are taken.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        devices_per_worker: how many GPUs each worker sees, the first of which is its ``cuda:0``; without GPUs, how
            many slots' cores it joins.
        workers_per_device: how many workers share each GPU and its memory; without GPUs, a slot's cores. One of the
            two must be 1.
        output: the landscape file, or its fsspec URL such as ``s3://bucket/run/landscape.h5``; None keeps the landscape
            in memory only. A file of the same identity is continued.
        num_samples: samples that a value is averaged over; None means all of the data set.
        samples: "first" (in data-set order) or "random" (a seeded subset).
        seed: of that subset.
        buffers: "fixed" (the origin's) or "recalibrate" (normalization statistics anew at each point).
        recalibration_batch_size: samples per batch while statistics are computed anew.
        sampling: "full" (every grid point is measured) or "adaptive" (some are measured, the others interpolated,
            marked as such, until the estimated error of the loss is within the tolerance).
        tolerance: of adaptive sampling, as a share of the range of all losses.
        relative_tolerance: whether it is a share of the loss at each point instead, for logarithmic pictures.
        budget: how long measuring may take: seconds, or text such as "30min". What is not measured by then is
            interpolated, and the same call with the same ``output`` goes on from there.
        overwrite: whether a file of another identity is replaced.
        save_directions: whether the directions' vectors are kept beside the file, in
            ``<stem>_directions.safetensors``.
        progress: whether a progress bar and, before it, a forecast are shown.
        address: of a Ray cluster to join.
        plan: how to compute; None tunes one, or takes the file's when it is continued.
        compile: whether a PyTorch network is compiled (``torch.compile``): "auto" (where the forecast says that it pays
            back), True or False. Where compiled code gives other values, the network runs eagerly and that is said.

    Returns:
        The landscape; its ``path`` is ``output``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        LandscapeError: something else went wrong; the subclass and the text say what and how to mend it.
    """
    check_instance("plane", plane, Plane, "a Plane (from random_plane, pca_plane, plane_through, line_between)")
    if plane.dimension == 1 and y is not None:
        raise ValueError("y must be None for a line, which has one direction; use a plane, or leave y out.")
    own_x, own_y = plane.axes(size) if x is None or (y is None and plane.dimension == 2) else (None, None)
    x_axis = own_x if x is None else check_axis("x", x)
    y_axis = own_y if y is None else check_axis("y", y)
    assert x_axis is not None
    options = MeasurementOptions(num_samples, samples, check_int("seed", seed, 0), buffers, recalibration_batch_size)
    path = None if output is None else check_output(output)
    settings = SurveySettings.checked(
        sampling=sampling,
        tolerance=tolerance,
        relative_tolerance=relative_tolerance,
        budget=budget,
        seed=seed,
        overwrite=overwrite,
        progress=progress,
    )
    if check_bool("save_directions", save_directions) and path is None:
        raise ValueError("save_directions needs output, beside which the directions are kept; give output a path.")
    plan = plan or stored_plan([path] if path is not None and not overwrite else [])
    with open_pool(
        callback_fn,
        options,
        device_ids=device_ids,
        devices_per_worker=devices_per_worker,
        workers_per_device=workers_per_device,
        address=address,
        plan=plan,
        compile=compile,
        points=fewest_points(len(x_axis) * (1 if y_axis is None else len(y_axis)), sampling),
        seconds=settings.budget,
    ) as pool:
        check_same_network(pool.description.space.differences(plane.space), plane)
        data, report = survey(
            pool,
            plane,
            x_axis,
            y_axis,
            path=path,
            attributes={"seed": seed, "samples": samples},
            settings=settings,
        )
        if save_directions and path is not None:
            write_directions(path, plane)
    return Landscape(data, path, report)


def check_axis(name: str, values: object) -> Float64[np.ndarray, " n"]:
    """Returns the coordinates of an axis as float64.

    Raises:
        TypeError: they are no numbers.
        ValueError: they are not one-dimensional, not finite, or not increasing.
    """
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


def check_output(output: object) -> AnyPath:
    """Returns where a landscape file goes, on this machine or behind a URL.

    Raises:
        TypeError: it is no path.
        ValueError: it is no usable path.
        NotADirectoryError: it does not lie in a directory that exists.
        IsADirectoryError: it is a directory itself.
        RunDirectoryError: it lies behind a URL and cannot be written.
    """
    path = check_directory("output", output)
    if isinstance(path, RemotePath):
        path.parent.check_writable("output")
        return path
    check_can_be_file("output", path)
    return path


def check_same_network(differences: list[str], plane: Plane) -> None:
    """Checks that a plane was made for the network that callback_fn returns.

    Raises:
        LandscapeError: it was made for another one.
    """
    if differences:
        raise LandscapeError(
            f"the plane was made for another network ({plane.space.network}) than callback_fn returns:\n  "
            + "\n  ".join(differences[:20])
            + "\nUse the same network for both."
        )
