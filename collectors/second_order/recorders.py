"""What the layers of a network see while it trains: hooks that record inputs and gradients on request."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch._compile import _disable_dynamo

from ..networks.torch_network import unwrap
from ..validation import check_instance
from .factors import weight_of


class Listener(Protocol):
    """Who wants to know what the layers see."""

    def wants_records(self) -> bool: ...
    def record(self, layer: nn.Module, inputs: torch.Tensor, gradient: torch.Tensor) -> None: ...


class Recorders:
    """The hooks in the layers of one network that THOR can treat: Linear, Conv2d of one group, Embedding."""

    def __init__(self, network: nn.Module) -> None:
        # The one that hears what layers see: the last one that asked, as long as it lives.
        self.listener: Callable[[], Listener | None] = lambda: None
        owners = Counter(parameter for module in network.modules() for parameter in module._parameters.values())
        self.layers: dict[str, nn.Module] = {
            name: module
            for name, module in network.named_modules()
            # None whose weight is frozen, computed from others (weight_norm), or shared with another layer.
            if _is_treated(module) and owners[weight_of(module)] == 1
        }
        for layer in self.layers.values():
            layer.register_forward_hook(_Watch(self, layer), with_kwargs=True)


def attach(network: Any) -> Recorders:
    """Returns the recorders of a network, which it gets unless it has them."""
    if any(kind.__module__.partition(".")[0] == "mindspore" for kind in type(network).__mro__):
        raise TypeError(
            f"net must be a torch.nn.Module, but got {type(network).__name__}, a network of MindSpore. MindSpore "
            "trains it with its own optimizer: mindspore.nn.thor, on Ascend and on GPUs."
        )
    network = unwrap(check_instance("net", network, nn.Module, "a torch.nn.Module"))
    found = _attached[network]() if network in _attached else None
    if found is None:
        found = Recorders(network)
        _attached[network] = weakref.ref(found)
    return found


class _Watch:
    """A forward hook. In a copy of the network (deepcopy, pickle) it does nothing."""

    def __init__(self, recorders: Recorders | None = None, layer: nn.Module | None = None) -> None:
        self._recorders = recorders
        self._layer = (lambda: None) if layer is None else weakref.ref(layer)

    def __reduce__(self) -> tuple[type[_Watch], tuple[()]]:
        return _Watch, ()

    # A compiled network calls it between its compiled parts. The public decorator would import the compiler here.
    @_disable_dynamo
    def __call__(self, layer: nn.Module, args: tuple[Any, ...], named: dict[str, Any], outputs: Any) -> None:
        listener = None if self._recorders is None or layer is not self._layer() else self._recorders.listener()
        if listener is None or not (isinstance(outputs, torch.Tensor) and outputs.requires_grad):
            return
        if not listener.wants_records():
            return
        inputs = (args[0] if args else named["input"]).detach()
        wants = weakref.ref(listener)

        def receive(gradient: torch.Tensor) -> None:
            # Inputs are used here and not in the forward pass: one that is never differentiated, or that activation
            # checkpointing repeats, must not count.
            hearer = wants()
            if hearer is not None and hearer.wants_records():
                with torch.no_grad():
                    hearer.record(layer, inputs, gradient.detach())

        # Not a backward hook of the module: those break on activations that work in place.
        outputs.register_hook(receive)  # type: ignore[no-untyped-call]


def _is_treated(module: nn.Module) -> bool:
    if not isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding) or getattr(module, "groups", 1) != 1:
        return False
    weight = module._parameters.get("weight")
    # Lazy layers have no shape before their first call.
    return weight is not None and weight.requires_grad and not nn.parameter.is_lazy(weight)


# The hooks keep the recorders alive, so that they go with the network.
_attached: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Recorders]] = weakref.WeakKeyDictionary()
