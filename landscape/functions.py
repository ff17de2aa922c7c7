"""One call for one measurement: each function asks a ``Measure`` of its options once; None after a dry run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from collectors.shapes import Float64
from collectors.weights.aligned import Weights
from workers.curvature.probes import Trace

from .comparison.comparison import Comparison
from .curvature.curvature import Curvature
from .grid.merging import merge_files
from .landscape import Landscape
from .measure import Measure
from .paths.barrier import Barrier
from .paths.path import Path
from .planes.plane import Plane
from .record.option_kinds import GridOptions, MeasureOptions
from .record.options import documented, split_options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

T = TypeVar("T")


@documented(MeasureOptions, GridOptions)
def evaluate(
    plane: Plane | Path,
    callback_fn: Callable[[], Any],
    *,
    size: int | tuple[int, int] = 40,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    output: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Landscape:
    """Measures a plane or a line.

    Args:
        plane: as ``Measure.grid`` takes it.
        callback_fn: as ``Measure`` takes it.
        size: points along each axis, see ``Measure.grid``, as for the next three.
        x: coordinates along the first direction.
        y: coordinates along the second direction.
        output: the landscape file.
        **options: of ``Measure`` and of ``Measure.grid``.

    Returns:
        The landscape; its ``path`` is ``output``. None after a dry run.
    """
    return _measured(Measure.grid, callback_fn, options, plane, size=size, x=x, y=y, output=output)


def measure_points(
    plane: Plane, callback_fn: Callable[[], Any], points: ArrayLike, **options: Any
) -> dict[str, Float64[np.ndarray, " k"]]:
    """Measures points of a plane or a line; the options are those of ``Measure``."""
    return Measure(callback_fn, **options).points(plane, points)


def barrier(a: Weights, b: Weights, callback_fn: Callable[[], Any], points: int = 25, **options: Any) -> Barrier:
    """Measures the loss between two networks; the options are those of ``Measure`` and ``Measure.barrier``."""
    return _measured(Measure.barrier, callback_fn, options, a, b, points)


def connect(
    a: Weights,
    b: Weights,
    callback_fn: Callable[[], Any],
    kind: str = "bezier",
    bends: int = 1,
    steps: int = 500,
    learning_rate: float = 0.01,
    batch_size: int = 64,
    **options: Any,
) -> Path:
    """Fits a curve between two networks; the options are those of ``Measure`` and ``Measure.connect``.

    Args:
        a: as ``Measure.connect`` takes it, and so are the next.
        b: of the last network.
        callback_fn: as ``Measure`` takes it.
        kind: "bezier" or "polygon".
        bends: how many control points.
        steps: of Adam.
        learning_rate: of its first step.
        batch_size: samples of a step.
        **options: those of ``Measure``, ``names`` and ``output``.
    """
    return _measured(Measure.connect, callback_fn, options, a, b, kind, bends, steps, learning_rate, batch_size)


def refine(
    file: str | os.PathLike[str],
    callback_fn: Callable[[], Any],
    *,
    size: int | tuple[int, int] | None = None,
    factor: int | tuple[int, int] | None = None,
    **options: Any,
) -> Landscape:
    """Measures a landscape on a finer grid; the options are those of ``Measure`` and ``Measure.regrid``."""
    if size is None and factor is None:
        raise ValueError("size= or factor= must be given: how many points, or into how many each cell is divided.")
    if size is not None and factor is not None:
        raise ValueError("size= and factor= both say how fine the grid is; give one of them.")
    return _measured(Measure.regrid, callback_fn, options, file, size=size, factor=factor)


def widen(
    file: str | os.PathLike[str],
    callback_fn: Callable[[], Any],
    *,
    margin: float | None = None,
    limits: Sequence[float] | None = None,
    **options: Any,
) -> Landscape:
    """Measures more around a landscape; the options are those of ``Measure`` and ``Measure.regrid``."""
    if margin is None and limits is None:
        raise ValueError("margin= or limits= must be given: how far beyond the path, or to which coordinates.")
    return _measured(Measure.regrid, callback_fn, options, file, margin=margin, limits=limits)


def merge(
    files: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str], *, overwrite: bool = False
) -> Landscape:
    """Joins files of one landscape, such as those that the jobs of an array measured with ``share=``, in one file.

    Args:
        files: at least two, of the same identity and grid. A point that several of them have must have one value.
        output: the landscape file to write, which is none of them. Points that no file has are pending in it: the
            call that measures the landscape, with this output, goes on there.
        overwrite: whether a landscape file that is there is replaced.

    Raises:
        LandscapeIdentityError: the files are of different experiments; the text says in what they differ.
        LandscapeGridError: they have different grids, or other networks on them.
        NondeterministicLossError: two files have different values for one point.
        LandscapeWriteError: the output is one of the files, is there already, or cannot be written.
    """
    return Landscape.load(merge_files(files, output, overwrite=overwrite))


def measure_curvature(weights: Weights, callback_fn: Callable[[], Any], **options: Any) -> Curvature:
    """Measures how a loss bends; the options are those of ``Measure`` and ``Measure.curvature``."""
    return _measured(Measure.curvature, callback_fn, options, weights)


def hessian_plane(origin: Weights, callback_fn: Callable[[], Any], **options: Any) -> Plane:
    """Returns a plane along eigenvectors; the options are those of ``Measure`` and ``Measure.hessian_plane``."""
    return _measured(Measure.hessian_plane, callback_fn, options, origin)


def trace_by_lines(weights: Weights, callback_fn: Callable[[], Any], lines: int = 30, **options: Any) -> Trace:
    """Estimates the trace of the loss's Hessian from losses alone; the options are those of ``Measure``."""
    return Measure(callback_fn, **options).trace(weights, lines)


def compare(
    recipes: Mapping[str, Sequence[Any] | Mapping[Any, Any]], callback_fn: Callable[[], Any], **options: Any
) -> Comparison:
    """Compares recipes; the options are those of ``Measure`` and ``Measure.compare``."""
    return _measured(Measure.compare, callback_fn, options, recipes)


def _measured(method: Callable[..., T], callback_fn: Callable[[], Any], options: Any, *given: Any, **named: Any) -> T:
    shared, others = split_options(options)
    return method(Measure(callback_fn, **shared), *given, **named, **others)
