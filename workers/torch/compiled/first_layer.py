"""The first layer of a network, computed once for a plane, also beside compiled code (PyTorch, on CPUs)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn

from collectors.networks.batches import call_network
from collectors.networks.torch_network import to_tensor
from collectors.networks.weight_space import State

from ...samples.batches import Batch
from ..moves import NetworkInPlace
from .ahead_of_time import PackageError
from .finding_layers import FirstCall, Own
from .network_code import code_of_network
from .packages import PackagedNetwork

NO_FIRST_LAYER = (
    "the plan says that the first layer is computed once for a plane, but here it is computed at each point: the "
    "network has no such layer, or is not measured in the same way. The last bits of a loss may differ."
)
"""What the user should know where a plan cannot be kept."""

# Of packages, for whatever changes in how the layer's outputs are given.
_VERSION = 1
_Key: TypeAlias = tuple[int, torch.Size, tuple[int, ...], torch.dtype]


class _ReachedError(BaseException):
    """Ends a forward pass at the layer; no network catches it."""


@dataclass(frozen=True)
class _Part:
    """Outputs of the layer for one batch: at the origin, along each direction, and in the current row of points."""

    origin: torch.Tensor
    along: list[torch.Tensor]
    row: torch.Tensor


class FirstLayer:
    """A network's first layer, which gives ``A0 + b * A2 + a * A1`` at the point (a, b) of a plane."""

    def __init__(self, layer: nn.Module, forward: Callable[..., Any], parameters: Mapping[str, torch.Tensor]) -> None:
        # A layer that is linear in its weights, and whose input is the batch itself, has such outputs: A0 is that of
        # the plane's origin, A1 and A2 are those of the directions. One sum takes the place of a matrix product or a
        # convolution. Of LeNet-5 the first layer is two fifths of the time, of a perceptron on 784 inputs more than
        # two thirds.
        self.layer, self._forward, self._parameters = layer, forward, parameters
        self._plain: Callable[..., torch.Tensor] = layer.forward
        self._states: list[dict[str, torch.Tensor]] = []
        self._parts: dict[tuple[_Key, ...], _Part] = {}
        self._compiled = self._on_plane = False
        self._row: tuple[float, ...] | None = None
        self._coordinate = 0.0

    @classmethod
    def of(cls, call: FirstCall, forward: Callable[..., Any], moves: NetworkInPlace) -> FirstLayer | None:
        """Returns a layer of the network that is moved; None where its parameters are parts of others."""
        tensors = [tensor for tensor in call.layer._parameters.values() if tensor is not None]
        parameters = {moves.name_of(tensor) or "": tensor.detach() for tensor in tensors}
        if "" in parameters or len(parameters) < len(tensors):
            return None
        return cls(call.layer, forward, parameters)

    def load(self, states: Sequence[State]) -> None:
        """Takes over a plane: values by name at the origin and along each direction (none of what does not move)."""
        self._parts = {}
        # Copies, because an array may be a small part of shared memory that would be kept for it.
        self._states = [
            {name: to_tensor(state[name]).clone() for name in self._parameters if name in state} for state in states
        ]

    def prepare(self, batches: Sequence[Batch], *, compiled: bool) -> None:
        """Computes what is kept for batches, whose memory must stay; then the layer must be put back to the origin."""
        self._parts, self._row, self._compiled = {}, None, compiled
        inputs = [(batch, values) for batch in batches if (values := self._input_for(batch)) is not None]
        outputs: list[list[torch.Tensor]] = [[] for _ in inputs]
        for state in self._states:
            for name, tensor in self._parameters.items():
                tensor.copy_(state[name]) if name in state else tensor.zero_()
            for (_, values), kept in zip(inputs, outputs, strict=True):
                kept.append(self._plain(values))
        for (batch, values), (origin, *along) in zip(inputs, outputs, strict=True):
            # Along a line there is but one row.
            part = _Part(origin, along, torch.empty_like(origin) if len(along) > 1 else origin)
            # A compiled network is a ``SplitNetwork``, which asks for ``outputs_for``.
            self._parts[_keys(batch.inputs if compiled else values)] = part

    @contextlib.contextmanager
    def at(self, coordinates: Sequence[float]) -> Iterator[None]:
        """Lets the layer give what was kept, at a point of the plane."""
        self._coordinate, *others = (coordinate + 0.0 for coordinate in coordinates)  # of two zeros, the positive one
        # The order of the additions is always the same, whether a row is at hand or not.
        row = tuple(others)
        if row != self._row:
            self._row = None
            for part in self._parts.values():
                for number, (coordinate, along) in enumerate(zip(row, part.along[1:], strict=True)):
                    torch.add(part.row if number else part.origin, along, alpha=coordinate, out=part.row)
            self._row = row
        with contextlib.nullcontext() if self._compiled else replaced_forward(self.layer, self._output):
            self._on_plane = True
            try:
                yield
            finally:
                self._on_plane = False

    def outputs_for(self, inputs: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
        """Returns (row, along, coordinate): the layer gives row + coordinate * along; None if no input reaches it."""
        part = self._parts.get(_keys(inputs)) if self._on_plane else None
        if part is not None:
            return part.row, part.along[0], torch.tensor(self._coordinate, dtype=part.row.dtype)
        values = self._input_for(Batch(inputs, None, 0))
        if values is None:
            return None
        output = self._plain(values)
        return output, torch.zeros_like(output), torch.zeros((), dtype=output.dtype)

    def _output(self, values: Any, *others: Any, **named: Any) -> torch.Tensor:
        part = self._parts.get(_keys(values)) if type(values) is torch.Tensor and not others and not named else None
        if part is None:
            return self._plain(values, *others, **named)
        # Always a tensor of its own: the network may go on in place.
        return torch.add(part.row, part.along[0], alpha=self._coordinate)

    def _input_for(self, batch: Batch) -> torch.Tensor | None:
        """Returns what the layer gets of a batch; None where that is not the batch's own memory."""
        seen: list[Any] = []

        def stop(*values: Any) -> None:
            seen.extend(values)
            raise _ReachedError

        own = Own(batch)
        with contextlib.suppress(_ReachedError), replaced_forward(self.layer, stop):
            call_network(self._forward, batch.inputs)
        return seen[0] if len(seen) == 1 and own.holds(seen[0]) and not own.changed else None


@contextlib.contextmanager
def replaced_forward(layer: nn.Module, forward: Callable[..., object]) -> Iterator[None]:
    """Lets a layer call another function, which gets what it is called with."""
    vars(layer)["forward"] = forward
    try:
        yield
    finally:
        del vars(layer)["forward"]


def _keys(inputs: Any) -> tuple[_Key, ...]:
    items = inputs if isinstance(inputs, tuple | list) else (inputs,)
    tensors = [item for item in items if isinstance(item, torch.Tensor)]
    return tuple((item.data_ptr(), item.shape, item.stride(), item.dtype) for item in tensors)


class SplitNetwork(PackagedNetwork):
    """A network whose first layer is computed by PyTorch, or once for a plane; the rest is one package for both."""

    def __init__(self, network: nn.Module, first_layer: FirstLayer, **choices: Any) -> None:
        self._first_layer = first_layer
        super().__init__(_Rest(network, first_layer.layer).eval(), code=_code, **choices)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if named:
            raise PackageError("its inputs are not tensors alone")
        given = self._first_layer.outputs_for(inputs)
        if given is None:
            raise PackageError("its first layer does not get these inputs")
        return super().__call__(*given, *inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network.network, name)


def _code(rest: _Rest) -> str:
    return repr((_VERSION, rest.name, code_of_network(rest.network)))


class _Rest(nn.Module):
    """What is compiled: a network to which the outputs of one of its layers are given."""

    def __init__(self, network: nn.Module, layer: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.name = next(name for name, item in network.named_modules() if item is layer)
        # It is one of the network's already.
        self.__dict__["_layer"] = layer

    def forward(self, row: torch.Tensor, along: torch.Tensor, coordinate: torch.Tensor, *inputs: torch.Tensor) -> Any:
        """Computes the network's outputs from ``row + coordinate * along``, the outputs of the layer."""
        with replaced_forward(self.__dict__["_layer"], lambda _: row + coordinate * along):
            return self.network(*inputs)
