"""Whether permuted weights give a PyTorch network the same outputs."""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any

import numpy as np
import torch
from torch import nn

from collectors.networks.batches import call_network, leaves, map_leaves
from collectors.networks.torch_network import named_tensors, tied_tensors, to_tensor, unwrap
from collectors.networks.weight_space import State

from ..errors import AlignmentError


class OutputCheck:
    """Runs copies of a network, in eval mode, on the inputs ``example``, to compare outputs with those of ``state``."""

    # Where inputs are numbers, they are run with noise added too: with inputs that are all zero, a network may give the
    # same outputs for other reasons.

    def __init__(self, network: nn.Module, example: Any, state: State) -> None:
        module = unwrap(network)
        is_narrow = any(item.is_floating_point() and item.element_size() < 4 for item in module.parameters())
        self.network = _copied(module, torch.float32 if is_narrow else None).eval()
        devices = {tensor.device for _, tensor in named_tensors(self.network)}
        device = devices.pop() if len(devices) == 1 else None
        tensors = map_leaves(lambda leaf: to_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, example)
        self.example = map_leaves(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, tensors)
        self._state = state
        self._run_on_example(self.network)
        self.example = self._inputs[0]

    def difference(self, state: State) -> float:
        """Returns the outputs' largest difference, relative to the largest output; infinite where shapes differ."""
        outputs = [item for some in self._inputs for item in _run(self._module, state, some)]
        if [item.shape for item in outputs] != [item.shape for item in self._truth]:
            return math.inf
        return max(map(_relative, outputs, self._truth))

    def in_float64(self) -> bool:
        """Computes in float64 from now on, where the network can; returns whether it can."""
        try:
            self._run_on_example(_copied(self.network, torch.float64))
        except Exception:  # a network may fix its types, and a device may lack float64
            return False
        return True

    def _run_on_example(self, module: nn.Module) -> None:
        wanted = next((item.dtype for item in module.parameters() if item.is_floating_point()), torch.float32)
        inputs = [map_leaves(lambda leaf: leaf.to(wanted) if _is_real(leaf) else leaf, self.example)]
        try:
            truth = _run(module, self._state, inputs[0])
        except Exception as error:
            raise AlignmentError(
                f"{type(module).__name__} cannot be run on the example: {type(error).__name__}: {error}. Give example= "
                "what the network takes: a tensor, a tuple of positions, or a dict of keywords."
            ) from error
        if not truth or not all(bool(torch.isfinite(item).any()) for item in truth):
            raise AlignmentError(
                f"{type(module).__name__} gives no finite outputs for the example, so that nothing can be verified. "
                "Give inputs from the data set."
            )
        if any(_is_real(leaf) for leaf in leaves(inputs[0])):
            noisy = _with_noise(inputs[0])
            with contextlib.suppress(Exception):  # numbers may stand for something, such as rows of a table
                truth += _run(module, self._state, noisy)
                inputs.append(noisy)
        self._module, self._inputs, self._truth = module, inputs, truth


def output_tensors(outputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in leaves(outputs) if isinstance(leaf, torch.Tensor)]


def _copied(module: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """Returns a copy of this type; what a layer computed of its weights, as pruning does, is copied by its values."""
    computed = {
        id(value): value.detach().clone()
        for layer in module.modules()
        for value in vars(layer).values()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }
    copied = copy.deepcopy(module, computed).to(dtype)
    # Copies of tensors that are others in the same memory lie apart.
    entries = named_tensors(module)
    first = {info.name: tensor for info, tensor in entries}
    there = {**dict(copied.named_parameters()), **dict(copied.named_buffers())}
    copies = {id(item): there[name] for name, item in (*module.named_parameters(), *module.named_buffers())}
    for name, tied in tied_tensors(module, entries):
        copies[id(tied)].data = copies[id(first[name])].data.as_strided(tied.shape, tied.stride())
    return copied


def _run(module: nn.Module, state: State, inputs: Any) -> list[torch.Tensor]:
    with torch.no_grad():
        for info, tensor in named_tensors(module):
            tensor.copy_(to_tensor(state[info.name]))
        outputs = call_network(module, inputs)
    return [leaf.double().cpu() for leaf in output_tensors(outputs) if _is_real(leaf)]


def _relative(output: torch.Tensor, truth: torch.Tensor) -> float:
    finite = torch.isfinite(truth)
    if not torch.equal(finite, torch.isfinite(output)):
        return math.inf
    if not finite.any():
        return 0.0
    scale = float(truth[finite].abs().max()) or 1.0
    return float((output - truth)[finite].abs().max()) / scale


def _with_noise(inputs: Any) -> Any:
    generator = torch.Generator().manual_seed(0)

    def noisy(leaf: Any) -> Any:
        if not _is_real(leaf):
            return leaf
        noise = torch.randn(leaf.shape, generator=generator).to(leaf)
        spread = float(leaf.double().std()) if leaf.numel() > 1 else 0.0
        return leaf + noise * (spread or 1.0)

    return map_leaves(noisy, inputs)


def _is_real(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
