"""One call for one measurement: each function makes a ``Measure`` of its options and asks it once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from collectors.weights.aligned import Weights
from workers.curvature.probes import Trace

from .comparison.comparison import Comparison
from .curvature.curvature import Curvature
from .landscape import Landscape
from .measure import Measure
from .paths.barrier import Barrier
from .paths.path import Path
from .planes.plane import Plane
from .record.options import split_options

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float64
    from numpy.typing import ArrayLike


def evaluate(plane: Plane | Path, callback_fn: Callable[[], Any], **options: Any) -> Landscape | None:
    """Measures a plane or a line.

    Args:
        plane: as ``Measure.grid`` takes it.
        callback_fn: as ``Measure`` takes it.
        **options: of ``Measure`` and of ``Measure.grid``, such as ``size=40, output="a.h5", num_samples=1000``.
    """
    shared, others = split_options(options)
    return Measure(callback_fn, **shared).grid(plane, **others)


def measure_points(
    plane: Plane, callback_fn: Callable[[], Any], points: ArrayLike, **options: Any
) -> dict[str, Float64[np.ndarray, " k"]] | None:
    """Measures points of a plane or a line; the options are those of ``Measure``."""
    return Measure(callback_fn, **options).points(plane, points)


def barrier(a: Weights, b: Weights, callback_fn: Callable[[], Any], points: int = 25, **options: Any) -> Barrier | None:
    """Measures the loss between two networks; the options are those of ``Measure`` and ``Measure.barrier``."""
    shared, others = split_options(options)
    return Measure(callback_fn, **shared).barrier(a, b, points, **others)


def connect(
    a: Weights, b: Weights, callback_fn: Callable[[], Any], kind: str = "bezier", bends: int = 1, **options: Any
) -> Path | None:
    """Fits a curve between two networks; the options are those of ``Measure`` and ``Measure.connect``."""
    shared, others = split_options(options)
    return Measure(callback_fn, **shared).connect(a, b, kind, bends, **others)


def refine(
    file: str | os.PathLike[str],
    callback_fn: Callable[[], Any],
    *,
    size: int | tuple[int, int] | None = None,
    factor: int | tuple[int, int] | None = None,
    **options: Any,
) -> Landscape | None:
    """Measures a landscape on a finer grid; the options are those of ``Measure`` and ``Measure.regrid``."""
    shared, others = split_options(options)
    if size is None and factor is None:
        raise ValueError("size= or factor= must be given: how many points, or into how many each cell is divided.")
    if size is not None and factor is not None:
        raise ValueError("size= and factor= both say how fine the grid is; give one of them.")
    return Measure(callback_fn, **shared).regrid(file, size=size, factor=factor, **others)


def widen(
    file: str | os.PathLike[str],
    callback_fn: Callable[[], Any],
    *,
    margin: float | None = None,
    limits: Sequence[float] | None = None,
    **options: Any,
) -> Landscape | None:
    """Measures more around a landscape; the options are those of ``Measure`` and ``Measure.regrid``."""
    shared, others = split_options(options)
    if margin is None and limits is None:
        raise ValueError("margin= or limits= must be given: how far beyond the path, or to which coordinates.")
    return Measure(callback_fn, **shared).regrid(file, margin=margin, limits=limits, **others)


def measure_curvature(weights: Weights, callback_fn: Callable[[], Any], **options: Any) -> Curvature | None:
    """Measures how a loss bends; the options are those of ``Measure`` and ``Measure.curvature``."""
    shared, others = split_options(options)
    return Measure(callback_fn, **shared).curvature(weights, **others)


def hessian_plane(origin: Weights, callback_fn: Callable[[], Any], **options: Any) -> Plane:
    """Returns a plane along eigenvectors; the options are those of ``Measure`` and ``Measure.hessian_plane``."""
    shared, others = split_options(options)
    return Measure(callback_fn, **shared).hessian_plane(origin, **others)


def trace_by_lines(weights: Weights, callback_fn: Callable[[], Any], lines: int = 30, **options: Any) -> Trace:
    """Estimates the trace of the loss's Hessian from losses alone; the options are those of ``Measure``."""
    return Measure(callback_fn, **options).trace(weights, lines)


def compare(
    recipes: Mapping[str, Sequence[Any] | Mapping[Any, Any]], callback_fn: Callable[[], Any], **options: Any
) -> Comparison | None:
    """Compares recipes; the options are those of ``Measure`` and ``Measure.compare``."""
    shared, others = split_options(options)
    return Measure(callback_fn, **shared).compare(recipes, **others)
