"""``refine`` and ``widen``: a measured landscape on a finer or a wider grid; only new points are measured."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.files.places import AnyPath
from collectors.files.remote_path import RemotePath
from collectors.validation import check_instance, check_int, wrong_type, wrong_value
from workers.users_code import warn_user

from .grid.data import LandscapeData
from .grid.experiment import GridExperiment
from .grid.forecast import fewest_points
from .grid.kept_plane import (
    CURVATURE,
    check_is_of_a_run,
    find_run_of,
    keep_plane,
    measured_options,
    plane_of,
    sampling_settings,
)
from .grid.landscape_file import LANDSCAPE_FILE, read_landscape
from .grid.measuring import check_same_network, measure_grid
from .grid.resume import UNDER_WAY, grid_text, kept_points, sizes_that_keep_all
from .landscape import Landscape
from .planes.extent import check_extent, spans
from .planes.plane import Axes, Plane
from .planes.plane_file import directions_path
from .record.driver import Stored, open_record
from .record.options import ChangeOptions, documented, with_defaults
from .record.provenance import function_attribute
from .record.run import Run
from .record.whole_file import path_of
from .record.workers import Workers
from .record.writer import output_file
from .sampling.grids import axis_of_size, finer_axis, is_even, wider_axis

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import Float64


@documented(ChangeOptions)
def refine(
    file: str | os.PathLike[str],
    callback_fn: Callable[[], Any],
    *,
    size: int | tuple[int, int] | None = None,
    factor: int | tuple[int, int] | None = None,
    run: str | os.PathLike[str] | None = None,
    plane: Plane | None = None,
    output: str | os.PathLike[str] | None = None,
    device_ids: list[int] | None = None,
    **options: Unpack[ChangeOptions],
) -> Landscape:
    """Measures a landscape on a finer grid between the same ends; what is measured already is kept.

    With ``factor``, and with a ``size`` whose cells divide those of the file (79 for 40 points), every measured point
    is kept, and the file itself gets the finer grid. Any other size shares few points with the file: then it stays as
    it is, the new landscape goes beside it (``<stem>_80x80.h5``, if ``output`` says nothing else), and a warning says
    how many points are kept and which size would keep all of them. After an interruption the same call continues.

    How the landscape was measured (samples, buffers, precision, seed, sampling, plan), the file says.

    Args:
        file: the landscape file, or its fsspec URL.
        callback_fn: as the landscape was measured with.
        size: points along each axis, or (points along x, points along y).
        factor: into how many each cell is divided along each axis, or (along x, along y).
        run: the run directory whose plane it is; None looks in the file's folder, then where the file says.
        plane: the plane, if it is not that of one run.
        output: where the finer landscape goes, if not into the file.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        **options: see ``ChangeOptions``.

    Returns:
        The landscape on the finer grid; its ``path`` says where it lies.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        LandscapeIdentityError: the plane or the samples are others than those of the file.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.
    """
    chosen = with_defaults("refine", ChangeOptions, options)
    if size is None and factor is None:
        raise ValueError("size= or factor= must be given: how many points, or into how many each cell is divided.")
    if size is not None and factor is not None:
        raise ValueError("size= and factor= both say how fine the grid is; give one of them.")
    source = _source(file)
    change = _by_factor(source, factor) if size is None else _to_size(source, size, output)
    return _measure(source, change, callback_fn, run, plane, output, device_ids, chosen)


@documented(ChangeOptions)
def widen(
    file: str | os.PathLike[str],
    callback_fn: Callable[[], Any],
    *,
    margin: float | None = None,
    limits: Sequence[float] | None = None,
    run: str | os.PathLike[str] | None = None,
    plane: Plane | None = None,
    output: str | os.PathLike[str] | None = None,
    device_ids: list[int] | None = None,
    **options: Unpack[ChangeOptions],
) -> Landscape:
    """Measures more of a landscape around what is there; every measured point is kept.

    The cells stay as large as they are: whole cells are added, until the grid reaches at least as far as it is asked
    to. Where it does so already, nothing is added. After an interruption the same call continues.

    How the landscape was measured (samples, buffers, precision, seed, sampling, plan), the file says.

    Args:
        file: the landscape file, or its fsspec URL.
        callback_fn: as the landscape was measured with.
        margin: how far the grid has to reach beyond the path on each side, as a share of the path's range; on planes
            without a path, as random ones are, a share of [-1, 1].
        limits: which coordinates the grid has to reach: the lowest and the highest of both axes, or x0, x1, y0, y1.
        run: the run directory whose plane it is; None looks in the file's folder, then where the file says.
        plane: the plane, if it is not that of one run.
        output: where the wider landscape goes, if not into the file.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        **options: see ``ChangeOptions``.

    Returns:
        The landscape on the wider grid; its ``path`` says where it lies.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        LandscapeIdentityError: the plane or the samples are others than those of the file.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.
    """
    chosen = with_defaults("widen", ChangeOptions, options)
    if margin is None and limits is None:
        raise ValueError("margin= or limits= must be given: how far beyond the path, or to which coordinates.")
    ends, share = check_extent(limits, margin)
    source = _source(file)
    axes = _listed((source.x, source.y))
    _check_axes(axes)
    if ends is not None:
        spans(ends, len(axes))

    def wider(of: Plane) -> Axes:
        asked = [_ends(axis) for axis in _listed(of.axes(3, share))] if ends is None else spans(ends, len(axes))
        return _as_axes([wider_axis(axis, *span) for axis, span in zip(axes, asked, strict=True)])

    change = _Change(wider, source.status.size)
    return _measure(source, change, callback_fn, run, plane, output, device_ids, chosen)


@dataclass(frozen=True)
class _Change:
    """Another grid for a landscape."""

    axes: Callable[[Plane], Axes]  # its axes, which may need the plane
    points: int  # about how many are new
    beside: AnyPath | None = None  # where it goes if it shares few points with the file, unless the user names a place
    under_way: Any = None  # what the same call after an interruption must know


def _source(file: object) -> LandscapeData:
    path = path_of(file) if isinstance(file, str | os.PathLike | RemotePath) else None
    if path is None:
        raise wrong_type("file", "the path of a landscape file, or its URL", file)
    return read_landscape(path)


def _to_size(data: LandscapeData, size: object, output: object) -> _Change:
    axes, path = _listed((data.x, data.y)), _path(data)
    _check_axes(axes)
    sizes = _one_for_each_axis("size", size, axes)
    fewer = [(wanted, len(axis)) for wanted, axis in zip(sizes, axes, strict=True) if wanted < len(axis)]
    if fewer:
        raise wrong_value("size", f"at least the number of points that the axis has ({fewer[0][1]})", fewer[0][0])
    if not all(is_even(axis) for axis in axes):
        raise ValueError(f"size cannot be used for {path}, whose points are not evenly spaced; pass factor.")
    finer = _as_axes([axis_of_size(axis, wanted) for axis, wanted in zip(axes, sizes, strict=True)])
    kept, measured = kept_points(data, *finer)
    points = math.prod(sizes) - kept
    if kept == measured:
        return _Change(lambda _plane: finer, points)
    beside = path.parent / f"{path.stem}_{'x'.join(map(str, sizes))}.h5"
    nested = sizes_that_keep_all(data, sizes)
    warn_user(
        f"a grid of {_sizes_text(sizes)} points shares {kept:,} of the {measured:,} measured points with the file, "
        f"{grid_text(data.x, data.y)}; a size of {_sizes_text(nested)} would keep all of them. {path} stays as "
        f"it is, and the new landscape goes to {beside if output is None else output}.",
    )
    return _Change(lambda _plane: finer, points, beside)


def _by_factor(data: LandscapeData, factor: object) -> _Change:
    axes = _listed((data.x, data.y))
    _check_axes(axes)
    factors = _one_for_each_axis("factor", factor, axes)
    if max(factors) < 2:
        raise wrong_value("factor", "at least 2 along one of the axes", factor)
    under_way = {"refine": factors}
    if not data.complete and data.attributes.get(UNDER_WAY) == under_way:
        # The file has the finer grid already, and this call measures the rest of it.
        return _Change(lambda _plane: (data.x, data.y), data.status.size, under_way=under_way)
    finer = [finer_axis(axis, cells) for axis, cells in zip(axes, factors, strict=True)]
    points = math.prod(map(len, finer)) - data.status.size
    return _Change(lambda _plane: _as_axes(finer), points, under_way=under_way)


def _measure(
    source: LandscapeData,
    change: _Change,
    callback_fn: Callable[[], Any],
    run_directory: object,
    plane: Plane | None,
    output: object,
    device_ids: list[int] | None,
    chosen: Mapping[str, Any],
) -> Landscape:
    """Measures a landscape on the grid of ``change``, in its file, beside it or in ``output``."""
    file = _path(source)
    sampling, run = sampling_settings(source, chosen), Run.checked(chosen)
    how = {**chosen, **measured_options(source, file, chosen["groups"]), "device_ids": device_ids}
    path = output_file(output) if output is not None else change.beside or file
    directory = None
    saved = directions_path(file)
    if plane is None and (run_directory is None or CURVATURE in source.attributes) and saved.exists():
        plane = Plane.load(str(saved))
    elif plane is None:
        check_is_of_a_run(source, file)
        directory = find_run_of(source, file, run_directory)
    else:
        check_instance("plane", plane, Plane, "a Plane (from random_plane, pca_plane, plane_through, line_between)")
        if plane.dimension != len(_listed((source.x, source.y))):
            raise ValueError("plane must be a line for the file of a line, and a plane for that of a plane.")
    under_way = {} if change.under_way is None else {UNDER_WAY: change.under_way}
    attributes = {**function_attribute(callback_fn), **under_way}
    points = fewest_points((change.points,), sampling.sampling)
    with contextlib.ExitStack() as stack:
        stored = stack.enter_context(open_record(LANDSCAPE_FILE, path, run))
        begun = [stored, Stored(LANDSCAPE_FILE, file, source)]
        workers = stack.enter_context(Workers(callback_fn, how, run, stored=begun, points=points))
        if directory is not None:
            plane = plane_of(source, file, directory, workers.space)
        assert plane is not None
        pool = workers.pool
        if directory is not None and pool.description.space.differences(plane.space):
            plane = plane_of(source, file, directory, pool.description.space)
        check_same_network(plane, pool.description.space)
        if path != file:
            plane = keep_plane(stored, plane, overwrite=False)
        experiment = GridExperiment(plane, change.axes(plane), sampling, attributes, source)
        data, report = measure_grid(experiment, stored, pool, run)
    return Landscape(data, path, report)


def _path(data: LandscapeData) -> AnyPath:
    assert data.path is not None
    return data.path


def _listed(axes: Axes) -> list[Float64[np.ndarray, " _"]]:
    return [axis for axis in axes if axis is not None]


def _as_axes(axes: list[Float64[np.ndarray, " _"]]) -> Axes:
    return axes[0], axes[1] if len(axes) == 2 else None


def _ends(axis: Float64[np.ndarray, " n"]) -> tuple[float, float]:
    return float(axis[0]), float(axis[-1])


def _check_axes(axes: list[Float64[np.ndarray, " _"]]) -> None:
    if min(map(len, axes)) < 2:
        raise ValueError("file must hold a grid of at least two points along each axis, which have a distance to keep.")


def _one_for_each_axis(name: str, value: object, axes: Sequence[object]) -> list[int]:
    if isinstance(value, tuple | list):
        if len(value) != len(axes):
            raise wrong_value(name, f"an int, or {len(axes)} ints, one for each axis", list(value))
        return [check_int(f"{name}[{index}]", item, minimum=1) for index, item in enumerate(value)]
    return [check_int(name, value, minimum=1)] * len(axes)


def _sizes_text(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))
