"""Which minima a grid of values has, and at which height their basins meet: one sweep from the lowest point up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Bool, Float64, Int64


@dataclass(frozen=True)
class Basins:
    """The n minima of a grid in ascending order, equal values by their index, and where each one's basin ends."""

    minimum: Int64[np.ndarray, " n"]  # index of each into the flattened grid
    # Index of the point where its basin meets that of a lower minimum; -1 for the lowest of each connected part.
    saddle: Int64[np.ndarray, " n"]
    lower: Int64[np.ndarray, " n"]  # which minimum is the lowest of the basin that it meets there; -1 like ``saddle``
    height: Int64[np.ndarray, " n"]  # place of the saddle among all points in ascending order; -1 like ``saddle``
    error: Float64[np.ndarray, " n"]  # the largest error of a value in the basin below the saddle, and on its rim


@dataclass(frozen=True)
class Merging:
    """How the basins of some of n minima meet, from the lowest saddle up; m times."""

    saddle: Int64[np.ndarray, " m"]  # index of the point into the flattened grid
    joined: Int64[np.ndarray, "m 2"]  # the two basins' lowest minima, the higher one first
    tree: Int64[np.ndarray, "m 2"]  # the two nodes that become one: below n a minimum, n + k is what merge k made


def find_basins(values: NDArray[np.float64], error: NDArray[np.float64]) -> Basins:
    """Finds the minima of a grid, and where their basins meet; values that are not finite are no points of it."""
    from scipy.ndimage import maximum_filter

    # Points rise out of the water from the lowest to the highest one. A point without a neighbour in the water begins a
    # basin; one between several basins joins them, and the one with the lowest minimum goes on. A point of a plane has
    # eight neighbours, one of a line two. Where values are equal, the smaller index is the lower one. Sources:
    # Edelsbrunner, Letscher and Zomorodian 2002 (the pairs); Carr, Snoeyink and Axen 2003 (the tree).
    plane = np.atleast_2d(values)
    flat = np.pad(plane, 1, constant_values=np.nan).ravel()
    width = plane.shape[1] + 2
    neighbours = (-width - 1, -width, -width + 1, -1, 1, width - 1, width, width + 1)
    inside = np.flatnonzero(np.isfinite(flat))
    order = inside[np.argsort(flat[inside], kind="stable")]
    known_error = np.pad(np.where(np.isfinite(plane), np.atleast_2d(error), 0.0), 1)
    around = maximum_filter(known_error, size=3, mode="constant").ravel().tolist()
    # Of each point the next one on the way to its basin's minimum, which points at itself; -1 while it is dry. Lists,
    # because single items of arrays take three times as long.
    towards, place = [-1] * len(flat), [0] * len(flat)
    found: list[int] = []
    merges: dict[int, tuple[int, int, int, float]] = {}
    worst: dict[int, float] = {}
    for height, point in enumerate(order.tolist()):
        place[point] = height
        basins: list[int] = []
        for step in neighbours:
            basin = point + step
            if towards[basin] >= 0:
                while (following := towards[basin]) != basin:
                    towards[basin] = basin = towards[following]
                if basin not in basins:
                    basins.append(basin)
        lowest = point
        if not basins:
            found.append(point)
            worst[point] = around[point]
        elif len(basins) == 1:
            lowest = basins[0]
            worst[lowest] = max(worst[lowest], around[point])
        else:
            lowest = min(basins, key=place.__getitem__)
            for basin in basins:
                if basin != lowest:
                    merges[basin] = point, lowest, height, worst[basin]
                    towards[basin] = lowest
            worst[lowest] = max(around[point], *(worst[basin] for basin in basins))
        towards[point] = lowest
    rows = {-1: -1} | {point: row for row, point in enumerate(found)}
    ends = [merges.get(point, (-1, -1, -1, worst[point])) for point in found]
    points = np.array([found, [end[0] for end in ends]], np.int64)
    # Indices into the grid without its border.
    minimum, saddle = np.where(points < 0, -1, (points // width - 1) * (width - 2) + points % width - 1)
    lower = np.array([rows[end[1]] for end in ends], np.int64)
    heights = np.array([end[2] for end in ends], np.int64)
    return Basins(minimum, saddle, lower, heights, np.array([end[3] for end in ends]))


def merge(basins: Basins, counted: Bool[np.ndarray, " n"]) -> Merging:
    """Returns how the basins of the counted minima meet, numbered among these; heights are of the whole grid."""
    place = np.cumsum(counted) - 1
    # Of each basin the lowest minimum that counts, and its node in the tree; None where there is none in it.
    lowest: list[int | None] = [int(place[row]) if counts else None for row, counts in enumerate(counted)]
    node = list(lowest)
    saddles, joined, tree = [], [], []
    for row in np.argsort(basins.height, kind="stable").tolist():
        # At this height the basin that it meets has not met a lower one yet.
        other = int(basins.lower[row])
        first, second = lowest[row], lowest[other]
        if other < 0 or first is None:
            continue
        if second is None:
            lowest[other], node[other] = first, node[row]
            continue
        saddles.append(int(basins.saddle[row]))
        joined.append((max(first, second), min(first, second)))
        tree.append((node[row], node[other]))
        lowest[other], node[other] = min(first, second), int(counted.sum()) + len(tree) - 1
    return Merging(
        np.array(saddles, np.int64), np.array(joined, np.int64).reshape(-1, 2), np.array(tree, np.int64).reshape(-1, 2)
    )
