"""The first layer of a network, found and computed once for a plane, also beside compiled code (PyTorch, on CPUs)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn

from collectors.networks.batches import call_network, leaves
from collectors.networks.torch_network import to_tensor
from collectors.networks.weight_space import State

from ...hardware import free_memory
from ...measurement_plan import Workload
from ...measuring.memory_shortage import is_memory_shortage
from ...samples.batches import Batch
from ...samples.samples import Samples
from ..moves import NetworkInPlace
from .ahead_of_time import PackageError
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
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TYPES = (torch.float32, torch.float64)
# Multiplications for each output. With fewer, reading what was kept takes as long as computing it again: matrix
# products of 32 inputs are no slower than the sum, convolutions of 5 x 5 are four times as slow.
_LEAST_WORK, _LEAST_WORK_OF_PRODUCTS = 20, 64
# Of the multiplications of the whole network; with less, nobody notices.
_LEAST_SHARE = 0.05
# What is kept takes one pass of the layer for the origin and for each direction.
_LEAST_POINTS = 20
_KEPT = 4  # outputs of all samples: the origin's, two directions' and a row's
_MOST_BYTES = 512 * 2**20
_SHARE_OF_MEMORY = 0.25


def find_first_layer(
    network: nn.Module,
    forward: Callable[..., Any],
    moves: NetworkInPlace,
    samples: Samples,
    batch_size: int | None,
    most_bytes: float | None,  # that may be kept; None takes a layer whether it is worth it or not
) -> FirstLayer | None:
    """Returns the first layer where it can be computed once for a plane; None where it cannot, or is not worth it."""
    # Shapes decide, and never a clock: every worker and every run must find the same.
    is_free = most_bytes != 0 and samples.passes is None and not samples.is_changed_on_use
    if not is_free or any(map(_is_compiled, network.modules())):
        return None
    found: FirstCall | None = None
    try:
        batches = samples.batches(batch_size)
        for batch in {0: batches[0], len(batches) - 1: batches[-1]}.values():  # the last one may have another size
            calls = _watch(network, forward, batch)
            if most_bytes is not None:
                kept = _KEPT * samples.count / batch.size
                calls = [call for call in calls if call.is_worth_it and kept * call.output.nbytes <= most_bytes]
            call = max(calls, key=lambda call: call.share, default=None)
            if call is None or (found is not None and call.layer is not found.layer):
                return None
            found = call
    except Exception as error:
        if not is_memory_shortage(error):
            raise
        found = None
    if found is None:
        return None
    tensors = [tensor for tensor in found.layer._parameters.values() if tensor is not None]
    parameters = {moves.name_of(tensor) or "": tensor.detach() for tensor in tensors}
    if "" in parameters or len(parameters) < len(tensors):  # they are parts of others
        return None
    return FirstLayer(found.layer, forward, parameters)


def most_bytes_kept(limit: int | float, workload: Workload) -> float:
    """Returns how many bytes a worker may keep; the limit is in bytes (int) or a share of what is free (float)."""
    if workload.points < _LEAST_POINTS:
        return 0.0
    room = limit if isinstance(limit, int) else limit * free_memory()
    return min(_MOST_BYTES, _SHARE_OF_MEMORY * room / workload.workers)


@dataclass(frozen=True)
class FirstCall:
    """A layer's call on a batch's own tensor, and its share of the network's multiplications."""

    layer: nn.Module
    output: torch.Tensor
    share: float

    @property
    def is_worth_it(self) -> bool:
        """Whether a sum is clearly less work."""
        least = _LEAST_WORK_OF_PRODUCTS if isinstance(self.layer, nn.Linear) else _LEAST_WORK
        return _multiplications(self.layer, self.output) >= least * self.output.numel() and self.share >= _LEAST_SHARE


def _watch(network: nn.Module, forward: Callable[..., Any], batch: Batch) -> list[FirstCall]:
    """Returns the calls of layers that can be replaced in one forward pass."""
    own = Own(batch)
    fit = {layer for layer in network.modules() if _is_plain(layer)}
    seen: dict[nn.Module, list[tuple[torch.Tensor, torch.Tensor] | None]] = {}
    work: list[int] = []

    def see(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        work.append(_multiplications(layer, output))
        if layer in fit:
            # A network that switches gradients on for itself may differentiate with respect to the batch.
            is_own = len(inputs) == 1 and not named and not torch.compiler.is_compiling()
            is_own = is_own and not torch.is_grad_enabled() and own.holds(inputs[0])
            # Copied, because what follows may change it in place.
            seen.setdefault(layer, []).append((inputs[0], output.clone()) if is_own else None)

    with contextlib.ExitStack() as hooks:
        for layer in network.modules():
            if isinstance(layer, _LAYERS):
                hooks.enter_context(layer.register_forward_hook(see, with_kwargs=True))
        call_network(forward, batch.inputs)
    calls = []
    for layer, found in seen.items():
        if own.changed or len(found) != 1 or found[0] is None:
            continue
        values, output = found[0]
        again = layer.forward(values)
        # Another type would be autocast's; other values, an input that was changed where PyTorch does not see it.
        if (
            again.dtype == output.dtype
            and again.stride() == output.stride()
            and torch.allclose(again, output, equal_nan=True)
        ):
            calls.append(FirstCall(layer, output, _multiplications(layer, output) / max(1, sum(work))))
    return calls


def _multiplications(layer: nn.Module, output: object) -> int:
    weight = layer.weight
    if not isinstance(weight, torch.Tensor) or not isinstance(output, torch.Tensor) or not len(weight):
        return 0
    return output.numel() * weight[0].numel()


class Own:
    """The tensors of a batch."""

    def __init__(self, batch: Batch) -> None:
        tensors = [leaf for leaf in leaves(batch.inputs) if type(leaf) is torch.Tensor]
        self._tensors = [item for item in tensors if item.layout is torch.strided and not item.is_inference()]
        self._places = {item.untyped_storage().data_ptr() for item in self._tensors}
        self._versions = self._counted()

    def holds(self, values: object) -> bool:
        """Returns whether a layer's input lies in the memory of one of them."""
        if type(values) is not torch.Tensor or values.layout is not torch.strided or values.dtype not in _TYPES:
            return False
        return values.numel() > 0 and values.untyped_storage().data_ptr() in self._places

    @property
    def changed(self) -> bool:
        """Whether one of them was written to since."""
        return self._counted() != self._versions

    def _counted(self) -> list[int]:
        return [item._version for item in self._tensors]


def _is_plain(layer: nn.Module) -> bool:
    """Returns whether a layer does what its class says, and nothing else, with parameters of its own."""
    if type(layer) not in _LAYERS or layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False
    tensors = {name: item for name, item in layer._parameters.items() if item is not None}
    kinds = {(type(item), type(item.data), item.dtype, item.device.type) for item in tensors.values()}
    known = [{(nn.Parameter, torch.Tensor, dtype, "cpu")} for dtype in _TYPES]
    return set(tensors) in ({"weight"}, {"weight", "bias"}) and kinds in known


def _is_compiled(layer: nn.Module) -> bool:
    """Returns whether compiled code runs a part of a network, which does not see that a layer is replaced."""
    of_dynamo = type(layer).__module__.startswith("torch._dynamo")
    return of_dynamo or isinstance(layer, torch.jit.ScriptModule) or layer._compiled_call_impl is not None


class _ReachedError(BaseException):
    """Ends a forward pass at the layer; no network catches it."""


@dataclass(frozen=True)
class _Part:
    """Outputs of the layer for one batch: at the origin, along each direction, and in the current row of points."""

    inputs: tuple[Any, ...]  # the batch's own: while they are held, no other batch can lie at their addresses
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

    def load(self, states: Sequence[State]) -> None:
        """Takes over a plane: values by name at the origin and along each direction (none of what does not move)."""
        self._parts = {}
        # Copies, because an array may be a small part of shared memory that would be kept for it.
        self._states = [
            {name: to_tensor(state[name]).clone() for name in self._parameters if name in state} for state in states
        ]

    def prepare(self, batches: Sequence[Batch], *, compiled: bool) -> None:
        """Computes what is kept for batches that stay as they are; then the layer must be put back to the origin."""
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
            part = _Part(batch.inputs, origin, along, torch.empty_like(origin) if len(along) > 1 else origin)
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
