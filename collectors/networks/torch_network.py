"""PyTorch's reader: an ``nn.Module`` as named tensors, and what its layers keep beside them (``get_extra_state``)."""

from __future__ import annotations

import contextlib
import itertools
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils.weight_norm import WeightNorm

from ..errors import CheckpointError
from .offloaded_weights import offloaded_values, offloaded_weights
from .weight_space import Role, TensorInfo, WeightSpace, canonical_name, extra_states_left_out, numpy_dtype

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORMALIZATIONS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_BIASES = ("bias", "bias_k", "bias_v")  # those of attention have three axes
_ROLES: tuple[Role, ...] = ("parameter", "buffer")


class Entry(NamedTuple):
    """A parameter or persistent buffer, as a network has it."""

    role: Role
    name: str
    tensor: torch.Tensor
    layer: nn.Module | None  # whose weights it is a part of, behind a parametrization too; None for a gain
    key: str  # its name there


def owns(value: object) -> bool:
    return isinstance(value, nn.Module)


@contextlib.contextmanager
def transformers_without_fast_path() -> Iterator[None]:
    """Lets layers of transformers compute what they compute in training."""
    before = torch.backends.mha.get_fastpath_enabled()
    # The fast path of evaluation without gradients fills padded places with zeros: another function for whatever reads
    # these, and one without derivatives.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def unwrap(network: nn.Module) -> nn.Module:
    """Returns the user's own module inside ``DataParallel``, ``DistributedDataParallel`` and ``torch.compile``."""
    while True:
        _check_not_scripted("network", network)
        if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
            network = network.module
        # Not getattr: FullyShardedDataParallel hands on the attributes of what is inside it.
        elif (inner := network._modules.get("_orig_mod")) is not None:
            network = inner
        else:
            return network


def named_tensors(network: nn.Module) -> list[tuple[TensorInfo, torch.Tensor]]:
    """Returns each parameter and persistent buffer, each storage once, in order; offloaded ones have their values."""
    module = unwrap(network)
    entries = named_entries(module)
    for _, name, tensor, *_ in entries:
        if is_divided(tensor):
            raise TypeError(
                f"network's {canonical_name(name)!r} is sharded ({type(tensor).__name__}): a process has a part of it "
                "only. Gather the full tensors first; a SummaryCollector does so by itself."
            )
    return tensor_infos(entries, values=offloaded_values(module))


def named_entries(module: nn.Module) -> list[Entry]:
    """Returns every parameter and persistent buffer with its place, tied ones under each of their names."""
    # Wrappers change what named_parameters returns.
    layers = dict(module.named_modules(remove_duplicate=False))
    for path, layer in layers.items():
        _check_not_scripted(f"network's {path!r}", layer)
    return [
        Entry(role, f"{path}.{key}" if path else key, tensor, *_place(layers, path, key))
        for role in _ROLES
        for path, layer in layers.items()
        for key, tensor in getattr(layer, f"_{role}s").items()
        if tensor is not None and (role == "parameter" or key not in layer._non_persistent_buffers_set)
    ]


def _place(layers: Mapping[str, nn.Module], path: str, key: str) -> tuple[nn.Module | None, str]:
    """Returns ``Entry``'s layer and key; gains of weight normalization have the axes of the weight, but no filters."""
    layer = layers[path]
    if isinstance(layer, nn.utils.parametrize.ParametrizationList):
        # weight_norm and its like keep the weight of "layer" as "layer.parametrizations.weight.original1".
        outer, _, name = path.rpartition(".")
        # With one gain for the whole weight, too.
        is_gain = key == "original0" and isinstance(layer[0], nn.utils.parametrizations._WeightNorm)
        return None if is_gain else layers[outer.rpartition(".")[0]], name
    norms = (hook for hook in layer._forward_pre_hooks.values() if isinstance(hook, WeightNorm))
    return None if key in {f"{norm.name}_g" for norm in norms} else layer, key


def tied_tensors(
    network: nn.Module, entries: Iterable[tuple[TensorInfo, torch.Tensor]]
) -> list[tuple[str, torch.Tensor]]:
    """Returns the parameters and buffers that lie in the memory of another one, each with that one's name."""
    first = {alias: (info.name, tensor) for info, tensor in entries for alias in info.aliases}
    found = {}
    for _, raw_name, tensor, *_ in named_entries(unwrap(network)):
        name, tied = first.get(canonical_name(raw_name), ("", tensor))
        # A tensor that a network has under several names is a single one.
        if tensor is not tied and tensor.dtype == tied.dtype:
            found[id(tensor)] = (name, tensor)
    return list(found.values())


def check_apart(entries: Iterable[tuple[TensorInfo, torch.Tensor]]) -> None:
    """Checks that no weight that is moved shares a part of its memory with another parameter or a buffer."""
    filled = [(info, tensor) for info, tensor in entries if info.size]
    filled.sort(key=lambda item: (str(item[1].device), item[1].data_ptr()))
    for (one, first), (other, second) in itertools.pairwise(filled):
        if (
            (one.trainable or other.trainable)
            and first.device == second.device
            and first.data_ptr() + _span(first) * first.element_size() > second.data_ptr()
            and np.intersect1d(_places(first), _places(second)).size
        ):
            copy = "nn.Parameter(parameter" if one.role == other.role else "register_buffer(name, buffer"
            raise TypeError(
                f"network's {one.name!r} and {other.name!r} share a part of their memory, so that neither can be moved "
                f"alone. Give one of them memory of its own: {copy}.detach().clone())."
            )


def is_divided(tensor: torch.Tensor, *, by_fsdp1: bool = False) -> bool:
    """Returns whether a process has only a part: FSDP 1 (hidden from all but its wrapper), DTensor, or ZeRO 3."""
    flat = hasattr(tensor, "_is_flat_param") or hasattr(tensor, "_fsdp_flattened")
    return flat or (not by_fsdp1 and (hasattr(tensor, "full_tensor") or hasattr(tensor, "ds_id")))


def tensor_infos(
    entries: Iterable[Entry], prefix: str = "", values: Mapping[str, torch.Tensor] | None = None
) -> list[tuple[TensorInfo, torch.Tensor]]:
    """Returns tensors of a module with their descriptions, each storage once, in the order of the entries."""
    by_storage: dict[Any, tuple[Entry, torch.Tensor, list[str]]] = {}
    seen: set[str] = set()
    for entry in entries:
        name = canonical_name(prefix + entry.name)
        if name in seen:
            raise ValueError(
                f"network has two tensors that are both called {name!r} once wrapper prefixes are removed; rename "
                "one of them."
            )
        seen.add(name)
        # A weight that is elsewhere has a tensor without values in its layer, which still says what is trainable.
        value = (values or {}).get(entry.name, entry.tensor)
        _check_readable(name, value)
        if entry.role == "parameter" and entry.tensor.requires_grad:
            _check_movable(name, value)
        has_own = value.numel() == 0 or hasattr(value, "full_tensor")
        memory = id(value) if has_own else (value.device, value.data_ptr(), value.nbytes)
        by_storage.setdefault(memory, (entry, value, []))[-1].append(name)
    result = []
    for (role, _, tensor, layer, key), value, (name, *aliases) in by_storage.values():
        # With ZeRO 3, the tensor itself is empty.
        shape, dtype = tuple(getattr(tensor, "ds_shape", tensor.shape)), str(tensor.dtype).removeprefix("torch.")
        is_parameter = role == "parameter"
        axes, groups = _filters(layer, key, len(shape)) if is_parameter and layer is not None else ((), 1)
        trainable = is_parameter and tensor.requires_grad
        result.append((TensorInfo(name, shape, dtype, role, trainable, axes, groups, tuple(aliases)), value))
    return result


def extra_states(module: nn.Module) -> dict[str, Any]:
    """Returns the extra state of each layer that has one, by the names of PyTorch's state dicts."""
    return {name: layer.get_extra_state() for name, layer in _layers_with_state(module).items()}


def set_extra_states(module: nn.Module, states: Mapping[str, Any], where: str) -> None:
    """Gives each layer its extra state; warns of layers and of states that are left over."""
    layers = _layers_with_state(module)
    for name, layer in layers.items():
        if name in states:
            try:
                layer.set_extra_state(states[name])
            except Exception as error:
                raise CheckpointError(
                    f"{where} holds an extra state that network's layer {type(layer).__name__} ({name!r}) does not "
                    f"take: {error!r}. Load it into a network that is built like the one that was saved."
                ) from error
    _warn_of_extra("network", layers.keys() - states)
    _warn_of_extra(where, states.keys() - layers)


def warn_of_extra_states(module: nn.Module) -> None:
    _warn_of_extra("network", _layers_with_state(module))


def check_values(network: nn.Module) -> None:
    """Checks that every parameter and buffer has a shape, and values, in its layer or elsewhere."""
    module = unwrap(network)
    check_shapes("network", module)
    elsewhere = offloaded_weights(module)
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        if tensor.is_meta and name not in elsewhere:
            _check_readable(canonical_name(name), tensor)


def check_shapes(label: str, module: nn.Module) -> None:
    """Checks that every parameter and buffer has a shape; those of a lazy layer that was never run have none."""
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        _check_shaped(label, canonical_name(name), tensor)


def describe(network: nn.Module) -> WeightSpace:
    """Returns the description of the network's parameters and buffers; warns of what its layers keep beside them."""
    warn_of_extra_states(unwrap(network))
    return weight_space(network)


def weight_space(network: nn.Module) -> WeightSpace:
    entries = named_tensors(network)
    check_apart(entries)
    return WeightSpace("torch", type(unwrap(network)).__name__, tuple(info for info, _ in entries))


def read(network: nn.Module) -> dict[str, NDArray[Any]]:
    return {info.name: to_array(tensor) for info, tensor in named_tensors(network)}


def to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Returns a copy of a tensor in host memory; bfloat16 and the float8 types stay what they are."""
    copy = tensor.detach().to(device="cpu", copy=True, memory_format=torch.contiguous_format)
    return as_array(copy.resolve_conj().resolve_neg())


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Returns a contiguous tensor in host memory as an array that shares its values."""
    dtype = tensor.dtype
    if dtype == torch.bfloat16 or (dtype.is_floating_point and tensor.element_size() == 1):
        integers = tensor.view(torch.int16 if dtype == torch.bfloat16 else torch.uint8)
        return cast(NDArray[Any], integers.numpy().view(numpy_dtype(str(dtype).removeprefix("torch."))))
    return tensor.numpy()


def to_tensor(array: NDArray[Any]) -> torch.Tensor:
    """Returns a tensor with the array's values and element type (host memory, a copy)."""
    array = np.array(array, order="C", copy=True)
    name = array.dtype.name
    if name == "bfloat16" or name.startswith("float8"):
        integers = torch.from_numpy(array.view(np.int16 if array.itemsize == 2 else np.uint8))
        return integers.view(getattr(torch, name))
    return torch.from_numpy(array)


def _layers_with_state(module: nn.Module) -> dict[str, nn.Module]:
    return {
        canonical_name(f"{path}._extra_state" if path else "_extra_state"): layer
        for path, layer in module.named_modules()
        if type(layer).get_extra_state is not nn.Module.get_extra_state
    }


def _warn_of_extra(label: str, names: Collection[str]) -> None:
    if names:
        text = f"{label} holds more than weights; {extra_states_left_out(sorted(names))}"
        warnings.warn(text, UserWarning, stacklevel=3)


def _filters(layer: nn.Module, key: str, axes: int) -> tuple[tuple[int, ...], int]:
    """Returns the axes of a parameter that number the layer's filters, and its groups (see ``TensorInfo``)."""
    if axes < 2 or key in _BIASES or isinstance(layer, _NORMALIZATIONS):
        return (), 1
    if isinstance(layer, _TRANSPOSED):
        return (1,), layer.groups  # (in, out / groups, ...): each group of inputs feeds outputs of its own
    # GPT-2's layer is x @ weight + bias.
    utilities = sys.modules.get("transformers.pytorch_utils")
    if utilities is not None and isinstance(layer, utilities.Conv1D):
        return (1,), 1
    return (0,), 1


def _check_not_scripted(label: str, layer: nn.Module) -> None:
    if isinstance(layer, torch.jit.ScriptModule):
        raise TypeError(
            f"{label} is a program of TorchScript (torch.jit), whose layers do not say what they are. Build the "
            "network itself and load the weights into it: network.load_state_dict(program.state_dict()). Where only "
            "weights are asked for, give program.state_dict()."
        )


def _span(tensor: torch.Tensor) -> int:
    """Returns how many places there are from a tensor's first element to its last one, with both."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _places(tensor: torch.Tensor) -> NDArray[np.int64]:
    places = np.zeros((), np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = places[..., None] + np.arange(size) * stride
    return (tensor.data_ptr() + places * tensor.element_size()).reshape(-1)


def _check_shaped(label: str, name: str, tensor: torch.Tensor) -> None:
    if nn.parameter.is_lazy(tensor):
        raise TypeError(f"{label}'s {name!r} has no shape yet (a lazy layer); run one batch through the {label} first.")


def _check_readable(name: str, tensor: torch.Tensor) -> None:
    _check_shaped("network", name, tensor)
    if tensor.is_meta:
        raise TypeError(
            f"network's {name!r} is on the meta device and has no values; load the weights first. (With device_map, "
            "hooks of Accelerate have the values of offloaded parts; here no hook has them.)"
        )
    if tensor.layout is not torch.strided:
        raise TypeError(f"network's {name!r} is sparse, which is not supported; gather it as a dense tensor.")


def _check_movable(name: str, tensor: torch.Tensor) -> None:
    is_repeated = any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    # More elements than places: windows over one vector, as unfold makes them.
    is_overlapping = tensor.numel() > _span(tensor)
    if tensor.numel() and (is_repeated or is_overlapping):
        raise TypeError(
            f"network's {name!r} has elements that share memory, as expand() makes them, so that none can be moved "
            "alone. Give the layer a parameter with a place for each: nn.Parameter(parameter.detach().clone())."
        )
