"""Axes of weights that are permuted together, and the permutations that bring two networks nearest to each other."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import State
from collectors.shapes import Float64, Int64

_NAMES_SHOWN = 3
_MOST_ROUNDS = 100
# A change must be worth more than rounding, so that the search ends, and ends alike everywhere.
_WORTH = 1e-10
_Permutations: TypeAlias = "list[NDArray[Any]]"


@dataclass(frozen=True)
class PermutedAxis:
    """Where a permutation acts on a tensor.

    An axis of ``before * size * after`` entries is read in the shape (before, size, after), and its middle is permuted:
    of an axis on which 8 channels of 4 x 4 places lie one after the other, the channels have before 1 and after 16.
    """

    name: str  # of the tensor
    axis: int  # of the tensor, from 0
    before: int = 1  # the length of what lies outside it on the same axis
    after: int = 1  # the length of what lies inside it on the same axis
    # The axis of the same tensor that divides it into parts, each with an order of its own, such as the groups of
    # GroupNorm; ``before`` and ``after`` are then those inside one part.
    within: PermutedAxis | None = None

    def __str__(self) -> str:
        part = f" in parts of {self.after}" if self.after > 1 else ""
        return f"{self.name}[{self.axis}]{part}"

    def permute(self, array: NDArray[Any], permutation: Int64[np.ndarray, "*parts size"]) -> NDArray[Any]:
        """Returns the tensor with its entries along the axis in the order of the permutation."""
        if self.within is None:
            return np.take(self._divided(array), permutation, self.axis + 1).reshape(array.shape)
        inside, outer = replace(self, within=None), self.within.axis + 1
        parts = zip(self.within._parts(array), permutation, strict=True)
        permuted_parts = np.stack([inside.permute(part, order) for part, order in parts])
        # Along the outer axis the parts lie where they did.
        shape = np.moveaxis(self.within._divided(array), outer, 0).shape
        return np.moveaxis(permuted_parts.reshape(shape), 0, outer).reshape(array.shape)

    def rows(self, array: NDArray[Any]) -> NDArray[Any]:
        """Returns the tensor as one row for each entry along the axis, in float64, shape (*parts, size, rest)."""
        if self.within is not None:
            inside = replace(self, within=None)
            return np.stack([inside.rows(part) for part in self.within._parts(array)])
        divided = np.moveaxis(self._divided(array), self.axis + 1, 0)
        return divided.reshape(len(divided), array.size // max(len(divided), 1)).astype(np.float64)

    def _divided(self, array: NDArray[Any]) -> NDArray[Any]:
        shape = array.shape
        size = shape[self.axis] // (self.before * self.after)
        return array.reshape(*shape[: self.axis], self.before, size, self.after, *shape[self.axis + 1 :])

    def _parts(self, array: NDArray[Any]) -> NDArray[Any]:
        """Returns the tensor without this axis, once for each of its entries."""
        moved = np.moveaxis(self._divided(array), self.axis + 1, 0)
        shape = array.shape
        return moved.reshape(len(moved), *shape[: self.axis], self.before * self.after, *shape[self.axis + 1 :])


@dataclass(frozen=True, eq=False)
class PermutationGroup:
    """Axes of weights that can be permuted together without a change of the network's outputs."""

    size: int  # how many entries are permuted, such as the number of a layer's units
    axes: tuple[PermutedAxis, ...]  # all axes that follow
    # Entry i is taken from entry ``permutation[i]`` of the network that is aligned, shape (size,). Where the axes are
    # ``within`` others, (parts, size): the order in each part, after the parts are in theirs.
    permutation: Int64[np.ndarray, "*parts size"] = field(repr=False)

    @classmethod
    def unpermuted(cls, size: int, axes: Sequence[PermutedAxis], parts: int | None = None) -> PermutationGroup:
        order = np.arange(size)
        return cls(size, tuple(axes), order if parts is None else np.tile(order, (parts, 1)))

    def __str__(self) -> str:
        shown = [str(axis) for axis in self.axes[:_NAMES_SHOWN]]
        more = len(self.axes) - len(shown)
        parts = f" in each of {len(self.permutation)} parts" if self.permutation.ndim > 1 else ""
        return f"{', '.join(shown)}{f' and {more} more' if more else ''} ({self.size} entries{parts})"

    @property
    def moved(self) -> int:
        return int((self.permutation != np.arange(self.size)).sum())

    def permuted_by(self, permutation: NDArray[Any]) -> PermutationGroup:
        return replace(self, permutation=np.asarray(permutation, np.int64))


def permuted(state: State, groups: Sequence[PermutationGroup]) -> dict[str, NDArray[Any]]:
    """Returns a state with its groups permuted, those within others last; tensors of no group are the same objects."""
    result = dict(state)
    for group in groups:
        if group.moved:
            for axis in group.axes:
                result[axis.name] = axis.permute(result[axis.name], group.permutation)
    return result


def match(target: State, moved: State, groups: Sequence[PermutationGroup]) -> list[PermutationGroup]:
    """Returns the groups with permutations of ``moved`` that bring it near to ``target`` (Ainsworth et al. 2023)."""
    # One group after the other is solved exactly while all others rest, until nothing changes (coordinate descent);
    # parts that are permuted as a whole are solved together with the order inside them. It starts once from the
    # permutations that tensors at the fixed ends suggest, and once from none; the nearer result is returned. Nothing is
    # drawn at random, and ties keep what there is.
    if not groups:
        return []
    matcher = _Matcher(target, moved, groups)
    best = max(map(matcher.descend, (matcher.from_the_ends(), matcher.untouched())), key=matcher.agreement)
    return [group.permuted_by(permutation) for group, permutation in zip(groups, best, strict=True)]


class _Matcher:
    def __init__(self, target: State, moved: State, groups: Sequence[PermutationGroup]) -> None:
        self._target, self._moved, self._groups = target, moved, groups
        self._axes: dict[str, list[tuple[int, PermutedAxis]]] = {}
        owners: dict[PermutedAxis | None, int] = {
            axis: index for index, group in enumerate(groups) for axis in group.axes
        }
        units: dict[int, list[int]] = {}
        for index, group in enumerate(groups):
            units.setdefault(owners.get(group.axes[0].within, index), []).append(index)
            for axis in group.axes:
                if axis.name in target:
                    self._axes.setdefault(axis.name, []).append((index, axis))
        # What is solved at once: a group, or one with those within it.
        self._units = list(units.values())

    def untouched(self) -> _Permutations:
        return [np.broadcast_to(np.arange(group.size), group.permutation.shape) for group in self._groups]

    def from_the_ends(self) -> _Permutations:
        """Returns permutations solved one by one, from the network's ends, by tensors whose other axes are settled."""
        # The group with most numbers in such tensors is next.
        permutations = self.untouched()
        settled: set[int] = set()
        rest = list(self._units)
        while rest:
            unit = max(rest, key=lambda unit: sum(self._target[name].size for name in self._names(unit, settled)))
            permutations = self._solved(unit, permutations, self._names(unit, settled) or self._names(unit))
            settled.update(unit)
            rest.remove(unit)
        return permutations

    def descend(self, start: _Permutations) -> _Permutations:
        """Returns permutations of which no single one can be improved."""
        permutations = start
        indices = [[index for index, _ in axes] for axes in self._axes.values()]
        for _ in range(_MOST_ROUNDS):
            before = permutations
            # An order inside parts is also sought alone, where all tensors count.
            for unit in [*self._units, *([index] for _, *inner in self._units for index in inner)]:
                names = self._names(unit)
                others = self._solved(unit, permutations, names)
                if all(others[index] is permutations[index] for index in unit):
                    continue
                # With two axes of one tensor in a group, the exact solution for either may be none for both.
                repeats = len(unit) > 1 or any(several.count(unit[0]) > 1 for several in indices)
                if not repeats or self.agreement(others, names) > self.agreement(permutations, names):
                    permutations = others
            if permutations is before:
                break
        return permutations

    def agreement(self, permutations: _Permutations, names: Collection[str] | None = None) -> float:
        """Returns the inner product of the two networks, or of some tensors, which grows as their distance shrinks."""
        return sum(
            float(np.vdot(self._target[name].astype(np.float64), self._permuted(name, permutations).astype(np.float64)))
            for name in (self._axes if names is None else names)
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

    def _permuted(self, name: str, permutations: _Permutations, besides: Collection[PermutedAxis] = ()) -> NDArray[Any]:
        array = self._moved[name]
        for index, axis in self._axes[name]:
            if axis not in besides:
                array = axis.permute(array, permutations[index])
        return array

    def _solved(self, unit: Sequence[int], permutations: _Permutations, names: Sequence[str]) -> _Permutations:
        """Returns the permutations with the best ones of a unit; the present ones themselves where none are better."""
        # The order of parts is solved with the orders inside them, by the tensors with one axis of each at most.
        outer, *inner = unit
        result = list(permutations)
        parts = self._groups[outer].size
        of_unit = {name: [(index, axis) for index, axis in self._axes[name] if index in unit] for name in names}
        # How well entry i of the target agrees with entry j of the other network.
        worth = np.zeros((*self._groups[outer].permutation.shape, parts))
        for name in names:
            for index, axis in of_unit[name]:
                if index == outer and (not inner or len(of_unit[name]) == 1):
                    rows = axis.rows(self._permuted(name, permutations, [axis]))
                    worth += axis.rows(self._target[name]) @ rows.swapaxes(-1, -2)
        orders = {}
        for index in inner:
            size = self._groups[index].size
            gains = np.zeros((parts, parts, size, size))
            for name in names:
                if sorted(other for other, _ in of_unit[name]) == [outer, index]:
                    axis = dict(of_unit[name])[index]
                    rows = axis.rows(self._permuted(name, permutations, [axis for _, axis in of_unit[name]]))
                    gains += np.tensordot(axis.rows(self._target[name]), rows, (2, 2)).transpose(0, 2, 1, 3)
            # Row and column: the part of the target, and the part of the other network that would lie there.
            orders[index] = _assign(gains, np.repeat(permutations[index][:, None], parts, axis=1))
            worth += np.take_along_axis(gains, orders[index][..., None], axis=3).sum((2, 3))
        result[outer] = _assign(worth, permutations[outer])
        for index in inner:
            best = orders[index][np.arange(parts), result[outer]]
            if not np.array_equal(best, permutations[index]):
                result[index] = best
        return result


def _assign(gains: Float64[np.ndarray, "*parts size size"], present: NDArray[Any]) -> NDArray[Any]:
    """Returns the best assignment in each part; the present ones themselves where none is better beyond rounding."""
    if gains.ndim > 2:
        before = list(present)
        best_of_parts = [_assign(*pair) for pair in zip(gains, before, strict=True)]
        return present if all(map(operator.is_, best_of_parts, before)) else np.stack(best_of_parts)

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
