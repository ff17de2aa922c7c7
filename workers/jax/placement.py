"""Where a network's arrays are: on the worker's device, or divided among devices as callback_fn has done it (JAX)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from ..errors import CallbackFunctionError

_PLATFORMS = {"cuda": "gpu", "rocm": "gpu"}


class Placement:
    """Puts arrays where a network needs them: on one device, or as its own are divided among several."""

    def __init__(self, arrays: Mapping[str, Any], device: Any, available: Sequence[str] = ()) -> None:
        self.device = device
        self._everywhere: Any = device
        self._shardings: dict[str, Any] = {}
        divided = {
            name: array.sharding
            for name, array in arrays.items()
            if isinstance(array, jax.Array) and len(array.sharding.device_set) > 1
        }
        self.is_kept = bool(divided)
        if not divided:
            return
        for name, sharding in divided.items():
            if not sharding.is_fully_addressable:
                raise TypeError(
                    f"network's {name!r} is spread over several processes, which is not supported; gather it first "
                    "(jax.experimental.multihost_utils.process_allgather)."
                )
        named = jax.sharding.NamedSharding
        meshes = {sharding.mesh for sharding in divided.values() if isinstance(sharding, named)}
        if len(meshes) != 1 or not all(isinstance(sharding, named) for sharding in divided.values()):
            raise CallbackFunctionError(
                "the network that callback_fn returned must have all its divided arrays on one jax.sharding.Mesh "
                f"(NamedSharding), but got {_shown(divided)}."
            )
        (mesh,) = meshes
        devices = list(mesh.devices.flat)
        _check_available(devices, available)
        self.device = devices[0]
        self._shardings = divided
        # What is not divided, such as samples, is copied to each of these devices.
        self._everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def place(self, tree: Any) -> Any:
        """Returns a nested value, such as samples, where the network can use it."""
        return self._put(tree, self._everywhere)

    def place_arrays(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Returns arrays of the network, or such as belong to them, by name, where each of them is."""
        return {name: self._put(array, self._shardings.get(name, self._everywhere)) for name, array in arrays.items()}

    def _put(self, tree: Any, place: Any) -> Any:
        # A copy: what a user does to an array afterwards must not change a measurement.
        return jax.tree.map(lambda leaf: jax.device_put(leaf, place, may_alias=False), tree)


def _check_available(devices: Sequence[Any], available: Sequence[str]) -> None:
    allowed: dict[str, set[int]] = {}
    for name in available:
        kind, _, index = name.partition(":")
        if index:
            allowed.setdefault(_PLATFORMS.get(kind, kind), set()).add(int(index))
    foreign = [device for device in devices if device.id not in allowed.get(device.platform, {device.id})]
    if foreign:
        raise CallbackFunctionError(
            f"the network that callback_fn returned is divided among {', '.join(map(str, devices))}, but this worker "
            f"has {', '.join(available)} only. Give each worker enough devices, such as device_ids=[0, 1] with "
            "devices_per_worker=2: it sees no other ones then, and jax.devices() are its own."
        )


def _shown(shardings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name!r} {sharding}" for name, sharding in list(shardings.items())[:4])
