"""Bins of a histogram of finite values; NaN and infinities are counted apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .network_state import Array

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64

MOST_BINS = 90
_BLOCK = 2**18


@dataclass(frozen=True)
class Histogram:
    """Equal bins over the finite values.

    Attributes:
        edges: ascending, one more than bins; empty when no value is finite.
        counts: values per bin; the last bin includes its right edge.
        sum: sum of the finite values.
        sum_of_squares: sum of their squares.
        not_a_number: how many values are NaN.
        positive_infinity: how many are +inf.
        negative_infinity: how many are -inf.
    """

    edges: Float64[np.ndarray, " edges"]
    counts: Int64[np.ndarray, " bins"]
    sum: float
    sum_of_squares: float
    not_a_number: int
    positive_infinity: int
    negative_infinity: int


def histogram(values: Array) -> Histogram:
    """Returns the histogram of real values of any shape.

    Bins grow in number with the values, up to 90. Those of integers are a whole number wide and centred on whole
    numbers; equal values get one bin around them, never one of width zero.
    """
    flat = values.reshape(-1)
    if flat.dtype.kind == "b":
        flat = flat.astype(np.uint8)
    not_a_number = positive = negative = 0
    if flat.dtype.kind == "f":
        not_a_number = int(np.isnan(flat).sum())
        positive, negative = int(np.isposinf(flat).sum()), int(np.isneginf(flat).sum())
        if not_a_number + positive + negative:
            flat = flat[np.isfinite(flat)]
    if not flat.size:
        nothing = np.zeros(0)
        return Histogram(nothing, np.zeros(0, np.int64), 0.0, 0.0, not_a_number, positive, negative)
    edges = _integer_edges(flat) if flat.dtype.kind in "iu" else _float_edges(flat)
    counts = np.zeros(len(edges) - 1, np.int64)
    total = squares = 0.0
    with np.errstate(over="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK].astype(np.float64)
            # Searching the edges themselves, so that a count always belongs to the edges that are shown.
            bins = np.searchsorted(edges, block, side="right") - 1
            counts += np.bincount(np.clip(bins, 0, len(counts) - 1), minlength=len(counts))
            total += float(block.sum())
            squares += float(np.square(block).sum())
    return Histogram(edges, counts, total, squares, not_a_number, positive, negative)


def bin_count(size: int) -> int:
    """Returns how many bins so many values get: at least as many as fewer values would."""
    if size <= 1:
        return 1
    if size <= 5:
        return 2
    return min(max(3, size // 10 + 1), MOST_BINS)


def _integer_edges(values: Array) -> Float64[np.ndarray, " edges"]:
    smallest, largest = int(values.min()), int(values.max())
    distinct = largest - smallest + 1
    # A small range shows every whole number, however few the values are.
    most = max(bin_count(values.size), min(distinct, 10))
    width = -(-distinct // most)
    bins = -(-distinct // width)
    edges = np.unique([float(smallest + width * index) - 0.5 for index in range(bins + 1)])
    if len(edges) > 1:
        return edges
    # Beyond 2**53 a half does not move a float.
    return np.array([edges[0] - np.spacing(edges[0]), edges[0] + np.spacing(edges[0])])


def _float_edges(values: Array) -> Float64[np.ndarray, " edges"]:
    smallest, largest = float(values.min()), float(values.max())
    bins = bin_count(values.size)
    # Halves, because the difference of the largest numbers overflows.
    step = (largest / 2 - smallest / 2) / bins * 2
    magnitude = max(abs(smallest), abs(largest))
    # The gap below, because above the largest of all numbers there is none.
    if step > 4 * (magnitude - np.nextafter(magnitude, 0.0)):
        fractions = np.arange(bins + 1) / bins
        edges = smallest * (1 - fractions) + largest * fractions
        edges[0], edges[-1] = smallest, largest
        return edges
    margin = magnitude / 100
    margin = margin if smallest - margin < smallest else 0.5
    limit = np.finfo(np.float64).max
    return np.array([max(smallest - margin, -limit), min(largest + margin, limit)])
