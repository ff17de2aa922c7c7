"""A landscape's minima in words and as JSON values, for ``landscape info`` and for the page."""

from __future__ import annotations

from typing import Any

from workers.metric_names import MetricName

from ..grid.data import LandscapeData
from ..record.checks import PointStatus
from .topology import Topology, counted_minima, find_topology

MOST_POINTS = 512 * 512
"""Of a grid whose minima are counted unasked: more take over a second."""


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
