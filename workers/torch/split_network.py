"""A compiled network without its first layer, whose outputs it is given: summed up in the compiled code (PyTorch)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .ahead_of_time import PackageError
from .first_layer import FirstLayer, replaced_forward
from .network_code import code_of_network
from .packages import PackagedNetwork

# For whatever changes in how the layer's outputs are given.
_VERSION = 1


class SplitNetwork:
    """A network whose first layer is computed by PyTorch, or once for a plane; the rest is one package for both."""

    def __init__(self, network: nn.Module, first_layer: FirstLayer, package: Callable[..., PackagedNetwork]) -> None:
        self._network, self._first_layer = network, first_layer
        self._rest = package(_Rest(network, first_layer.layer).eval(), code=_code)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs the network; PackageError where it cannot be packaged for these inputs."""
        if named:
            raise PackageError("its inputs are not tensors alone")
        given = self._first_layer.outputs_for(inputs)
        if given is None:
            raise PackageError("its first layer does not get these inputs")
        return self._rest(*given, *inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    @property
    def found(self) -> bool:
        return self._rest.found

    def allow_building(self) -> None:
        self._rest.allow_building()

    def discard(self) -> None:
        self._rest.discard()


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
