"""MindSpore's reader: an ``nn.Cell`` as named tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mindspore import nn
from numpy.typing import NDArray

from .weight_space import TensorInfo, WeightSpace

_TRANSPOSED = (nn.Conv1dTranspose, nn.Conv2dTranspose, nn.Conv3dTranspose)
# Those of attention and of normalization layers may have two axes and more.
_WITHOUT_FILTERS = ("bias", "bias_k", "bias_v", "gamma", "beta")
# Parameters to MindSpore, although no optimizer ever moves them.
_STATISTICS = ("moving_mean", "moving_variance", "running_mean", "running_var", "num_batches_tracked")


def owns(value: object) -> bool:
    return isinstance(value, nn.Cell)


def unwrap(network: Any) -> Any:
    """Returns the user's cell inside what ``Model`` and trainings put around it: a loss, an optimizer or a cast."""
    while True:
        inner = network.name_cells()
        wrapped = next((inner[name] for name in ("_backbone", "network", "_network") if name in inner), None)
        others = [cell for cell in inner.values() if cell is not wrapped]
        # The casts of mixed precision hold the network and nothing else.
        is_wrapper = isinstance(network, nn.WithLossCell | nn.WithEvalCell | nn.TrainOneStepCell) or (
            type(network).__name__.startswith("_OutputTo")
        )
        if wrapped is None or not (is_wrapper or any(isinstance(cell, nn.Optimizer | nn.LossBase) for cell in others)):
            return network
        network = wrapped


@dataclass
class NamedTensor:
    """A parameter or buffer with its place in the network."""

    name: str  # given by the network's structure, also where a wrapper changed ``Parameter.name``
    owner: Any
    key: str  # its name in its owner, the cell that has it
    tensor: Any
    is_parameter: bool
    aliases: list[str] = field(default_factory=list)  # further names, including ``Parameter.name`` if that differs

    @property
    def info(self) -> TensorInfo:
        shape, dtype = tuple(self.tensor.shape), str(self.tensor.dtype).lower()
        trainable = self.is_parameter and bool(self.tensor.requires_grad)
        moves = self.is_parameter and dtype.startswith(("float", "bfloat", "complex"))
        is_weight = moves and (trainable or self.key not in _STATISTICS)
        axes: tuple[int, ...] = ()
        groups = 1
        if is_weight and len(shape) >= 2 and self.key not in _WITHOUT_FILTERS:
            transposed = isinstance(self.owner, _TRANSPOSED)
            # (in, out / groups, ...): each group of inputs feeds outputs of its own.
            axes, groups = ((1,), int(self.owner.group)) if transposed else ((0,), 1)
        role: Any = "parameter" if is_weight else "buffer"
        return TensorInfo(self.name, shape, dtype, role, is_weight and trainable, axes, groups, tuple(self.aliases))


def named_tensors(network: Any) -> list[NamedTensor]:
    """Returns every parameter and persistent buffer of a network once, in the network's order."""
    found: dict[int, NamedTensor] = {}
    names: dict[str, int] = {}
    for entry in _walk(unwrap(network), "", ()):
        identity = id(entry.tensor)
        if names.setdefault(entry.name, identity) != identity:
            raise ValueError(
                f"network has two tensors that are both called {entry.name!r}; rename one of them, or build the cells "
                "that hold them with auto_prefix=True."
            )
        first = found.setdefault(identity, entry)
        if entry.name not in (first.name, *first.aliases):
            first.aliases.append(entry.name)
    for identity, entry in found.items():
        # What MindSpore's own checkpoints call it.
        name = entry.tensor.name if entry.is_parameter else entry.name
        if names.setdefault(name, identity) == identity and name not in (entry.name, *entry.aliases):
            entry.aliases.append(name)
    return list(found.values())


def describe(network: Any) -> WeightSpace:
    return WeightSpace(
        "mindspore", type(unwrap(network)).__name__, tuple(entry.info for entry in named_tensors(network))
    )


def read(network: Any) -> dict[str, NDArray[Any]]:
    return {entry.name: to_array(entry.tensor) for entry in named_tensors(network)}


def to_array(tensor: Any) -> NDArray[Any]:
    """Returns a copy of a tensor in host memory; bfloat16 stays what it is."""
    if getattr(tensor, "has_init", False):
        tensor.init_data()
    return np.array(tensor.asnumpy(), order="C", copy=True)


def _walk(cell: Any, prefix: str, above: tuple[Any, ...]) -> Iterator[NamedTensor]:
    for key, parameter in cell._params.items():
        if parameter is not None:
            # A parameter that an optimizer's parallel layout created replaces the first one.
            tensor = parameter.inited_param if parameter.inited_param is not None else parameter
            yield NamedTensor(prefix + key, cell, key, tensor, is_parameter=True)
    for key, tensor in cell._buffers.items():
        if tensor is not None and key not in cell._non_persistent_buffers_set:
            yield NamedTensor(prefix + key, cell, key, tensor, is_parameter=False)
    for key, inner in cell._cells.items():
        if inner is not None and inner is not cell and inner not in above:
            # As MindSpore names parameters: cells without auto_prefix (mixed precision's) leave no trace.
            deeper = f"{prefix}{key}." if cell._auto_prefix else prefix
            yield from _walk(inner, deeper, (*above, cell))
