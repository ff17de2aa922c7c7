"""Layers that compute with copies of their weights, made earlier: where the weights move, the copies stay."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from collectors.networks.batches import call_network, map_leaves
from collectors.networks.weight_space import WeightSpace, canonical_name, some_names

from ...samples.batches import Batch, is_tensor
from ...samples.random_state import random_state_kept
from ..gradients import own_tensor
from ..snapshot import values_kept
from .network import DifferentiatedNetwork
from .second_order import graph_nodes

SAMPLES_TRIED = 8
_MOST_TRIALS = 32


def weight_copies_warning(network: DifferentiatedNetwork, batch: Batch, space: WeightSpace) -> str | None:
    """Returns a sentence that names weights which move without effect: their layers compute with copies of them."""
    # Only layers that keep tensors of their own besides parameters can do that, so that most networks cost nothing. Of
    # others a graph is recorded of a few samples, which shows what computes with which weights; it is not
    # differentiated. What no layer computes with, it seems, is changed for a trial. A head that the loss does not need
    # is no such weight: its own outputs depend on it.
    try:
        names = _Trials(network, batch, space).find()
    except Exception:  # a network may allow no graph, need more memory for one, or refuse other weights
        return None
    if not names:
        return None
    return (
        f"moving these weights changes nothing that the network computes: {some_names(names)}. Their layers keep "
        "other tensors, probably copies made of the weights before (in __init__, or in the first forward pass of eval "
        "mode), which no plane moves: the landscape does not show what these weights do. Let forward() compute from "
        "the weights each time. If this loss does not use them in eval mode, nothing is wrong."
    )


@dataclass
class _Suspect:
    """A weight that a layer may have copied: its parameters, in one memory, and the layers that may keep the copy."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    layers: list[nn.Module] = field(default_factory=list)


class _Trials:
    def __init__(self, network: DifferentiatedNetwork, batch: Batch, space: WeightSpace) -> None:
        self._network, self._batch = network, batch
        self._suspects = _suspects(network.module, space)
        self._trials_left = _MOST_TRIALS

    def find(self) -> list[str]:
        if not self._suspects:
            return []
        with (
            warnings.catch_warnings(),
            self._network.settings(),
            random_state_kept(),
            values_kept(self._network.module.buffers()),
            _attributes_kept(self._network.module),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            warnings.simplefilter("ignore")
            start: Any = torch.zeros((), requires_grad=True).clone().grad_fn
            self._first = self._run()
            tensors = [tensor for some in self._first.values() for tensor in some]
            used = {id(tensor) for tensor in tensors if tensor.requires_grad and tensor.grad_fn is None}
            # An older node is of a copy that was made with its graph.
            nodes = graph_nodes((tensor.grad_fn for tensor in tensors), start._sequence_nr())
            used |= {id(node.variable) for node in nodes if hasattr(node, "variable")}
            names = [
                name
                for name, suspect in self._suspects.items()
                if any(layer in self._first for layer in suspect.layers)
                and not any(id(tensor) in used for tensor in suspect.tensors)
            ]
            return self._without_effect(names)

    def _run(self) -> dict[nn.Module | None, list[torch.Tensor]]:
        """Returns the tensors that each layer returned in a forward pass, and the loss as that of None."""
        outputs: dict[nn.Module | None, list[torch.Tensor]] = {}

        def note(layer: nn.Module, _: object, result: object) -> None:
            found = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            outputs.setdefault(layer, []).extend(found)

        with nn.modules.module.register_module_forward_hook(note):
            self._network.start_batch(0)
            result = call_network(self._network.forward, map_leaves(own_tensor, self._batch.inputs))
            value, _ = self._network.total.differentiable(result, self._batch)
        return {None: [value], **outputs}

    def _without_effect(self, names: list[str]) -> list[str]:
        """Returns those whose change changes neither the loss nor what their layers return; all at once at first."""
        if not names or not self._trials_left:
            return []
        self._trials_left -= 1
        suspects = [self._suspects[name] for name in names]
        layers = {layer for suspect in suspects for layer in suspect.layers if layer in self._first}
        tensors = [suspect.tensors[0].detach() for suspect in suspects]
        with values_kept(tensors):
            for tensor in tensors:
                tensor.copy_(-1 - tensor)
            found = self._run()
            pairs = [(self._first[layer], found[layer]) for layer in (None, *layers)]
            if all(len(before) == len(after) and all(map(torch.equal, before, after)) for before, after in pairs):
                return names
        if len(names) == 1:
            return []
        half = len(names) // 2
        return [*self._without_effect(names[:half]), *self._without_effect(names[half:])]


def _suspects(module: nn.Module, space: WeightSpace) -> dict[str, _Suspect]:
    """Returns by name the weights of layers that keep other tensors, or lie in one that keeps one of their size."""
    names = {name: info.name for info in space.trainable if info.size for name in (info.name, *info.aliases)}
    memory = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    layers = dict(module.named_modules(remove_duplicate=False))
    kept = {layer: _sizes_kept(layer, memory) for layer in layers.values()}
    found: dict[str, _Suspect] = {}
    for path, layer in layers.items():
        parts = path.split(".") if path else []
        above = [layers[".".join(parts[:end])] for end in range(len(parts))]
        for key, parameter in layer._parameters.items():
            name = names.get(canonical_name(".".join([*parts, key])))
            if parameter is None or name is None:
                continue
            suspect = found.setdefault(name, _Suspect())
            suspect.tensors.append(parameter)
            suspect.layers += [layer] if kept[layer] else [item for item in above if parameter.numel() in kept[item]]
    return {name: suspect for name, suspect in found.items() if suspect.layers}


def _sizes_kept(layer: nn.Module, memory: set[int]) -> set[int]:
    """Returns the sizes of what a layer keeps besides parameters; PyTorch's own layers make no copies."""
    if type(layer).__module__.startswith("torch."):
        return set()
    tensors = [item for item in tree_leaves([*vars(layer).values(), *layer._buffers.values()]) if is_tensor(item)]
    real = [tensor for tensor in tensors if tensor.is_floating_point()]
    return {tensor.numel() for tensor in real if tensor.untyped_storage().data_ptr() not in memory}


@contextlib.contextmanager
def _attributes_kept(module: nn.Module) -> Iterator[None]:
    """Puts back what a network notes in its layers while it computes."""
    kept = [(place, dict(place)) for layer in module.modules() for place in (vars(layer), layer._buffers)]
    try:
        yield
    finally:
        for place, before in kept:
            if place.keys() != before.keys() or any(place[key] is not value for key, value in before.items()):
                place.clear()
                place.update(before)
