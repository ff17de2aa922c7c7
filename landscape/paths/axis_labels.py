"""Labels of the axes of tensors, of which those of one label permute together, and an operator as its rule sees it."""

# A flattened axis has several labels, outermost first. One of length 1 is never kept, so that an axis of length 1 is an
# empty list.

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypeAlias

Axis: TypeAlias = list[int]
Axes: TypeAlias = list[Axis]
Shape: TypeAlias = tuple[int, ...]
# Of one tensor, or of each of several; None where a result is no tensor.
Result: TypeAlias = "Axes | tuple[Axes | None, ...]"
_Tensor: TypeAlias = tuple[tuple[int, ...], ...]


class NoCommonPartsError(Exception):
    """Two axes are divided at places that do not fit together."""


class AxisLabels:
    """Which axes can be permuted, and which only together (union-find; a label may be split into several)."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._lengths: list[int] = []
        self._fixed: list[bool] = []
        self._parts: dict[int, Axis] = {}
        self.mixed: list[tuple[Axes, Axes]] = []
        """Of operators that mix all entries along axes, and keep these: the axes, and all of the operator's tensors."""

    def new_axis(self, length: int, *, fixed: bool = False) -> Axis:
        return [self._new(length, fixed)] if length != 1 else []

    def new_axes(self, shape: Iterable[int], *, fixed: bool = False) -> Axes:
        return [self.new_axis(length, fixed=fixed) for length in shape]

    def labels(self, axis: Sequence[int]) -> Axis:
        """Returns an axis as it is labelled by now, after joining and splitting."""
        current: Axis = []
        for label in axis:
            root = self._root(label)
            current += self.labels(self._parts[root]) if root in self._parts else [root]
        return current

    def length(self, axis: Sequence[int]) -> int:
        return math.prod(self._lengths[label] for label in axis)

    def is_free(self, label: int) -> bool:
        return not self._fixed[label]

    def fix(self, *axes: Sequence[int]) -> None:
        for axis in axes:
            for label in self.labels(axis):
                self._fixed[label] = True

    def join(self, one: Sequence[int], other: Sequence[int]) -> Axis:
        """Makes two axes permute together, divided as far as both allow, and returns their labels; else fixes both."""
        try:
            return self._join(self.labels(one), self.labels(other))
        except NoCommonPartsError:
            self.fix(one, other)
            return self.labels(one)

    def broadcast(self, tensors: Sequence[Axes]) -> Axes:
        """Returns the labels of tensors that are combined element by element, aligned at their last axes."""
        result: Axes = []
        for position in range(1, max(map(len, tensors), default=0) + 1):
            axis: Axis = []
            for axes in tensors:
                if len(axes) >= position and (other := self.labels(axes[-position])):
                    axis = self.join(axis, other) if axis else other
            result.insert(0, axis)
        return result

    def divide(self, axes: Sequence[Sequence[int]], shape: Sequence[int]) -> Axes:
        """Returns the labels of axes read in another shape, splitting some, even where it raises NoCommonPartsError."""
        rest = [label for axis in axes for label in self.labels(axis)]
        divided: Axes = []
        for length in shape:
            axis: Axis = []
            while (missing := length // self.length(axis)) > 1:
                rest = self.labels(rest)
                if not rest or length % self.length(axis):
                    raise NoCommonPartsError
                first = rest.pop(0)
                if self._lengths[first] > missing:
                    outer, inner = self._split(first, missing)
                    rest.insert(0, inner)
                    first = outer
                axis.append(first)
            if self.length(axis) != length:
                raise NoCommonPartsError
            divided.append(axis)
        if rest:
            raise NoCommonPartsError
        # What was split while a later axis was divided may be part of an earlier one.
        return [self.labels(axis) for axis in divided]

    def find_outer(self, weights: Iterable[Axes], tensors: Iterable[Axes]) -> dict[int, int]:
        """Returns, by inner label, the outer one in each of whose entries it may have another order; none is both."""
        # Such are channels, in the groups of GroupNorm.
        # That is so where nothing combines different entries of the outer label while it has the inner one: every
        # tensor with the inner label has the outer one too. Operators that mix along an axis that they keep called mix.
        kinds = {self._resolved(axes) for axes in tensors}
        mixed = {(self._resolved(some), self._resolved(axes)) for some, axes in self.mixed}
        pairs = {
            pair: None for axes in weights for axis in axes for pair in permutations(axis, 2) if self.is_free(pair[1])
        }
        outer_of: dict[int, int] = {}
        for outer, inner in sorted(pairs, key=lambda pair: not self.is_free(pair[0])):
            settled = {*outer_of, *outer_of.values()}
            if outer == inner or inner in settled or outer in outer_of:
                continue
            is_along = all(_goes_along(axes, outer, inner) for axes in kinds)
            if is_along and not any(_is_combined(some, axes, outer, inner) for some, axes in mixed):
                outer_of[inner] = outer
        return outer_of

    def _resolved(self, axes: Axes) -> _Tensor:
        return tuple(tuple(self.labels(axis)) for axis in axes)

    def _new(self, length: int, fixed: bool) -> int:
        self._parents.append(len(self._parents))
        self._lengths.append(length)
        self._fixed.append(fixed)
        return len(self._parents) - 1

    def _root(self, label: int) -> int:
        while self._parents[label] != label:
            self._parents[label] = self._parents[self._parents[label]]
            label = self._parents[label]
        return label

    def _split(self, label: int, outer: int) -> Axis:
        length = self._lengths[label]
        if length % outer:
            raise NoCommonPartsError
        self._parts[label] = [self._new(part, self._fixed[label]) for part in (outer, length // outer)]
        return self._parts[label]

    def _join(self, one: Axis, other: Axis) -> Axis:
        if self.length(one) != self.length(other):
            raise NoCommonPartsError
        joined: Axis = []
        while one and other:
            first, second = one[0], other[0]
            if first == second or self._lengths[first] == self._lengths[second]:
                self._parents[second] = first
                self._fixed[first] |= self._fixed[second]
                joined.append(first)
                one, other = one[1:], other[1:]
            else:
                shorter, longer = sorted((first, second), key=self._lengths.__getitem__)
                self._split(longer, self._lengths[shorter])
            one, other = self.labels(one), self.labels(other)
        return self.labels(joined)


def _goes_along(axes: _Tensor, outer: int, inner: int) -> bool:
    """Returns whether each axis with the inner label has an outer one, and there is no doubt which."""
    if any(axis.count(label) > 1 for axis in axes for label in (outer, inner)):
        return False
    with_inner, with_outer = ([axis for axis in axes if label in axis] for label in (inner, outer))
    return len(with_outer) == 1 or with_inner == with_outer


def _is_combined(mixed: _Tensor, axes: Collection[tuple[int, ...]], outer: int, inner: int) -> bool:
    return any(outer in axis for axis in mixed) and any(inner in axis and outer not in axis for axis in axes)


@dataclass(frozen=True)
class Labelled:
    axes: Axes  # of a tensor among an operator's arguments


class UnknownOperatorError(Exception):
    """No rule says what becomes of the axes: everything that the operator touches is fixed."""


@dataclass(frozen=True)
class Operation:
    labels: AxisLabels  # of all tensors of the graph
    name: str  # such as "conv2d", without "_" at its end
    arguments: Mapping[str, Any]  # by the names of PyTorch's schema, with defaults; tensors are ``Labelled``
    shapes: tuple[Shape | None, ...]  # of what it returns; None for what is no tensor

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def shape(self) -> Shape:
        """The shape of the only tensor that it returns."""
        (shape,) = self.shapes
        if shape is None:
            raise UnknownOperatorError
        return shape

    def axes(self, name: str) -> Axes:
        value = self.arguments[name]
        if not isinstance(value, Labelled):
            raise UnknownOperatorError
        return [self.labels.labels(axis) for axis in value.axes]

    def optional(self, *names: str) -> list[Axes]:
        return [self.axes(name) for name in names if isinstance(self.arguments.get(name), Labelled)]

    @property
    def first(self) -> Axes:
        return self.axes(next(iter(self.arguments)))

    def all_axes(self) -> list[Axes]:
        """Returns the labels of every tensor among the arguments, lists included."""
        tensors: list[Axes] = []
        for value in self.arguments.values():
            items = value if isinstance(value, list | tuple) else [value]
            tensors += [item.axes for item in items if isinstance(item, Labelled)]
        return tensors

    def fixed(self, length: int) -> Axis:
        return self.labels.new_axis(length, fixed=True)

    def joined(self, axis: Axis, *names: str) -> Axis:
        """Returns an axis after it was joined with those of vectors among the arguments, such as a bias."""
        for vector in self.optional(*names):
            axis = self.labels.join(axis, vector[0])
        return axis

    def dimensions(self, name: str, count: int) -> list[int]:
        """Returns an argument that names axes, counted from the front; all where it is None or empty."""
        value = self.arguments.get(name)
        if value is None or value == []:
            return list(range(count))
        return [item % count for item in ([value] if isinstance(value, int) else value)]
