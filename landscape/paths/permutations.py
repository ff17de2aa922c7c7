"""Groups of axes that are permuted together, and their permutations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import State, WeightSpace
from collectors.validation import wrong_type, wrong_value

if TYPE_CHECKING:
    from jaxtyping import Int64

_NAMES_SHOWN = 3


@dataclass(frozen=True)
class PermutedAxis:
    """Where a permutation acts on a tensor.

    An axis of ``before * size * after`` entries is read in the shape (before, size, after), and its middle is permuted:
    of an axis on which 8 channels of 4 x 4 places lie one after the other, the channels have before 1 and after 16.

    Attributes:
        name: of the tensor.
        axis: of the tensor, from 0.
        before: the length of what lies outside it on the same axis.
        after: the length of what lies inside it on the same axis.
        within: the axis of the same tensor that divides it into parts, each with an order of its own, such as the
            groups of GroupNorm; ``before`` and ``after`` are then those inside one part.
    """

    name: str
    axis: int
    before: int = 1
    after: int = 1
    within: PermutedAxis | None = None

    def __str__(self) -> str:
        part = f" in parts of {self.after}" if self.after > 1 else ""
        return f"{self.name}[{self.axis}]{part}"

    def taken(self, array: NDArray[Any], permutation: Int64[np.ndarray, "*parts size"]) -> NDArray[Any]:
        """Returns the tensor with its entries along the axis taken in the order of the permutation."""
        if self.within is None:
            return np.take(self._divided(array), permutation, self.axis + 1).reshape(array.shape)
        inside = replace(self, within=None)
        parts = zip(self.within._parts(array), permutation, strict=True)
        taken = np.stack([inside.taken(part, order) for part, order in parts])
        # Along the outer axis the parts lie where they did.
        divided = self.within._divided(array)
        shape = np.moveaxis(divided, self.within.axis + 1, 0).shape
        return np.moveaxis(taken.reshape(shape), 0, self.within.axis + 1).reshape(array.shape)

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
    """Axes of weights that can be permuted together without a change of the network's outputs.

    Attributes:
        size: how many entries are permuted, such as the number of a layer's units.
        axes: all axes that follow.
        permutation: entry i is taken from entry ``permutation[i]`` of the network that is aligned, shape (size,). Where
            the axes are ``within`` others, (parts, size): the order in each part, after the parts are in theirs.
    """

    size: int
    axes: tuple[PermutedAxis, ...]
    permutation: Int64[np.ndarray, "*parts size"] = field(repr=False)

    @classmethod
    def unpermuted(cls, size: int, axes: Sequence[PermutedAxis], parts: int | None = None) -> PermutationGroup:
        """Returns a group with the permutation that changes nothing."""
        order = np.arange(size)
        return cls(size, tuple(axes), order if parts is None else np.tile(order, (parts, 1)))

    def __str__(self) -> str:
        shown = [str(axis) for axis in self.axes[:_NAMES_SHOWN]]
        more = len(self.axes) - len(shown)
        parts = f" in each of {len(self.permutation)} parts" if self.permutation.ndim > 1 else ""
        return f"{', '.join(shown)}{f' and {more} more' if more else ''} ({self.size} entries{parts})"

    @property
    def moved(self) -> int:
        """How many entries do not stay where they are."""
        return int((self.permutation != np.arange(self.size)).sum())

    def permuted_by(self, permutation: NDArray[Any]) -> PermutationGroup:
        """Returns the group with another permutation."""
        return replace(self, permutation=np.asarray(permutation, np.int64))


def permuted(state: State, groups: Sequence[PermutationGroup]) -> dict[str, NDArray[Any]]:
    """Returns a state with its groups permuted, those within others last; tensors of no group are the same objects."""
    result = dict(state)
    for group in groups:
        if group.moved:
            for axis in group.axes:
                result[axis.name] = axis.taken(result[axis.name], group.permutation)
    return result


def read_groups(groups: object, space: WeightSpace) -> list[PermutationGroup]:
    """Returns groups given by hand: dicts from a tensor to an axis, an (axis, before, after), or a list of those."""
    if isinstance(groups, str | Mapping) or not isinstance(groups, Sequence):
        raise wrong_type("groups", 'a list of groups such as {"fc1.weight": 0, "fc2.weight": 1}', groups)
    tensors = {name: info for info in space.tensors for name in (info.name, *info.aliases)}
    seen: dict[PermutedAxis, int] = {}
    found = []
    for index, group in enumerate(groups):
        label = f"groups[{index}]"
        if not isinstance(group, Mapping) or not group:
            raise wrong_type(label, "a mapping from a tensor's name to an axis", group)
        sizes: dict[PermutedAxis, int] = {}
        for name, value in group.items():
            info = tensors.get(name)
            if info is None:
                raise ValueError(f"{label} names {name!r}, which is no parameter or buffer of {space.network}.")
            for item in value if isinstance(value, list) else [value]:
                axis = _axis(f"{label}[{name!r}]", info.name, item, len(info.shape))
                length, parts = info.shape[axis.axis], axis.before * axis.after
                if length % parts:
                    raise wrong_value(f"{label}[{name!r}]", f"an axis that {parts} parts divide", length)
                sizes[axis] = length // parts
                if seen.setdefault(axis, index) != index:
                    raise ValueError(f"{label} and groups[{seen[axis]}] both hold {axis}; each axis has one group.")
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{axis}: {size}" for axis, size in sizes.items())
            raise ValueError(
                f"{label} must hold axes of one length, but got {listed}. Where an axis was flattened, give "
                "(axis, before, after), such as (1, 1, 16) for channels of 4 x 4 places."
            )
        found.append(PermutationGroup.unpermuted(next(iter(sizes.values())), list(sizes)))
    return found


def _axis(label: str, name: str, value: object, dimensions: int) -> PermutedAxis:
    parts = value if isinstance(value, tuple) else (value, 1, 1)
    if len(parts) != 3 or not all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
        raise wrong_type(label, "an axis such as 0, or (axis, before, after)", value)
    axis, before, after = parts
    if not -dimensions <= axis < dimensions or min(before, after) < 1:
        raise wrong_value(label, f"an axis of {dimensions}, and lengths of at least 1", value)
    return PermutedAxis(name, axis % dimensions, before, after)


def distance(one: State, other: State, space: WeightSpace) -> float:
    """Returns the Euclidean distance between two sets of trainable weights, in float64."""
    squares = 0.0
    for info in space.trainable:
        difference = one[info.name].astype(np.float64) - other[info.name].astype(np.float64)
        squares += float(np.vdot(difference, difference).real)
    return math.sqrt(squares)
