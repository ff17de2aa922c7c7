"""Permutations that bring one network's weights as near as possible to another's (weight matching)."""

from __future__ import annotations

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
    """Returns the groups with the permutations of ``moved`` that bring it near to ``target``.

    One group after the other is solved exactly while all others rest, until nothing changes (coordinate descent). It
    starts once from the permutations that tensors at the fixed ends suggest, and once from none; the nearer result is
    returned. Nothing is drawn at random, and ties keep what there is.

    Args:
        target: name to array of every tensor that counts.
        moved: the same tensors of the other network.
        groups: their axes may also be of tensors that do not count.

    Source: Ainsworth, Hayase and Srinivasa 2023 (weight matching).
    """
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

    def untouched(self) -> _Permutations:
        """Returns the permutations that change nothing."""
        return [np.arange(group.size) for group in self._groups]

    def from_the_ends(self) -> _Permutations:
        """Returns permutations found one after the other, each by tensors whose other axes are settled already.

        At first these are the tensors at the network's inputs and outputs. The group with most such numbers is next.
        """
        found = self.untouched()
        settled: set[int] = set()
        while len(settled) < len(self._groups):
            known = {
                index: sum(self._target[name].size for name in self._names(index, settled))
                for index in range(len(self._groups))
                if index not in settled
            }
            index = max(known, key=known.__getitem__)
            gains = self._gains(index, found, self._names(index, settled) or self._names(index))
            found[index] = _assign(gains, found[index])
            settled.add(index)
        return found

    def descend(self, start: _Permutations) -> _Permutations:
        """Returns permutations of which no single one can be improved."""
        found = list(start)
        for _ in range(_MOST_ROUNDS):
            changed = False
            for index in range(len(self._groups)):
                names = self._names(index)
                better = _assign(self._gains(index, found, names), found[index])
                if better is found[index]:
                    continue
                tried = [*found[:index], better, *found[index + 1 :]]
                # With two axes of one tensor in a group, the exact solution for either may be none for both.
                if self._repeats(index) and self._agreement(names, tried) <= self._agreement(names, found):
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

    def _names(self, index: int, settled: set[int] | None = None) -> list[str]:
        """Returns the tensors of a group; where asked, those whose other groups are all settled."""
        return [
            name
            for name, axes in self._axes.items()
            if any(other == index for other, _ in axes)
            and (settled is None or all(other == index or other in settled for other, _ in axes))
            and (settled is None or sum(other == index for other, _ in axes) == 1)
        ]

    def _repeats(self, index: int) -> bool:
        return any(sum(other == index for other, _ in axes) > 1 for axes in self._axes.values())

    def _permuted(self, name: str, permutations: _Permutations, besides: PermutedAxis | None = None) -> NDArray[Any]:
        array = self._moved[name]
        for index, axis in self._axes[name]:
            if axis is not besides:
                array = axis.taken(array, permutations[index])
        return array

    def _gains(self, index: int, permutations: _Permutations, names: Sequence[str]) -> Float64[np.ndarray, "size size"]:
        """Returns how well entry i of the target agrees with entry j of the other network."""
        size = self._groups[index].size
        gains = np.zeros((size, size))
        for name in names:
            for other, axis in self._axes[name]:
                if other == index:
                    rows = axis.rows(self._permuted(name, permutations, besides=axis))
                    gains += axis.rows(self._target[name]) @ rows.T
        return gains


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
