"""The compiled functions of a JAX network, of one batch at a point of a plane or at given weights; where they run."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from collectors.networks.batches import call_network
from collectors.networks.jax_network import NamedArrays
from collectors.networks.weight_space import numpy_dtype

from ..errors import CallbackFunctionError, first_line
from ..measuring.totals import low_precision
from ..samples.batches import Batch
from ..users_code import warn_and_note
from .losses import JaxTotal

POINTS_AT_ONCE = 8
_MOST_OPERATIONS = 64e6
_ROUNDING = 1e-5
_PLATFORMS = {"cuda": "gpu", "rocm": "gpu"}


class Plane(NamedTuple):
    """A loaded plane; compiled functions take it as an argument."""

    origin: dict[str, Any]  # of the trainable parameters, as wide as points are computed
    directions: list[dict[str, Any]]  # of these too, one for each axis
    fixed: dict[str, Any]  # all that stays as it is
    corners: list[dict[str, Any]]  # interpolated buffers of origin and axes' ends, as wide as points; or empty
    vectors: dict[str, int]  # by name, those of these buffers that stay of length one; the values mean nothing
    networks: list[dict[str, Any]]  # all buffers that differ between origin and axes' ends, in their own types


class CompiledFunctions:
    """What is measured of a network, compiled once for each shape of a batch; weights are arguments, not constants."""

    def __init__(self, network: NamedArrays, totals: Sequence[JaxTotal]) -> None:
        self._network, by_key = network, {total.key: total for total in totals}

        def at_state(state: Mapping[str, Any], inputs: Any, targets: Any, keys: Sequence[str]) -> dict[str, Any]:
            outputs = outputs_of(network, state, inputs)
            return {key: by_key[key].inside(outputs, targets) for key in keys}

        def at_point(coordinates: Any, plane: Plane, *batch: Any) -> dict[str, Any]:
            return at_state(self.state_at(coordinates, plane), *batch)

        def at_points(coordinates: Any, plane: Plane, *batch: Any) -> Any:
            return jax.vmap(lambda point: at_point(point, plane, *batch))(coordinates)

        def statistics(state: Mapping[str, Any], inputs: Any, start: Any) -> dict[str, Any]:
            assert network.update is not None
            started = {**state, **{name: jnp.full_like(state[name], start) for name in self._statistics}}
            changed: dict[str, Any] = call_network(functools.partial(network.update, started), inputs)
            return changed

        self._statistics: dict[str, float] = {}
        self._update = jax.jit(statistics)
        self._keys = tuple(by_key)
        self._state = jax.jit(at_state, static_argnums=3)
        self._point, self._points = (jax.jit(function, static_argnums=4) for function in (at_point, at_points))

    def at_state(self, state: Mapping[str, Any], batch: Batch) -> Any:
        """Returns what each total needs to know."""
        return self._state(state, batch.inputs, batch.targets, self._keys)

    def state_at(self, coordinates: Any, plane: Plane) -> dict[str, Any]:
        """Returns every array of the network, by name, at a point of a plane, coordinates of shape (axes,)."""
        origin, directions, fixed, corners, vectors, networks = plane
        state = dict(fixed)
        if networks:
            kept = jnp.maximum(jnp.concatenate([1 - coordinates.sum(keepdims=True), coordinates]), 0)
            shares = kept / kept.sum()
            for name in corners[0]:
                values = jnp.stack([corner[name] for corner in corners])
                mean = jnp.tensordot(shares.astype(values.dtype), values, 1)
                mean = mean / jnp.linalg.norm(mean) if name in vectors else mean
                state[name] = mean.astype(fixed[name].dtype)
            point = jnp.asarray(coordinates)  # in float32, where JAX has no float64
            is_there = (jnp.eye(len(networks), len(point), -1, point.dtype) == point).all(axis=1)
            for name in networks[0]:
                own = jnp.stack([network[name] for network in networks])[jnp.argmax(is_there)]
                state[name] = jnp.where(is_there.any(), own, state[name])
        for info in self._network.space.trainable:
            value = origin[info.name]
            for index, direction in enumerate(directions):
                value = value + coordinates[index].astype(value.dtype) * direction[info.name]
            state[info.name] = value.astype(numpy_dtype(info.dtype))
        return state

    def find_statistics(self, state: Mapping[str, Any], batch: Batch) -> None:
        """Finds which arrays are running averages, and how much a batch counts in each, by averages of 0 and of 1."""
        assert self._network.update is not None
        found = jax.eval_shape(
            lambda inputs: call_network(functools.partial(self._network.update, state), inputs), batch.inputs
        )
        # Before anything is compiled, which looks at the names once.
        self._statistics = {name: 1.0 for name, value in found.items() if jnp.issubdtype(value.dtype, jnp.floating)}
        ends = [jax.device_get(self._update(state, batch.inputs, start)) for start in (0.0, 1.0)]
        for name in self._statistics:
            kept = np.float64(ends[1][name]) - np.float64(ends[0][name])
            # Nobody writes momenta with more digits, and float32 does not hold them.
            share = round(1 - float(np.median(kept)), 5)
            if not 0 < share <= 1 or np.abs(kept - 1 + share).max() > _ROUNDING * np.abs(ends[1][name]).max():
                raise CallbackFunctionError(
                    f"update must return running averages, momentum * old + (1 - momentum) * that of the batch, but "
                    f"{name!r} is another function of its old value; leave it out of the collections that change."
                )
            self._statistics[name] = share

    def recalibrated(self, state: Mapping[str, Any], batches: Sequence[Batch]) -> dict[str, Any]:
        """Returns the arrays with statistics that are the mean over batches, each of which counts alike."""
        found = [self._update(state, batch.inputs, 0.0) for batch in batches]
        return {
            **state,
            **{
                name: (sum(part[name] for part in found) / (share * len(found))).astype(state[name].dtype)
                for name, share in self._statistics.items()
            },
        }

    def at_points(self, coordinates: Any, plane: Plane, batch: Batch, keys: Sequence[str]) -> Any:
        """Returns what totals need to know at points, (points, axes); several are the first axis of every array."""
        function, places = (self._points, coordinates) if len(coordinates) > 1 else (self._point, coordinates[0])
        return function(places, plane, batch.inputs, batch.targets, keys)

    def points_at_once(self, plane: Plane, batch: Batch, keys: Sequence[str]) -> int:
        """Returns how many points one call measures, by what the function for one point does; no clock is asked."""
        # A call for one point of a small network spends its time on everything but arithmetic: eight points at once by
        # ``jax.vmap`` were 1.2 to 1.7 times as fast for multilayer perceptrons of up to 26,000 parameters at 1,024
        # samples (five times at 64), but three times slower for those of 300,000 parameters, and nearly six times for a
        # small convolutional network, whose kernels then become groups (two CPU cores).
        lowered = self._point.lower(np.zeros(len(plane.directions)), plane, batch.inputs, batch.targets, keys)
        operations = (lowered.cost_analysis() or {}).get("flops", float("inf"))
        is_large = operations > _MOST_OPERATIONS or "stablehlo.convolution" in lowered.as_text()
        return 1 if is_large else POINTS_AT_ONCE


def outputs_of(network: NamedArrays, state: Mapping[str, Any], inputs: Any) -> Any:
    """Returns a network's outputs, those of fewer digits than float32 as float32, for losses and metrics."""
    outputs = call_network(functools.partial(network.call, state), inputs)
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if low_precision(leaf) else leaf, outputs)


def find_device(device: str, notes: list[str]) -> Any:
    """Returns JAX's device of that name ("cpu", "cuda:0"); without it the CPU, a warning and a note."""
    kind, _, index = device.partition(":")
    if kind != "cpu":
        try:
            return jax.local_devices(backend=kind)[int(index or 0)]
        except (RuntimeError, IndexError) as error:
            warn_and_note(notes, f"JAX cannot use the device {device!r}, so the CPU measures: {first_line(error)}")
    return jax.local_devices(backend="cpu")[0]


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
            shown = ", ".join(f"{name!r} {sharding}" for name, sharding in list(divided.items())[:4])
            raise CallbackFunctionError(
                "the network that callback_fn returned must have all its divided arrays on one jax.sharding.Mesh "
                f"(NamedSharding), but got {shown}."
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
