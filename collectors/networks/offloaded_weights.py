"""Weights that Accelerate keeps away from their layers: parts of a ``device_map`` on "cpu" or "disk" (PyTorch)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn


class OffloadedWeight(NamedTuple):
    """Where the values of a parameter or buffer are: under ``key`` in ``weights_map`` of a hook of Accelerate."""

    hook: Any
    key: str


def hooks_of(network: nn.Module) -> Iterator[tuple[str, nn.Module, Any]]:
    """Yields the hooks of Accelerate, each with the path of its layer and the layer."""
    for path, layer in network.named_modules(remove_duplicate=False):
        waiting = [layer.__dict__.get("_hf_hook")]
        while waiting:
            hook = waiting.pop(0)
            if hook is not None:
                waiting[:0] = getattr(hook, "hooks", ())  # a SequentialHook
                yield path, layer, hook


def offloaded_weights(network: nn.Module) -> dict[str, OffloadedWeight]:
    """Returns every parameter and buffer whose values a hook brings, by name; most networks have none."""
    found: dict[str, OffloadedWeight] = {}
    for path, layer, hook in hooks_of(network):
        if not getattr(hook, "offload", False) or getattr(hook, "weights_map", None) is None:
            continue
        deep = bool(getattr(hook, "place_submodules", False))
        keys = [key for key, _ in layer.named_parameters(recurse=deep, remove_duplicate=False)]
        if getattr(hook, "offload_buffers", False):
            keys += [key for key, _ in layer.named_buffers(recurse=deep, remove_duplicate=False)]
        for key in keys:
            found.setdefault(f"{path}.{key}" if path else key, OffloadedWeight(hook, key))
    return found


def offloaded_values(network: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the values of all offloaded parameters and buffers in host memory, by name; tied ones share a tensor."""
    weights = offloaded_weights(network)
    if not weights:
        return {}
    tensors: dict[str, torch.Tensor] = dict(network.named_parameters(remove_duplicate=False))
    tensors |= dict(network.named_buffers(remove_duplicate=False))
    # On the meta device they have no values: a hook brings them before a forward pass and takes them away afterwards.
    whole = {name: tensor.detach() for name, tensor in tensors.items() if not tensor.is_meta}
    sources = _tied_names(network)
    values: dict[str, torch.Tensor] = {}
    by_object: dict[int, torch.Tensor] = {}
    for name in sorted(weights, key=lambda name: name in sources):  # sources come first
        tensor, source = tensors[name], sources.get(name, "")
        known = (whole.get(name), by_object.get(id(tensor)), values.get(source), whole.get(source))
        value = next((found for found in known if found is not None), None)
        if value is None:
            hook, key = weights[name]
            with contextlib.suppress(KeyError):  # a map in memory gives its own tensor
                value = torch.as_tensor(hook.weights_map[key]).detach().to("cpu", tensor.dtype)
            if value is not None and key in getattr(hook, "tied_params_names", ()):
                value = _twin(value, (*values.values(), *whole.values()))
        if value is not None:
            values[name] = by_object[id(tensor)] = value
    return {name: values[name] for name in weights if name in values}


def _tied_names(network: nn.Module) -> dict[str, str]:
    """Returns which parameter is another one's, as networks of Transformers say; a forward pass breaks the tie."""
    found: dict[str, str] = {}
    for path, layer in network.named_modules(remove_duplicate=False):
        names = layer.__dict__.get("all_tied_weights_keys")
        if isinstance(names, Mapping):
            prefix = f"{path}." if path else ""
            found |= {f"{prefix}{name}": f"{prefix}{source}" for name, source in names.items()}
    return found


def _twin(value: torch.Tensor, others: Iterable[torch.Tensor]) -> torch.Tensor:
    """Returns the tensor to which a weight is tied: Accelerate says that there is one, but not which."""
    alike = (tensor for tensor in others if tensor.shape == value.shape and tensor.dtype == value.dtype)
    return next((tensor for tensor in alike if torch.equal(tensor.cpu(), value)), value)
