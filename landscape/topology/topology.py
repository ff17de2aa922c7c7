"""Topology: the minima of a landscape's grid, the saddles between them, and how deep each minimum is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64, Int64
from collectors.validation import check_float, check_int, wrong_type, wrong_value
from workers.metric_names import MetricName

from ..grid.data import LOSS_ERROR, LandscapeData
from ..record.checks import PointStatus
from ..scales.choosing import is_flat
from ..scales.landscape_scale import known, missing_kinds
from .merging import find_basins, merge

# A minimum counts that is deeper than so many times its error.
_ERRORS = 2.0
# Of a value, by the precision of the forward passes. Losses of the same weights that were measured in another order of
# summation differ by less in float32; the others are the spacing of their numbers.
_ROUNDING = {"float32": 1e-6, "tf32": 2.0**-11, "bfloat16": 2.0**-8}

MOST_POINTS = 512 * 512
"""Of a grid whose minima are counted unasked: more take over a second."""


@dataclass(frozen=True)
class Minimum:
    """A point of the grid that is lower than its neighbours: a minimum of this grid, not of the network.

    Attributes:
        x: first coordinate.
        y: second coordinate; None on a line.
        value: of the metric.
        index: of the point in the landscape's arrays: (row, column), or (column,) on a line.
        persistence: how far one must climb from here to reach a lower minimum; infinite for the lowest one of each
            connected part of the grid.
        error: how far values in its basin and on the basin's rim may be from the true ones: the largest of them.
        at_edge: whether it is at the edge of the grid, so that the values may fall further beyond.
        beside_gap: whether a neighbour has no finite value, which may be lower.
    """

    x: float
    y: float | None
    value: float
    index: tuple[int, ...]
    persistence: float
    error: float
    at_edge: bool
    beside_gap: bool


@dataclass(frozen=True)
class Saddle:
    """The lowest pass between two basins.

    Attributes:
        x: first coordinate.
        y: second coordinate; None on a line.
        value: of the metric: the height at which the two basins meet.
        index: of the point in the landscape's arrays: (row, column), or (column,) on a line.
        joins: the places in ``Topology.minima`` of the lowest minima of both basins, the higher one first.
    """

    x: float
    y: float | None
    value: float
    index: tuple[int, ...]
    joins: tuple[int, int]


@dataclass(frozen=True)
class Topology:
    """Minima of a grid in a plane or on a line, and the saddles between them.

    All of it is about the measured grid. A minimum of the network is one in this plane too, if the grid has a point
    close enough; a minimum of the grid is seldom one of the network, because other directions lead down from it.

    Attributes:
        metric: whose minima they are.
        minima: those that count, the lowest first.
        saddles: between them, the lowest first; one less than the minima in each connected part of the grid.
        pairs: the value of every minimum of the grid, also of those that do not count, and that of the saddle where it
            meets a lower one, float64[n, 2]; infinite for the lowest one of each connected part. The most persistent
            first. Where both are equal there is no pair.
        counted: which of the pairs belong to minima that count, bool[n].
        merge_tree: the two nodes that each saddle joins, int64[saddles, 2]: a number below ``len(minima)`` is a
            minimum, and ``len(minima) + k`` is what ``saddles[k]`` made (the numbers of SciPy's ``linkage``).
        persistence: what a minimum must have more of than this to count; None where it must have more than twice its
            ``error``.
        parts: how many connected parts the finite points have; there is no path from one to another.
        excluded: how many points have no finite value, by the reason ("pending", "failed", "not finite").
        flat: whether all finite values are the same, of two points or more: none is lower than another, so that there
            are no minima.
    """

    metric: str
    minima: tuple[Minimum, ...]
    saddles: tuple[Saddle, ...]
    pairs: Float64[np.ndarray, "n 2"]
    counted: NDArray[np.bool_]
    merge_tree: Int64[np.ndarray, "saddles 2"]
    persistence: float | None
    parts: int
    excluded: Mapping[str, int]
    flat: bool = False

    @property
    def deepest_barrier(self) -> float:
        """How far one must climb, at most, from a minimum to reach a lower one; 0 where no minimum has a lower one."""
        return max((minimum.persistence for minimum in self.minima if math.isfinite(minimum.persistence)), default=0.0)

    @property
    def shallow(self) -> int:
        """How many minima of the grid do not count, because they are not deep enough."""
        return int((~self.counted).sum())

    def merge_height(self, first: int, second: int) -> float:
        """Returns the lowest height over which a path between two minima must go; infinite where there is no path.

        Args:
            first: place of one in ``minima``.
            second: place of the other.

        Raises:
            TypeError: a place is no int.
            ValueError: there is no such minimum.
        """
        count = len(self.minima)
        for name, place in (("first", first), ("second", second)):
            check_int(name, place)
            if not 0 <= place < count:
                raise wrong_value(name, f"the place of one of the {count} minima, from 0 on", place)
        if first == second:
            return self.minima[first].value
        nodes = {first, second}
        for row, joined in enumerate(self.merge_tree.tolist()):
            if nodes <= set(joined):
                return self.saddles[row].value
            if nodes & set(joined):
                nodes = nodes - set(joined) | {count + row}
        return math.inf

    def __repr__(self) -> str:
        on_grid = f"{counted_minima(len(self.minima))} of {self.metric} on the grid"
        parts = [f"no minima: {self.metric} is flat" if self.flat else on_grid]
        parts += [f"deepest barrier {self.deepest_barrier:.3g}"] if self.saddles else []
        parts += [f"{self.shallow} shallower left out"] if self.shallow else []
        parts += [f"{self.parts} parts"] if self.parts > 1 else []
        parts += [f"{count} points {reason}" for reason, count in self.excluded.items()]
        return f"Topology({'; '.join(parts)})"


def counted_minima(count: int) -> str:
    return f"{count} minim{'um' if count == 1 else 'a'}"


def find_topology(landscape: LandscapeData, metric: str = "loss", persistence: float | None = None) -> Topology:
    """Returns the topology of a metric; ``Landscape.topology`` explains it."""
    values = known(landscape[metric], landscape.status)
    least = None if persistence is None else check_float("persistence", persistence, minimum=0)
    basins = find_basins(values, errors_of_values(landscape, metric))
    flat, finite = values.ravel(), values[np.isfinite(values)]
    births, deaths = flat[basins.minimum], np.where(basins.saddle < 0, np.inf, flat[basins.saddle])
    # The sweep takes equal values in the order of their index, so that a plateau has a minimum at its first point. Of
    # a grid that is nothing else that point is not lower than any other.
    level = len(finite) > 1 and is_flat(float(finite.min()), float(finite.max()))
    depth = np.zeros(len(births)) if level else deaths - births
    counts = depth > (_ERRORS * basins.error if least is None else least)
    merging = merge(basins, counts)
    kept = np.flatnonzero(counts)
    ends = np.full(len(kept), np.inf)
    ends[merging.joined[:, 0]] = flat[merging.saddle]
    minima = tuple(
        Minimum(
            *_place(landscape, values, basins.minimum[row]), float(end - births[row]), float(basins.error[row]),
            *_surroundings(values, basins.minimum[row]),
        )
        for row, end in zip(kept, ends, strict=True)
    )  # fmt: skip
    saddles = tuple(
        Saddle(*_place(landscape, values, point), (first, second))
        for point, (first, second) in zip(merging.saddle, merging.joined.tolist(), strict=True)
    )
    real = np.flatnonzero(depth > 0)
    real = real[np.argsort(-depth[real], kind="stable")]
    pairs, counted = np.column_stack([births, deaths])[real], counts[real]
    for array in (pairs, counted, merging.tree):
        array.flags.writeable = False
    parts = int((basins.saddle < 0).sum())
    excluded = {kind: int(where.sum()) for kind, where in missing_kinds(values, landscape.status).items()}
    return Topology(metric, minima, saddles, pairs, counted, merging.tree, least, parts, excluded, level)


def wanted_topology(landscape: LandscapeData, metric: str, wanted: object) -> Topology | None:
    """Returns what a picture marks: nothing for False, minima that count for True, or that are deeper than a number."""
    if isinstance(wanted, bool):
        return find_topology(landscape, metric) if wanted else None
    if isinstance(wanted, str) or not isinstance(wanted, SupportsFloat):
        raise wrong_type("topology", "a bool, or the barrier that a minimum must have more of than", wanted)
    return find_topology(landscape, metric, check_float("topology", wanted, minimum=0))


def errors_of_values(landscape: LandscapeData, metric: str) -> NDArray[np.float64]:
    """Returns how far each value of a metric may be from the true one, shape (ny, nx) or (nx,); 0 if not finite."""
    # That is the standard error over the samples, plus adaptive sampling's estimate of the loss where it interpolated,
    # plus the rounding of the precision.
    values, plan = landscape[metric], landscape.attributes.get("measurement_plan")
    precision = str(plan.get("precision")) if isinstance(plan, Mapping) else "float32"
    name = MetricName.read(metric, landscape.metrics)
    errors = [*([] if name.is_error else [name.standard_error]), *([LOSS_ERROR] if metric == "loss" else [])]
    parts = [_ROUNDING.get(precision, _ROUNDING["float32"]) * np.abs(values)]
    parts += [np.abs(landscape.metrics[error]) for error in errors if error in landscape.metrics]
    total = sum((np.where(np.isfinite(part), part, 0.0) for part in parts), np.zeros(values.shape))
    return np.where(np.isfinite(values), total, 0.0)


def _place(
    landscape: LandscapeData, values: NDArray[np.float64], point: int
) -> tuple[float, float | None, float, tuple[int, ...]]:
    """Returns a point's coordinates, value and index, the first fields of ``Minimum`` and ``Saddle``."""
    index = tuple(int(part) for part in np.unravel_index(point, values.shape))
    y = None if landscape.y is None else float(landscape.y[index[0]])
    return float(landscape.x[index[-1]]), y, float(values[index]), index


def _surroundings(values: NDArray[np.float64], point: int) -> tuple[bool, bool]:
    """Returns whether a point is the first or the last along an axis, and whether a neighbour has no finite value."""
    index = np.unravel_index(point, values.shape)
    around = tuple(slice(max(part - 1, 0), part + 2) for part in index)
    # An axis of one point has no edge.
    at_edge = any(size > 1 and part in (0, size - 1) for part, size in zip(index, values.shape, strict=True))
    return at_edge, bool(np.isnan(values[around]).any())


def _loss_topology(landscape: LandscapeData) -> Topology | None:
    """Returns the topology of the loss; None while points are pending, without a finite loss, and of huge grids."""
    if landscape.status.size > MOST_POINTS or (landscape.status == PointStatus.PENDING).any():
        return None
    found = find_topology(landscape)
    return found if found.minima or found.flat else None


def minima_text(landscape: LandscapeData) -> str | None:
    """Returns how many minima the loss has on the grid, and how deep they are; None where that is not known yet."""
    found = _loss_topology(landscape)
    return None if found is None else topology_text(found, landscape)


def topology_text(found: Topology, landscape: LandscapeData) -> str:
    """Returns how many minima a metric has on the grid, how deep they are, and what is left out."""
    cut = "line" if landscape.y is None else "plane"
    if found.flat:
        parts = [f"none: {found.metric} is flat, the same at all points of the grid that have a value"]
    else:
        barrier = f", deepest barrier {found.deepest_barrier:.3g}" if found.saddles else ""
        parts = [counted_minima(len(found.minima)) + barrier, f"of the grid on this {cut}, not of the network"]
    # Where the values may fall further.
    edge, gap = (sum(getattr(minimum, name) for minimum in found.minima) for name in ("at_edge", "beside_gap"))
    places = [f"{edge} at the edge of the grid" if edge else "", f"{gap} beside points without a value" if gap else ""]
    parts += [" and ".join(filter(None, places)), shallow_text(found, landscape)]
    parts += [f"{found.parts} parts without a path between them"] if found.parts > 1 else []
    parts += [f"{left_out_text(found)} left out"] if found.excluded else []
    return "; ".join(filter(None, parts))


def shallow_text(found: Topology, landscape: LandscapeData) -> str:
    if not found.shallow:
        return ""
    if found.persistence is not None:
        why = f"not deeper than {found.persistence:.3g}"
    else:
        name = MetricName.read(found.metric, landscape.metrics).standard_error
        kinds = ["standard error"] if name in landscape.metrics else []
        interpolated = (landscape.status == PointStatus.INTERPOLATED).any() and found.metric == "loss"
        kinds += ["interpolation error"] if interpolated else []
        why = f"not deeper than twice the {' and '.join(kinds) or 'rounding'}"
    return f"{found.shallow} more {'is' if found.shallow == 1 else 'are'} {why}"


def left_out_text(found: Topology) -> str:
    total = sum(found.excluded.values())
    kinds = ", ".join(f"{count} {reason}" for reason, count in found.excluded.items())
    return f"{total} point{'' if total == 1 else 's'} without a value ({kinds})" if total else ""


def topology_json(landscape: LandscapeData) -> dict[str, Any] | None:
    """Returns the topology of the loss as values; None where it is not known yet.

    Its names: ``minima`` (``x``, ``y``, ``value``, ``persistence``, which is infinite for the lowest of each connected
    part, ``error``, ``at_edge``, ``beside_gap``), ``saddles`` (``x``, ``y``, ``value``, ``joins``), ``merge_tree``,
    ``deepest_barrier``, ``shallow`` (how many minima do not count), ``parts``, ``excluded`` and ``flat`` (whether all
    values are the same, so that there are no minima).
    """
    found = _loss_topology(landscape)
    if found is None:
        return None
    of_minimum = ("x", "y", "value", "persistence", "error", "at_edge", "beside_gap")
    of_saddle = ("x", "y", "value", "joins")
    return {
        "minima": [{name: getattr(minimum, name) for name in of_minimum} for minimum in found.minima],
        "saddles": [{name: getattr(saddle, name) for name in of_saddle} for saddle in found.saddles],
        "merge_tree": found.merge_tree,
        **{name: getattr(found, name) for name in ("deepest_barrier", "shallow", "parts", "excluded", "flat")},
    }


def letter(place: int) -> str:
    """Returns what the minimum at a place in ``Topology.minima`` is called in pictures; empty beyond the 26th."""
    return chr(ord("A") + place) if place < 26 else ""
