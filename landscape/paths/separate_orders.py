"""Which labels may have an order of their own in each entry of another: channels in the groups of GroupNorm, say."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import permutations
from typing import TypeAlias

from .axis_labels import Axes, AxisLabels

_Tensor: TypeAlias = tuple[tuple[int, ...], ...]


def find_outer_labels(labels: AxisLabels, weights: Iterable[Axes], tensors: Iterable[Axes]) -> dict[int, int]:
    """Returns, by inner label, the outer one in each of whose entries it may be permuted another way; none is both."""
    # That is so where nothing combines different entries of the outer label while it has the inner one: every tensor
    # with the inner label has the outer one too. Operators that mix along an axis which they keep called mix.
    kinds = {_resolved(labels, axes) for axes in tensors}
    mixed = {(_resolved(labels, some), _resolved(labels, axes)) for some, axes in labels.mixed}
    pairs = {
        pair: None for axes in weights for axis in axes for pair in permutations(axis, 2) if labels.is_free(pair[1])
    }
    found: dict[int, int] = {}
    for outer, inner in sorted(pairs, key=lambda pair: not labels.is_free(pair[0])):
        taken = inner in found or outer in found or inner in found.values()
        if outer == inner or taken or not all(_goes_along(axes, outer, inner) for axes in kinds):
            continue
        if not any(_is_combined(some, axes, outer, inner) for some, axes in mixed):
            found[inner] = outer
    return found


def _resolved(labels: AxisLabels, axes: Axes) -> _Tensor:
    return tuple(tuple(labels.labels(axis)) for axis in axes)


def _goes_along(axes: _Tensor, outer: int, inner: int) -> bool:
    """Returns whether each axis with the inner label has an outer one, and there is no doubt which."""
    if any(axis.count(label) > 1 for axis in axes for label in (outer, inner)):
        return False
    with_inner, with_outer = ([axis for axis in axes if label in axis] for label in (inner, outer))
    if len(with_outer) == 1:
        return True
    return with_inner == with_outer


def _is_combined(mixed: _Tensor, axes: Collection[tuple[int, ...]], outer: int, inner: int) -> bool:
    return any(outer in axis for axis in mixed) and any(inner in axis and outer not in axis for axis in axes)
