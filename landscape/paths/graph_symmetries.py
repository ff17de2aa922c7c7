"""Which axes of a PyTorch network's weights can be permuted, read off its graph, and whether its outputs stay."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from collectors.networks.batches import call_network, leaves, map_leaves
from collectors.networks.torch_network import (
    named_tensors,
    tied_tensors,
    to_tensor,
    transformers_without_fast_path,
    unwrap,
)
from collectors.networks.weight_space import State, WeightSpace, canonical_name

from ..errors import AlignmentError
from .axis_labels import Axes, Axis, AxisLabels, Labelled, Operation, Result, Shape, UnknownOperatorError
from .matching import PermutationGroup, PermutedAxis
from .operators import RULES, pointwise

_LINES_SHOWN = 4


def find_groups(network: nn.Module, example: Any, space: WeightSpace) -> tuple[list[PermutationGroup], tuple[str, ...]]:
    """Returns the groups of axes that permute together without changing outputs, and the operators without a rule."""
    reader = _GraphReader(space)
    reader.read(_export(network, example))
    return reader.groups(), tuple(sorted(reader.unknown))


def _export(network: nn.Module, example: Any) -> torch.export.ExportedProgram:
    several = isinstance(example, tuple | list)
    positions = tuple(example) if several else () if isinstance(example, Mapping) else (example,)
    keywords = dict(example) if isinstance(example, Mapping) else None
    try:
        with warnings.catch_warnings(), torch.no_grad(), transformers_without_fast_path():
            warnings.simplefilter("ignore")
            return torch.export.export(_OutputTensors(network), positions, keywords, strict=False)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()][:_LINES_SHOWN]
        raise AlignmentError(
            f"torch.export cannot read the graph of {type(network).__name__}, by which its symmetries are found "
            f"({type(error).__name__}: {' '.join(lines)}). Usually forward decides by the values of tensors. Say by "
            'hand what can be permuted together: groups=[{"fc1.weight": 0, "fc1.bias": 0, "fc2.weight": 1}, ...].'
        ) from error


class _OutputTensors(nn.Module):
    """A network whose outputs are tensors alone: of caches and the like, ``torch.export`` knows nothing."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *positions: Any, **keywords: Any) -> list[torch.Tensor]:
        return _output_tensors(self.network(*positions, **keywords))


class _GraphReader:
    """Gives labels to the axes of every tensor in a graph; ``unknown`` are the operators without a rule."""

    def __init__(self, space: WeightSpace) -> None:
        self._infos = {name: info for info in space.tensors for name in (info.name, *info.aliases)}
        self._labels = AxisLabels()
        self._weights: dict[str, Axes] = {}
        self._used: set[str] = set()
        self._results: dict[fx.Node, Result | None] = {}
        self.unknown: set[str] = set()

    def read(self, program: torch.export.ExportedProgram) -> None:
        """Follows the axes through the graph, from inputs to outputs, which are both fixed."""
        signature = program.graph_signature
        named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        for node in program.graph.nodes:
            if node.op == "output":
                self._fix(node.all_input_nodes)
            elif node.op == "placeholder" and node.name in named:
                self._results[node] = self._weight(named[node.name], _shapes(node), used=bool(node.users))
            elif node.op == "call_function":
                self._results[node] = self._call(node)
            else:
                self._results[node] = self._fixed(node)

    def groups(self) -> list[PermutationGroup]:
        """Returns the labels that are free, with all axes of weights that have them; what is within others is last."""
        labels = self._labels
        # Of a part that the example does not reach, nobody knows what reads it.
        used = {name: list(map(labels.labels, axes)) for name, axes in self._weights.items() if name in self._used}
        outer = labels.find_outer(used.values(), self._tensors(self._results))
        axes_of: dict[int, list[PermutedAxis]] = {}
        for name, axes in used.items():
            for place, parts in enumerate(axes):
                for position, label in enumerate(parts):
                    if labels.is_free(label):
                        axis = PermutedAxis(name, place, *self._around(parts, position))
                        if label in outer:
                            axis = self._within(axis, axes, label, outer[label])
                        axes_of.setdefault(label, []).append(axis)
        moved = {name for name, info in self._infos.items() if info.trainable}
        return [
            PermutationGroup.unpermuted(
                labels.length([label]), members, labels.length([outer[label]]) if label in outer else None
            )
            for label, members in sorted(axes_of.items(), key=lambda item: item[0] in outer)
            if any(member.name in moved for member in members)
        ]

    def _around(self, axis: Axis, position: int) -> tuple[int, int]:
        return self._labels.length(axis[:position]), self._labels.length(axis[position + 1 :])

    def _within(self, axis: PermutedAxis, axes: Axes, label: int, outer: int) -> PermutedAxis:
        parts = axes[axis.axis]
        place = axis.axis if outer in parts else next(place for place, other in enumerate(axes) if outer in other)
        within = PermutedAxis(axis.name, place, *self._around(axes[place], axes[place].index(outer)))
        inside = [other for other in parts if other != outer]
        return PermutedAxis(axis.name, axis.axis, *self._around(inside, inside.index(label)), within)

    def _weight(self, raw_name: str, shapes: Sequence[Shape | None], *, used: bool) -> Result:
        info = self._infos.get(canonical_name(raw_name.removeprefix("network.")))
        (shape,) = shapes
        assert shape is not None
        if info is None:
            return self._labels.new_axes(shape, fixed=True)
        if used:
            self._used.add(info.name)
        axes = self._weights.get(info.name)
        if axes is None:
            # What is frozen is the same in both networks, and a plane never moves it.
            can_move = info.trainable or (info.role == "buffer" and "float" in info.dtype)
            axes = self._weights[info.name] = self._labels.new_axes(info.shape, fixed=not can_move)
        if shape != info.shape:
            self._labels.fix(*axes)
            return self._labels.new_axes(shape, fixed=True)
        return axes

    def _call(self, node: fx.Node) -> Result | None:
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            function = getattr(node.target, "__name__", str(node.target))
            if function != "getitem":
                return self._unknown(node, function)
            source, index = node.args
            results = self._results[source]  # type: ignore[index]
            return results[index] if isinstance(results, tuple) else None  # type: ignore[index]
        name = schema.name.partition("::")[2]
        if name.endswith("_") and not name.endswith("__"):
            name = name[:-1]  # it writes into its first argument
        if name.startswith(("_assert", "sym_")):
            return None
        given = dict(zip([item.name for item in schema.arguments], node.args, strict=False)) | node.kwargs
        arguments = {item.name: self._argument(given.get(item.name, item.default_value)) for item in schema.arguments}
        operation = Operation(self._labels, name, arguments, tuple(_shapes(node)))
        rule = RULES.get(name)
        if rule is None and torch.Tag.pointwise in node.target.tags:  # type: ignore[union-attr]
            rule = pointwise
        try:
            if rule is None or not schema.name.startswith("aten::"):
                raise UnknownOperatorError
            return rule(operation)
        except Exception:  # arguments in a form that no rule expects are as little known
            return self._unknown(node, schema.name.removeprefix("aten::"))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            axes = self._results[value]
            return Labelled(axes) if isinstance(axes, list) else None
        if isinstance(value, list | tuple):
            return [self._argument(item) for item in value]
        return value

    def _unknown(self, node: fx.Node, name: str) -> Result | None:
        if self._fix(node.all_input_nodes):
            self.unknown.add(name)
        return self._fixed(node)

    def _fix(self, nodes: Sequence[fx.Node]) -> bool:
        """Fixes the axes of tensors; returns whether any of them was free."""
        axes = [axis for tensor in self._tensors(nodes) for axis in tensor]
        any_free = any(self._labels.is_free(label) for axis in axes for label in self._labels.labels(axis))
        self._labels.fix(*axes)
        return any_free

    def _tensors(self, nodes: Iterable[fx.Node]) -> list[Axes]:
        results = (self._results[node] for node in nodes)
        several = (result if isinstance(result, tuple) else (result,) for result in results)
        return [axes for result in several for axes in result if axes is not None]

    def _fixed(self, node: fx.Node) -> Result | None:
        new = [None if shape is None else self._labels.new_axes(shape, fixed=True) for shape in _shapes(node)]
        return new[0] if len(new) == 1 else tuple(new)


def _shapes(node: fx.Node) -> list[Shape | None]:
    value = node.meta.get("val")
    items = value if isinstance(value, list | tuple) else [value]
    return [tuple(map(int, item.shape)) if isinstance(item, torch.Tensor) else None for item in items]


class OutputCheck:
    """Runs copies of a network, in eval mode, on the inputs ``example``, to compare outputs with those of ``state``."""

    # Where inputs are numbers, they are run with noise added too: with inputs that are all zero, a network may give the
    # same outputs for other reasons.

    def __init__(self, network: nn.Module, example: Any, state: State) -> None:
        module = unwrap(network)
        is_narrow = any(item.is_floating_point() and item.element_size() < 4 for item in module.parameters())
        self.network = _copied(module, nn.Module.float if is_narrow else nn.Module.eval).eval()
        devices = {tensor.device for _, tensor in named_tensors(self.network)}
        device = devices.pop() if len(devices) == 1 else None
        tensors = map_leaves(lambda leaf: to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, example)
        self.example = map_leaves(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, tensors)
        self._state = state
        self._run_on_example(self.network)
        self.example = self._inputs[0]

    def difference(self, state: State) -> float:
        """Returns the outputs' largest difference, relative to the largest output; infinite where shapes differ."""
        outputs = [item for some in self._inputs for item in _run(self._module, state, some)]
        if [item.shape for item in outputs] != [item.shape for item in self._truth]:
            return math.inf
        return max(map(_relative, outputs, self._truth))

    def in_float64(self) -> bool:
        """Computes in float64 from now on, where the network can; returns whether it can."""
        try:
            self._run_on_example(_copied(self.network, nn.Module.double))
        except Exception:  # a network may fix its types, and a device may lack float64
            return False
        return True

    def _run_on_example(self, module: nn.Module) -> None:
        wanted = next((item.dtype for item in module.parameters() if item.is_floating_point()), torch.float32)
        inputs = [map_leaves(lambda leaf: leaf.to(wanted) if _is_real(leaf) else leaf, self.example)]
        try:
            truth = _run(module, self._state, inputs[0])
        except Exception as error:
            raise AlignmentError(
                f"{type(module).__name__} cannot be run on the example: {type(error).__name__}: {error}. Give example= "
                "what the network takes: a tensor, a tuple of positions, or a dict of keywords."
            ) from error
        if not truth or not all(bool(torch.isfinite(item).any()) for item in truth):
            raise AlignmentError(
                f"{type(module).__name__} gives no finite outputs for the example, so that nothing can be verified. "
                "Give inputs from the data set."
            )
        if any(_is_real(leaf) for leaf in leaves(inputs[0])):
            noisy = _with_noise(inputs[0])
            with contextlib.suppress(Exception):  # numbers may stand for something, such as rows of a table
                truth += _run(module, self._state, noisy)
                inputs.append(noisy)
        self._module, self._inputs, self._truth = module, inputs, truth


def _output_tensors(outputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _copied(module: nn.Module, cast: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """Returns a copy, cast; what a layer computed of its weights, as pruning does, is copied by its values."""
    computed = {
        id(value): value.detach().clone()
        for layer in module.modules()
        for value in vars(layer).values()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }
    copied = cast(copy.deepcopy(module, computed))
    # Copies of tensors that are others in the same memory lie apart.
    entries = named_tensors(module)
    first = {info.name: tensor for info, tensor in entries}
    there = {**dict(copied.named_parameters()), **dict(copied.named_buffers())}
    copies = {id(item): there[name] for name, item in (*module.named_parameters(), *module.named_buffers())}
    for name, tied in tied_tensors(module, entries):
        copies[id(tied)].data = copies[id(first[name])].data.as_strided(tied.shape, tied.stride())
    return copied


def _run(module: nn.Module, state: State, inputs: Any) -> list[torch.Tensor]:
    with torch.no_grad():
        for info, tensor in named_tensors(module):
            tensor.copy_(to_tensor(state[info.name]))
        outputs = call_network(module, inputs)
    return [leaf.double().cpu() for leaf in _output_tensors(outputs) if _is_real(leaf)]


def _relative(output: torch.Tensor, truth: torch.Tensor) -> float:
    finite = torch.isfinite(truth)
    if not torch.equal(finite, torch.isfinite(output)):
        return math.inf
    if not finite.any():
        return 0.0
    scale = float(truth[finite].abs().max()) or 1.0
    return float((output - truth)[finite].abs().max()) / scale


def _with_noise(inputs: Any) -> Any:
    generator = torch.Generator().manual_seed(0)

    def noisy(leaf: Any) -> Any:
        if not _is_real(leaf):
            return leaf
        noise = torch.randn(leaf.shape, generator=generator).to(leaf)
        spread = float(leaf.double().std()) if leaf.numel() > 1 else 0.0
        return leaf + noise * (spread or 1.0)

    return map_leaves(noisy, inputs)


def _is_real(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
