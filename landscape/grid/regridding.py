"""A measured landscape on a finer or a wider grid: only new points are measured."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from collectors.files.places import AnyPath
from collectors.files.remote_path import RemotePath
from collectors.validation import check_instance, check_int, wrong_value
from workers.users_code import warn_user

from ..planes.curved_line import check_on_curve
from ..planes.extent import check_extent, spans
from ..planes.plane import Axes, Plane
from ..record.driver import Stored, carry_out, open_record
from ..record.identity import function_attribute
from ..record.run import Run
from ..record.workers import Workers
from ..record.writer import output_file
from ..sampling.grids import axis_of_size, finer_axis, is_even, nested_size, wider_axis
from ..sampling.sampling import share_of
from .data import LandscapeData
from .experiment import GridExperiment, check_same_network
from .forecast import SurveyReport, fewest_points
from .kept_plane import CURVATURE, find_kept, find_run_of, keep_plane, measured_options, plane_of, sampling_settings
from .landscape_file import LANDSCAPE_FILE, read_landscape
from .measuring import A_PLANE
from .resume import UNDER_WAY, Overlap, grid_text


@dataclass(frozen=True)
class Change:
    axes: Callable[[Plane], Axes]  # its axes, which may need the plane
    points: int  # about how many are new
    beside: AnyPath | None = None  # where it goes if it shares few points with the file, unless the user names a place
    under_way: Any = None  # what the same call after an interruption must know


def read_source(file: Any) -> LandscapeData:
    check_instance("file", file, str | os.PathLike | RemotePath, "the path of a landscape file, or its URL")
    data = read_landscape(file)
    if share := share_of(data.attributes):
        raise ValueError(
            f"file must be a whole landscape, but {data.path} is the share {share} of one. Join the shares first: "
            "`landscape merge`, or merge in Python."
        )
    return data


def find_change(
    data: LandscapeData, size: object, factor: object, margin: object, limits: object, output: object
) -> Change:
    """Returns the grid that is asked for, in one of four ways; ``output`` is named in a warning."""
    extent = check_extent(limits, margin)
    if sum(item is not None for item in (size, factor, *extent)) != 1:
        raise ValueError("size=, factor=, margin= or limits= must be given, and only one of them.")
    axes = _listed((data.x, data.y))
    if min(map(len, axes)) < 2:
        raise ValueError("file must hold a grid of at least two points along each axis, which have a distance to keep.")
    if size is not None:
        return _to_size(data, axes, size, output)
    return _by_factor(data, axes, factor) if factor is not None else _wider(data, axes, *extent)


def _to_size(data: LandscapeData, axes: Sequence[NDArray[np.float64]], size: object, output: object) -> Change:
    path = cast("AnyPath", data.path)
    sizes = _one_for_each_axis("size", size, axes)
    fewer = [(wanted, len(axis)) for wanted, axis in zip(sizes, axes, strict=True) if wanted < len(axis)]
    if fewer:
        raise wrong_value("size", f"at least the number of points that the axis has ({fewer[0][1]})", fewer[0][0])
    if not all(is_even(axis) for axis in axes):
        raise ValueError(f"size cannot be used for {path}, whose points are not evenly spaced; pass factor.")
    finer = _as_axes([axis_of_size(axis, wanted) for axis, wanted in zip(axes, sizes, strict=True)])
    shared = Overlap(data, *finer)
    points = math.prod(sizes) - shared.kept
    if shared.kept == shared.measured:
        return Change(lambda _plane: finer, points)
    beside = path.parent / f"{path.stem}_{'x'.join(map(str, sizes))}.h5"
    nested = [nested_size(len(axis), wanted) for axis, wanted in zip(axes, sizes, strict=True)]
    warn_user(
        f"a grid of {_sizes_text(sizes)} points shares {shared.kept:,} of the {shared.measured:,} measured points with "
        f"the file, {grid_text(data.x, data.y)}; a size of {_sizes_text(nested)} would keep all of them. {path} stays "
        f"as it is, and the new landscape goes to {beside if output is None else output}.",
    )
    return Change(lambda _plane: finer, points, beside)


def _by_factor(data: LandscapeData, axes: Sequence[NDArray[np.float64]], factor: object) -> Change:
    factors = _one_for_each_axis("factor", factor, axes)
    if max(factors) < 2:
        raise wrong_value("factor", "at least 2 along one of the axes", factor)
    under_way = {"refine": factors}
    if not data.complete and data.attributes.get(UNDER_WAY) == under_way:
        # The file has the finer grid already, and this call measures the rest of it.
        return Change(lambda _plane: (data.x, data.y), data.status.size, under_way=under_way)
    finer = [finer_axis(axis, cells) for axis, cells in zip(axes, factors, strict=True)]
    points = math.prod(map(len, finer)) - data.status.size
    return Change(lambda _plane: _as_axes(finer), points, under_way=under_way)


def _wider(
    data: LandscapeData, axes: Sequence[NDArray[np.float64]], limits: tuple[float, ...] | None, margin: float | None
) -> Change:
    asked = None if limits is None else spans(limits, len(axes))

    def reaching(of: Plane) -> Axes:
        ends = asked or of.ends(margin)
        wider = [wider_axis(axis, *span) for axis, span in zip(axes, ends, strict=True)]
        check_on_curve("limits", of, wider)
        return _as_axes(wider)

    return Change(reaching, data.status.size)


def regrid(
    source: LandscapeData,
    change: Change,
    callback_fn: Callable[[], Any],
    plane: Plane | None,
    run_directory: object,
    output: object,
    chosen: Mapping[str, Any],
) -> tuple[LandscapeData, SurveyReport] | None:
    """Measures a landscape on the grid of ``change``, in its file, beside it or in ``output``; None after a dry run."""
    file = cast("AnyPath", source.path)
    sampling, run = sampling_settings(source, chosen), Run.checked({**chosen, "overwrite": False})
    how = {**chosen, **measured_options(source, file, chosen["groups"])}
    written = output_file(output, rehearsal=run.rehearsal) if output is not None else change.beside or file
    # Named whole, as every measured file is: what it is called may be typed in another folder.
    path, before = (place.absolute() if isinstance(place, Path) else place for place in (written, file))
    directory = None
    is_kept = plane is None and (run_directory is None or CURVATURE in source.attributes)
    if (saved := find_kept(source) if is_kept else None) is not None:
        plane = Plane.load(str(saved))
    elif plane is None:
        directory = find_run_of(source, file, run_directory)
    else:
        check_instance("plane", plane, Plane, A_PLANE)
        if plane.dimension != len(_listed((source.x, source.y))):
            raise ValueError("plane must be a line for the file of a line, and a plane for that of a plane.")
    under_way = {} if change.under_way is None else {UNDER_WAY: change.under_way}
    attributes = {**function_attribute(callback_fn), **under_way}
    points = fewest_points((change.points,), sampling.sampling)
    with open_record(LANDSCAPE_FILE, path, run) as stored:

        def experiments(workers: Workers) -> list[GridExperiment]:
            found = plane if directory is None else plane_of(source, file, directory, workers.space)
            assert found is not None
            check_same_network(found, workers.pool.description.space if directory is None else workers.space)
            if path != before:
                found = keep_plane(stored, found, run)
            return [GridExperiment(found, change.axes(found), sampling, attributes, source)]

        plans = [Stored(LANDSCAPE_FILE, file, source)]
        return next(iter(carry_out(experiments, [stored], callback_fn, how, run, points=points, plans=plans)), None)


def _listed(axes: Axes) -> list[NDArray[np.float64]]:
    return [axis for axis in axes if axis is not None]


def _as_axes(axes: list[NDArray[np.float64]]) -> Axes:
    return axes[0], axes[1] if len(axes) == 2 else None


def _one_for_each_axis(name: str, value: object, axes: Sequence[object]) -> list[int]:
    if isinstance(value, tuple | list):
        if len(value) != len(axes):
            raise wrong_value(name, f"an int, or {len(axes)} ints, one for each axis", list(value))
        return [check_int(f"{name}[{index}]", item, minimum=1) for index, item in enumerate(value)]
    return [check_int(name, value, minimum=1)] * len(axes)


def _sizes_text(sizes: Sequence[int]) -> str:
    return " x ".join(map(str, sizes))
