"""JAX's reader: a pytree of arrays, or a flax.nnx.Module, as named tensors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .jax_network import JaxNetwork, ParametersFunction
from .jax_tree import is_module, take_apart
from .network_state import Array, WeightSpace, numpy_dtype


def owns(value: object) -> bool:
    """Returns whether the object is a flax.nnx.Module, a JaxNetwork, or a function of parameters under watch."""
    return isinstance(value, JaxNetwork | ParametersFunction) or is_module(value)


def describe(network: Any) -> WeightSpace:
    """Returns the description of the network's parameters and buffers."""
    return take_apart(network).space


def read(network: Any) -> dict[str, Array]:
    """Returns copies of all parameters and buffers in host memory.

    Raises:
        TypeError: an array is spread over several processes.
        ValueError: an array is gone, because a jitted function took its memory (``donate_argnums``).
    """
    parts = take_apart(network)
    for array in parts.arrays.values():
        if isinstance(array, jax.Array) and not array.is_deleted() and array.is_fully_addressable:
            array.copy_to_host_async()  # all of them travel at once
    return {info.name: _to_array(info.name, parts.arrays[info.name], info.dtype) for info in parts.space.tensors}


def _to_array(name: str, array: Any, dtype: str) -> Array:
    if isinstance(array, jax.Array):
        if array.is_deleted():
            raise ValueError(
                f"network's {name!r} is gone: its memory was donated to a jitted function (donate_argnums). Give the "
                "arrays that the function returned; a function given to watch must read the present ones."
            )
        if not array.is_fully_addressable:
            if not array.is_fully_replicated:
                raise TypeError(
                    f"network's {name!r} is spread over several processes, which is not supported; gather it first "
                    "(jax.experimental.multihost_utils.process_allgather)."
                )
            array = array.addressable_data(0)
    # A view of the host's memory would change when the array is donated to the next step.
    return np.array(array, dtype=numpy_dtype(dtype), order="C", copy=True)
