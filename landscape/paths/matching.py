"""Permutations that bring one network's weights as near as possible to another's (weight matching)."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import State

from .permutations import PermutationGroup, PermutedAxis

if TYPE_CHECKING:
    from jaxtyping import Float64

_MOST_ROUNDS = 100
# A change must be worth more than rounding, so that the search ends, and ends alike everywhere.
_WORTH = 1e-10


def match(target: State, moved: State, groups: Sequence[PermutationGroup]) -> list[PermutationGroup]:
    """Returns the groups with permutations of ``moved`` that bring it near to ``target`` (Ainsworth et al. 2023)."""
    # One group after the other is solved exactly while all others rest, until nothing changes (coordinate descent);
    # parts that are permuted as a whole are solved together with the order inside them. It starts once from the
    # permutations that tensors at the fixed ends suggest, and once from none; the nearer result is returned. Nothing is
    # drawn at random, and ties keep what there is.
    if not groups:
        return []
    matcher = _Matcher(target, moved, groups)
    starts = [matcher.from_the_ends(), matcher.untouched()]
    found = [matcher.descend(start) for start in starts]
    best = max(found, key=matcher.agreement)
    return [group.permuted_by(permutation) for group, permutation in zip(groups, best, strict=True)]


_Permutations = list[NDArray[Any]]


class _Matcher:
    def __init__(self, target: State, moved: State, groups: Sequence[PermutationGroup]) -> None:
        self._target, self._moved, self._groups = target, moved, groups
        self._axes: dict[str, list[tuple[int, PermutedAxis]]] = {}
        for index, group in enumerate(groups):
            for axis in group.axes:
                if axis.name in target:
                    self._axes.setdefault(axis.name, []).append((index, axis))
        owners = {axis: index for index, group in enumerate(groups) for axis in group.axes}
        units: dict[int, list[int]] = {}
        for index, group in enumerate(groups):
            within = group.axes[0].within
            outer = index if within is None else owners.get(within, index)
            units.setdefault(outer, []).append(index)
        # What is solved at once: a group, or one with those within it.
        self._units = list(units.values())

    def untouched(self) -> _Permutations:
        """Returns the permutations that change nothing."""
        return [np.broadcast_to(np.arange(group.size), group.permutation.shape) for group in self._groups]

    def from_the_ends(self) -> _Permutations:
        """Returns permutations found one by one, from the network's ends, by tensors whose other axes are settled."""
        # The group with most numbers in such tensors is next.
        found = self.untouched()
        settled: set[int] = set()
        rest = list(self._units)
        while rest:
            unit = max(rest, key=lambda unit: sum(self._target[name].size for name in self._names(unit, settled)))
            found = self._solved(unit, found, self._names(unit, settled) or self._names(unit))
            settled.update(unit)
            rest.remove(unit)
        return found

    def descend(self, start: _Permutations) -> _Permutations:
        """Returns permutations of which no single one can be improved."""
        found = list(start)
        for _ in range(_MOST_ROUNDS):
            changed = False
            # An order inside parts is also sought alone, where all tensors count.
            for unit in [*self._units, *([index] for _, *inner in self._units for index in inner)]:
                names = self._names(unit)
                tried = self._solved(unit, found, names)
                if all(tried[index] is found[index] for index in unit):
                    continue
                # With two axes of one tensor in a group, the exact solution for either may be none for both.
                repeats = len(unit) > 1 or self._repeats(unit[0])
                if repeats and self._agreement(names, tried) <= self._agreement(names, found):
                    continue
                found, changed = tried, True
            if not changed:
                break
        return found

    def agreement(self, permutations: _Permutations) -> float:
        """Returns the inner product of the two networks, which grows as their distance shrinks."""
        return self._agreement(self._axes, permutations)

    def _agreement(self, names: Collection[str], permutations: _Permutations) -> float:
        return sum(
            float(np.vdot(self._target[name].astype(np.float64), self._permuted(name, permutations).astype(np.float64)))
            for name in names
        )

    def _names(self, unit: Sequence[int], settled: set[int] | None = None) -> list[str]:
        """Returns the tensors of groups; where asked, those whose other groups are all settled."""
        return [
            name
            for name, axes in self._axes.items()
            if any(index in unit for index, _ in axes)
            and (settled is None or all(index in unit or index in settled for index, _ in axes))
            and (settled is None or all(sum(other == index for other, _ in axes) < 2 for index in unit))
        ]

    def _repeats(self, index: int) -> bool:
        return any(sum(other == index for other, _ in axes) > 1 for axes in self._axes.values())

    def _permuted(self, name: str, permutations: _Permutations, besides: Collection[PermutedAxis] = ()) -> NDArray[Any]:
        array = self._moved[name]
        for index, axis in self._axes[name]:
            if axis not in besides:
                array = axis.taken(array, permutations[index])
        return array

    def _solved(self, unit: Sequence[int], permutations: _Permutations, names: Sequence[str]) -> _Permutations:
        """Returns the permutations with the best ones of a unit; the present ones themselves where none are better."""
        result = list(permutations)
        if len(unit) > 1:
            return self._solved_with_parts(unit, permutations, names)
        (index,) = unit
        result[index] = _assign_each(self._gains(index, permutations, names), permutations[index])
        return result

    def _solved_with_parts(
        self, unit: Sequence[int], permutations: _Permutations, names: Sequence[str]
    ) -> _Permutations:
        """Solves the order of parts with the orders inside them, by the tensors with one axis of each at most."""
        outer, *inner = unit
        result = list(permutations)
        parts = self._groups[outer].size
        own = {name: [(index, axis) for index, axis in self._axes[name] if index in unit] for name in names}
        worth = self._gains(outer, permutations, [name for name in names if len(own[name]) == 1])
        orders = {}
        for index in inner:
            size = self._groups[index].size
            gains = np.zeros((parts, parts, size, size))
            for name in names:
                if sorted(other for other, _ in own[name]) == [outer, index]:
                    axis = next(axis for other, axis in own[name] if other == index)
                    rows = axis.rows(self._permuted(name, permutations, [axis for _, axis in own[name]]))
                    gains += np.tensordot(axis.rows(self._target[name]), rows, (2, 2)).transpose(0, 2, 1, 3)
            # Row and column: the part of the target, and the part of the other network that would lie there.
            orders[index] = np.stack(
                [
                    [_assign(gains[row, column], permutations[index][row]) for column in range(parts)]
                    for row in range(parts)
                ]
            )
            worth += np.take_along_axis(gains, orders[index][..., None], axis=3).sum((2, 3))
        result[outer] = _assign(worth, permutations[outer])
        for index in inner:
            found = orders[index][np.arange(parts), result[outer]]
            if not np.array_equal(found, permutations[index]):
                result[index] = found
        return result

    def _gains(
        self, index: int, permutations: _Permutations, names: Sequence[str]
    ) -> Float64[np.ndarray, "*parts size size"]:
        """Returns how well entry i of the target agrees with entry j of the other network."""
        group = self._groups[index]
        gains = np.zeros((*group.permutation.shape, group.size))
        for name in names:
            for other, axis in self._axes[name]:
                if other == index:
                    rows = axis.rows(self._permuted(name, permutations, [axis]))
                    gains += axis.rows(self._target[name]) @ rows.swapaxes(-1, -2)
        return gains


def _assign_each(gains: Float64[np.ndarray, "*parts size size"], present: NDArray[Any]) -> NDArray[Any]:
    """Returns the best assignment in each part; the present ones themselves where no part has a better one."""
    if gains.ndim == 2:
        return _assign(gains, present)
    known = list(present)
    found = [_assign(*pair) for pair in zip(gains, known, strict=True)]
    return present if all(map(operator.is_, found, known)) else np.stack(found)


def _assign(gains: Float64[np.ndarray, "size size"], present: NDArray[Any]) -> NDArray[Any]:
    """Returns the best assignment; the present one itself where no other is better by more than rounding."""
    from scipy.optimize import linear_sum_assignment

    scale = float(np.abs(gains).max(initial=0.0))
    if scale == 0.0:
        return present
    # The last digits of a product of matrices depend on the machine, and must not decide between ties.
    rounded = np.round(gains / scale, 12)
    places = np.arange(len(gains))
    _, best = linear_sum_assignment(rounded, maximize=True)
    better = rounded[places, best].sum() - rounded[places, present].sum()
    return np.asarray(best) if better > _WORTH * len(gains) else present
