"""One operator of a network's graph, as the rules see it that say which axes go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .axis_labels import Axes, Axis, AxisLabels

Shape: TypeAlias = tuple[int, ...]
# Of one tensor, or of each of several; None where a result is no tensor.
Result: TypeAlias = "Axes | tuple[Axes | None, ...]"


@dataclass(frozen=True)
class Labelled:
    """A tensor among an operator's arguments, with the labels of each axis."""

    axes: Axes


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
        """Returns the labels of a tensor."""
        value = self.arguments[name]
        if not isinstance(value, Labelled):
            raise UnknownOperatorError
        return [self.labels.labels(axis) for axis in value.axes]

    def optional(self, *names: str) -> list[Axes]:
        """Returns the labels of those of these arguments that are tensors."""
        return [self.axes(name) for name in names if isinstance(self.arguments.get(name), Labelled)]

    @property
    def first(self) -> Axes:
        """The labels of the first argument."""
        return self.axes(next(iter(self.arguments)))

    def all_axes(self) -> list[Axes]:
        """Returns the labels of every tensor among the arguments, lists included."""
        tensors: list[Axes] = []
        for value in self.arguments.values():
            items = value if isinstance(value, list | tuple) else [value]
            tensors += [item.axes for item in items if isinstance(item, Labelled)]
        return tensors

    def fixed(self, length: int) -> Axis:
        """Returns a new axis that is never permuted."""
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
