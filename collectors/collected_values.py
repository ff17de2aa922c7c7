"""The values that a SummaryCollector takes from a training by itself: learning rates, parameters, input images."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from .network_state import canonical_name
from .summary_values import IMAGE_CHANNELS

FIRST_PARAMETERS = 5
MOST_IMAGES = 64


def is_torch_network(network: Any) -> bool:
    """Returns whether an object is a PyTorch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(network, torch.nn.Module)


def learning_rates(optimizer: Any) -> list[Any]:
    """Returns the present learning rate of each parameter group, a float or a copied tensor; empty if there are none.

    A tensor stays on its device, so that looking at it does not make the training wait.
    """
    groups = getattr(optimizer, "param_groups", None)
    rates = [group["lr"] for group in groups if "lr" in group] if isinstance(groups, list) else []
    return [rate.detach().clone() if hasattr(rate, "detach") else float(rate) for rate in rates]


def learning_rate_tag(group: int) -> str:
    """Returns the name of the series of a parameter group."""
    return "learning_rate/auto" if group == 0 else f"learning_rate/group_{group}/auto"


def histogram_parameters(network: Any, optimizer: Any, pattern: re.Pattern[str] | None) -> dict[str, Any]:
    """Returns the parameters to draw histograms of, by name, in the network's order.

    Args:
        network: a PyTorch network; any other has none.
        optimizer: only the parameters that it moves; None takes all that are trained.
        pattern: those whose name it matches from its beginning; None takes the first five.
    """
    if not is_torch_network(network):
        return {}
    groups = getattr(optimizer, "param_groups", None)
    moved = {id(item) for group in groups for item in group["params"]} if isinstance(groups, list) else None
    found = {
        canonical_name(name): parameter
        for name, parameter in network.named_parameters()
        if (parameter.requires_grad if moved is None else id(parameter) in moved) and not parameter.is_complex()
    }
    if pattern is not None:
        return {name: parameter for name, parameter in found.items() if pattern.match(name)}
    return dict(list(found.items())[:FIRST_PARAMETERS])


def input_images(element: Any) -> Any:
    """Returns the images that a batch begins with, the first 64 of them, or None where it begins with something else.

    Args:
        element: ``cb_params.train_dataset_element``; its first column counts.
    """
    first = element
    while isinstance(first, tuple | list | Mapping) and len(first):
        first = next(iter(first.values())) if isinstance(first, Mapping) else first[0]
    shape = tuple(getattr(first, "shape", ()))
    if len(shape) != 4 or 0 in shape or not {shape[1], shape[3]} & set(IMAGE_CHANNELS):
        return None
    return first[:MOST_IMAGES]
