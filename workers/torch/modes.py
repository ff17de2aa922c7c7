"""Networks whose change between training and evaluation is code of their own, which may change weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from collectors.networks.weight_space import some_names

from ..errors import CallbackFunctionError


def evaluate_mode(module: nn.Module) -> None:
    """Puts a network into eval mode; CallbackFunctionError where that changes its weights, which are put back."""
    if not any(map(_switches, module.modules())):
        module.eval()
        return
    # A tensor on the meta device has no values here; accelerate brings them for each forward pass.
    tensors = {name: tensor for name, tensor in module.named_parameters() if not tensor.is_meta}
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    owners = [(layer, dict(layer._parameters)) for layer in module.modules()]
    modes = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    # A layer may have put another parameter in the place of one.
    now = dict(module.named_parameters())
    changed = [name for name, value in before.items() if name not in now or _differ(now[name].detach(), value)]
    if not changed:
        return
    restore_modes(modes)
    for layer, parameters in owners:
        layer._parameters.update(parameters)
    with torch.no_grad():
        for name in changed:
            tensors[name].copy_(before[name])
    raise CallbackFunctionError(
        f"the network's eval() changes its weights ({some_names(changed)}), as layers do that merge a low-rank part "
        "into their weight, so that no plane moves what it computes with. It was left as it was. Switch merging off "
        "(loralib: merge_weights=False), or merge once and save the merged weights."
    )


def restore_modes(modes: Sequence[tuple[nn.Module, bool]]) -> None:
    """Gives layers the modes that they had, through their own ``train`` where they have one."""
    for layer, training in modes:
        if _switches(layer) and layer.training != training:
            layer.train(training)
    for layer, training in modes:
        layer.training = training


def _switches(layer: nn.Module) -> bool:
    kind = type(layer)
    return kind.train is not nn.Module.train or kind.eval is not nn.Module.eval


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return True
    # A weight that is no number is still the same one.
    return bool(((one != other) & ~(one.isnan() & other.isnan())).any())
