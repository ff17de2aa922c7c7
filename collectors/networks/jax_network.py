"""JAX's reader: a function and its parameters as a network, taken apart into named arrays and put together again."""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ..validation import wrong_type
from .weight_space import TensorInfo, WeightSpace, numpy_dtype

# Flax's names of what has no filters, however many axes it has: attention's biases, scales of normalization layers.
_WITHOUT_FILTERS = ("bias", "scale")
_PROJECTIONS = ("query", "key", "value")


@dataclass(frozen=True, eq=False)
class JaxNetwork:
    """A JAX network: a function, and the parameters that it is called with.

    Parameters are named by their path, joined by dots ("Dense_0.kernel", "layers.0.bias"). Any registered pytree will
    do. A dict with the key "params" is taken for Flax's collections: "params" are the parameters, without that word in
    their names, and all others ("batch_stats") are buffers. Floating-point arrays are parameters, other arrays are
    buffers; other leaves, and random keys, stay as they are.

    Example::

        JaxNetwork(model.apply, variables)                             # flax.linen
        JaxNetwork(functools.partial(model.apply, train=False), {"params": params, "batch_stats": batch_stats})
        JaxNetwork(predict, parameters)                                # a plain function predict(parameters, inputs)
        JaxNetwork(lambda module, x: module(x, train=False), module)   # an nnx.Module that needs more than its inputs

    Attributes:
        apply: called as ``apply(parameters, inputs)``, in eval mode, and traced by ``jax.jit``; a tuple of inputs
            becomes several arguments, a dict becomes keywords. With ``buffers`` it is called with
            ``{"params": parameters, **buffers}`` as its first argument. A module is in eval mode then.
        parameters: a pytree of arrays, a dict of Flax's collections, or a flax.nnx.Module.
        buffers: further collections by name, such as {"batch_stats": ...}; None where ``parameters`` holds everything.
        name: the network's name; None takes that of the module or function behind ``apply``.
        trainable: says for each parameter's name whether a plane spans it; None: all of them.
        update: what statistics are recalibrated with (``buffers="recalibrate"``): called as ``apply`` is, it normalizes
            by the batch and returns (outputs, collections with running averages that went on by this batch), such as
            ``functools.partial(model.apply, train=True, mutable=["batch_stats"])``. An nnx.Module needs none.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: both ``parameters`` and ``buffers`` hold collections.
    """

    apply: Callable[..., Any]
    parameters: Any
    buffers: Mapping[str, Any] | None = None
    name: str | None = None
    trainable: Callable[[str], bool] | None = None
    update: Callable[..., tuple[Any, Any]] | None = None

    def __post_init__(self) -> None:
        for argument in ("apply", "trainable", "update"):
            value = getattr(self, argument)
            if not callable(value) and (argument == "apply" or value is not None):
                raise wrong_type(argument, "a function", value)
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise wrong_type("name", "a str with at least one character, or None", self.name)
        if self.buffers is not None and not isinstance(self.buffers, Mapping):
            raise wrong_type("buffers", 'a dict of collections such as {"batch_stats": ...}, or None', self.buffers)
        if self.buffers is not None and (holds_collections(self.parameters) or "params" in self.buffers):
            raise ValueError(
                'parameters and buffers both hold collections; give JaxNetwork(apply, {"params": ..., "batch_stats": '
                '...}), or JaxNetwork(apply, params, buffers={"batch_stats": ...}).'
            )

    @property
    def tree(self) -> Any:
        return self.parameters if self.buffers is None else {"params": self.parameters, **self.buffers}


class ParametersFunction:
    """A training's present parameters, through a function: JAX's arrays never change, but each step makes new ones."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self._space: WeightSpace | None = None

    def check_space(self, space: WeightSpace) -> None:
        """Checks that the function returns the same parameters as at the beginning, apart from their values."""
        self._space = self._space or space
        if lines := self._space.differences(space):
            raise ValueError(
                "the function given to watch must return the same names, shapes and element types each time, but now "
                "they differ:\n  " + "\n  ".join(lines[:20])
            )


def is_parameters_function(value: object) -> bool:
    """Returns whether an object is a function that may be called without arguments."""
    if not isinstance(value, functools.partial) and not inspect.isroutine(value):
        return False
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):
        return False
    return True


def holds_collections(tree: Any) -> bool:
    return isinstance(tree, Mapping) and "params" in tree and not hasattr(tree["params"], "shape")


def function_name(apply: Callable[..., Any]) -> str:
    while isinstance(apply, functools.partial):
        apply = apply.func
    owner = getattr(apply, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        return type(owner).__name__
    name = getattr(apply, "__name__", "")
    return name if name.isidentifier() else "JaxNetwork"


@dataclass(frozen=True)
class NamedArrays:
    """A network's named arrays in the tree's order; ``call`` maps arrays by name and inputs to outputs in eval mode."""

    space: WeightSpace
    arrays: Mapping[str, Any]
    call: Callable[..., Any]
    # Maps the same to the values, by name, of the statistics that training changes; None where nothing says how.
    update: Callable[..., dict[str, Any]] | None = None


def owns(value: object) -> bool:
    """Returns whether the object is a flax.nnx.Module, a JaxNetwork, or a function of parameters under watch."""
    return isinstance(value, JaxNetwork | ParametersFunction) or is_module(value)


def describe(network: Any) -> WeightSpace:
    return take_apart(network).space


def read(network: Any) -> dict[str, NDArray[Any]]:
    parts = take_apart(network)
    for array in parts.arrays.values():
        if isinstance(array, jax.Array) and not array.is_deleted() and array.is_fully_addressable:
            array.copy_to_host_async()  # all of them travel at once
    return {info.name: _to_array(info.name, parts.arrays[info.name], info.dtype) for info in parts.space.tensors}


def take_apart(network: Any) -> NamedArrays:
    """Returns the named arrays of an nnx.Module, a JaxNetwork, or what a ParametersFunction returns now."""
    if isinstance(network, ParametersFunction):
        found = network.function()
        is_network = isinstance(found, JaxNetwork) or is_module(found)
        parts = take_apart(found if is_network else JaxNetwork(_no_function, found, name="network"))
        network.check_space(parts.space)
        return parts
    if not isinstance(network, JaxNetwork):
        network = JaxNetwork(operator.call, network)
    tree, apply, update = network.tree, network.apply, network.update
    if hasattr(tree, "opt_state"):
        raise TypeError(
            f"parameters must be the network's alone, but {type(tree).__name__} holds the optimizer's state as well; "
            'give its parameters (state.params, or {"params": state.params, "batch_stats": state.batch_stats}).'
        )
    aliases: dict[str, tuple[str, ...]] = {}
    known_axes: dict[str, tuple[int, ...]] = {}
    if is_module(tree):
        name = network.name or type(tree).__name__
        aliases, known_axes = _shared_names(tree), _filter_axes_of_module(tree)
        graph, tree = sys.modules["flax.nnx"].split(tree)
        trains = bool(_normalizations(network.tree))
        update = functools.partial(_apply_copy, True, update or apply, graph) if trains else None
        apply = functools.partial(_apply_copy, False, apply, graph)
    else:
        name = network.name or function_name(apply)
    leaves, structure = jax.tree_util.tree_flatten(tree)
    places: dict[str, int] = {}
    tensors = []
    named_leaves = _named_leaves(tree)
    shapes = {name: leaves[index].shape for index, (name, _) in named_leaves.items()}
    for index, (tensor_name, in_parameters) in named_leaves.items():
        if tensor_name in places:
            raise ValueError(f"parameters hold two arrays that are both called {tensor_name!r}; rename one of them.")
        places[tensor_name] = index
        axes = known_axes.get(tensor_name)
        axes = _filter_axes(tensor_name, shapes[tensor_name], shapes) if axes is None else axes
        dtype = jax.dtypes.canonicalize_dtype(leaves[index].dtype)
        is_parameter = in_parameters and jax.numpy.issubdtype(dtype, jax.numpy.inexact)
        tensors.append(
            TensorInfo(
                name=tensor_name,
                shape=tuple(shapes[tensor_name]),
                dtype=dtype.name,
                role="parameter" if is_parameter else "buffer",
                trainable=is_parameter and (network.trainable is None or bool(network.trainable(tensor_name))),
                filter_axes=axes if is_parameter else (),
                aliases=aliases.get(tensor_name, ()),
            )
        )
    if not tensors:
        raise TypeError(f"parameters must hold at least one array, but got {type(tree).__name__} without any.")

    def filled_with(values: Mapping[str, Any]) -> Any:
        filled = list(leaves)
        for tensor_name, value in values.items():
            filled[places[tensor_name]] = value
        return jax.tree_util.tree_unflatten(structure, filled)

    def call(values: Mapping[str, Any], *inputs: Any, **named_inputs: Any) -> Any:
        return apply(filled_with(values), *inputs, **named_inputs)

    def updated(values: Mapping[str, Any], *inputs: Any, **named_inputs: Any) -> dict[str, Any]:
        assert update is not None
        _, changed = update(filled_with(values), *inputs, **named_inputs)
        return {
            name: leaf for path, leaf in jax.tree_util.tree_leaves_with_path(changed) if (name := _name(path)) in places
        }

    space = WeightSpace("jax", name, tuple(tensors))
    arrays = {tensor_name: leaves[index] for tensor_name, index in places.items()}
    return NamedArrays(space, arrays, call, None if update is None else updated)


def is_module(value: object) -> bool:
    """Returns whether an object is a flax.nnx.Module, without importing Flax."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Module)


def _named_leaves(tree: Any) -> dict[int, tuple[str, bool]]:
    """Returns, by its place among the leaves, each array's name and whether its place is one of parameters."""
    nnx: Any = sys.modules.get("flax.nnx")

    def is_variable(value: Any) -> bool:
        return nnx is not None and isinstance(value, nnx.Variable)

    in_collections = holds_collections(tree)
    # Of what a module holds, its variables say what they are; a bare array is a constant.
    is_module_state = nnx is not None and isinstance(tree, nnx.State)
    found: dict[int, tuple[str, bool]] = {}
    index = 0
    for whole_path, item in jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_variable)[0]:
        in_params = in_collections and _name(whole_path[:1]) == "params"
        path = whole_path[1:] if in_params else whole_path
        is_parameter = (in_params or not in_collections) and not is_module_state
        if is_variable(item):
            inner = [(path + rest[1:], leaf) for rest, leaf in jax.tree_util.tree_flatten_with_path(item)[0]]
            is_parameter = isinstance(item, nnx.Param)
            is_state = not isinstance(item, nnx.RngState | nnx.Intermediate)
        else:
            inner, is_state = [(path, item)], True
        for full_path, leaf in inner:
            if is_state and _is_array(leaf):
                found[index] = (_name(full_path) or "parameters", is_parameter)
            index += 1
    return found


def _filter_axes_of_module(module: Any) -> dict[str, tuple[int, ...]]:
    """Returns the filter axes of those kernels of a flax.nnx.Module whose layer says more than their shape does."""
    nnx = sys.modules["flax.nnx"]
    found: dict[str, tuple[int, ...]] = {}
    for path, layer in nnx.iter_graph(module):
        kernel = ".".join(map(str, (*path, "kernel")))
        if isinstance(layer, nnx.ConvTranspose) and layer.transpose_kernel:
            found[kernel] = (layer.kernel[...].ndim - 2,)
        elif isinstance(layer, nnx.LinearGeneral):
            count, batches = layer.kernel[...].ndim, len(layer.batch_axis)
            found[kernel] = (*range(batches), *range(count - len(layer.out_features), count))
        elif isinstance(layer, nnx.Einsum):
            letters, outputs = layer.einsum_str.replace(" ", "").split(",")[1].split("->")
            if "." not in letters:
                axes = tuple(axis for axis, letter in enumerate(letters) if letter in outputs)
                found[kernel] = axes or (len(letters) - 1,)
    return found


def _filter_axes(name: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the filter axes of an array from nothing but the paths (joined by dots) and shapes of all arrays."""
    layer, _, key = name.rpartition(".")
    count = len(shape)
    if count < 2 or key in _WITHOUT_FILTERS:
        return ()
    if key == "embedding":
        return (0,)  # a row for each entry
    # A kernel's outputs are its last axis, or as many as the bias has: kernels of Flax's attention are (inputs, heads,
    # entries), and ``nn.scan`` puts an axis of the layers in front.
    bias = tuple(shapes.get(f"{layer}.bias" if layer else "bias", ()))
    if 2 <= len(bias) < count:
        if shape[-len(bias) :] == bias:
            return tuple(range(count - len(bias), count))
        if (shape[0], shape[-1]) == (bias[0], bias[-1]):
            return (0, count - 1)
    if not bias and key == "kernel" and count == 3 and layer.rpartition(".")[2] in _PROJECTIONS:
        return (1, 2)
    return (count - 1,)


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "biufcV"
    # A ShapeDtypeStruct has a shape and no values; a random key has values that no checkpoint can hold.
    return isinstance(leaf, jax.Array) and not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _name(path: tuple[Any, ...]) -> str:
    return str(jax.tree_util.keystr(path, simple=True, separator="."))


def _no_function(*_: Any) -> Any:
    raise TypeError("these parameters have no function; use JaxNetwork(apply, parameters).")


def _normalizations(module: Any) -> list[Any]:
    nnx = sys.modules["flax.nnx"]
    return [layer for _, layer in nnx.iter_graph(module) if isinstance(layer, nnx.BatchNorm)]


def _apply_copy(updates: bool, apply: Any, graph: Any, state: Any, /, *inputs: Any, **named_inputs: Any) -> Any:
    """Returns the outputs of a copy in eval mode, or where it ``updates`` also the statistics of this batch's pass."""
    nnx = sys.modules["flax.nnx"]
    module = nnx.merge(graph, state)
    module.eval()  # of this copy: the user's module stays in its mode
    if not updates:
        return apply(module, *inputs, **named_inputs)
    for layer in _normalizations(module):
        layer.use_running_average = False
    return apply(module, *inputs, **named_inputs), nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))


def _shared_names(module: Any) -> dict[str, tuple[str, ...]]:
    """Returns the further names of arrays and layers that a module holds in several places."""
    nnx = sys.modules["flax.nnx"]
    groups = [[".".join(map(str, path)) for path in paths] for paths in nnx.find_duplicates(module)]
    result = {}
    for path, _ in nnx.to_flat_state(nnx.split(module)[1]):
        names = [".".join(map(str, path))]
        for group in groups:
            for name in list(names):
                inside = next((part for part in group if part and f"{name}.".startswith(f"{part}.")), None)
                if inside is not None:
                    names += [other + name.removeprefix(inside) for other in group if not _are_nested(other, inside)]
        if unique := tuple(dict.fromkeys(names[1:])):
            result[names[0]] = unique
    return result


def _are_nested(one: str, other: str) -> bool:
    """Returns whether a path leads through another, as where a layer holds the network that holds it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.") or not one


def _to_array(name: str, array: Any, dtype: str) -> NDArray[Any]:
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
