"""Which framework a network comes from, and its reader; a framework that nobody has imported stays so."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from numpy.typing import NDArray

from .weight_space import WeightSpace

if TYPE_CHECKING:
    from .torch_readers import ShardedReader

NETWORK_KINDS = (
    "a torch.nn.Module, a keras.Model, a mindspore.nn.Cell, a flax.nnx.Module, or a collectors.jax.JaxNetwork"
)
# A Keras model is a torch.nn.Module as well where PyTorch is its back end, so it comes first.
_FRAMEWORKS = ("keras", "mindspore", "jax", "torch")


class NetworkReader(Protocol):
    """What the module that reads a framework's networks offers."""

    def owns(self, value: object) -> bool:
        """Returns whether the object is a network of this framework."""

    def describe(self, network: object) -> WeightSpace:
        """Returns the description of a network's parameters and buffers."""

    def read(self, network: object) -> dict[str, NDArray[Any]]:
        """Returns copies of all parameters and buffers in host memory."""


def framework_of(value: object) -> str | None:
    return next((name for name in _FRAMEWORKS if name in sys.modules and _reader(name).owns(value)), None)


def reader_of(network: object) -> NetworkReader:
    name = framework_of(network)
    if name is None:
        raise TypeError(
            f"network must be a network of a supported framework ({NETWORK_KINDS}), but got {type(network).__name__}."
        )
    return _reader(name)


def as_watched(network: object) -> object:
    """Returns what a training under watch reads: with JAX, a function of the present parameters is one as well."""
    if "jax" in sys.modules:
        from .jax_network import ParametersFunction, is_parameters_function

        if is_parameters_function(network):
            return ParametersFunction(cast(Callable[[], Any], network))
    return network


def without_average(network: object) -> object:
    """Returns the network whose weights an ``AveragedModel`` of PyTorch averages; any other one as it is."""
    module = sys.modules.get("torch.optim.swa_utils")
    return network.module if module is not None and isinstance(network, module.AveragedModel) else network


def describe_network(network: object) -> WeightSpace:
    return reader_of(network).describe(network)


def read_network(network: object) -> dict[str, NDArray[Any]]:
    """Returns copies of all parameters and buffers of a network, in host memory, each storage once.

    Raises:
        TypeError: the object is not a network of a supported framework.
    """
    return reader_of(network).read(network)


def repeated_reader(network: object) -> Callable[[], dict[str, NDArray[Any]]]:
    """Returns a ``read_network`` for many calls, faster where it can be; arrays last as long as their mapping."""
    if framework_of(network) == "torch":
        from .torch_readers import RepeatedReader

        return RepeatedReader(cast(Any, network))
    return functools.partial(reader_of(network).read, network)


def sharded_reader(network: object, *, keeps: bool) -> ShardedReader | None:
    """Returns what reads a network divided among processes; None where each process has all parameters."""
    if not is_sharded(network):
        return None
    from .torch_readers import ShardedReader

    return ShardedReader(cast(Any, network), keeps=keeps)


def is_sharded(network: object) -> bool:
    if framework_of(network) != "torch":
        return False
    from . import torch_readers

    return torch_readers.is_sharded(cast(Any, network))


def is_network(value: object) -> bool:
    return framework_of(value) is not None


def _reader(name: str) -> NetworkReader:
    return cast(NetworkReader, import_module(f".{name}_network", __package__))
