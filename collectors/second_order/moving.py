"""From a preconditioned gradient to the weights: decay, clipping and momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class NamedParameter:
    """What ``decay_filter`` is asked about: a parameter, with its name in ``named_parameters``."""

    name: str
    shape: tuple[int, ...]
    requires_grad: bool


def move(
    parameter: torch.Tensor, update: torch.Tensor, state: dict[str, Any], group: dict[str, Any], decays: bool
) -> None:
    """Moves a parameter in place by its preconditioned gradient; its momentum is kept in ``state``."""
    if group["weight_decay"] and decays:
        update = update + group["weight_decay"] * parameter
    if group["clip"]:
        update = update / update.norm().clamp(min=1.0)
    buffer = state.get("momentum_buffer")
    if buffer is None:
        buffer = state["momentum_buffer"] = torch.zeros_like(parameter, dtype=update.dtype)
    buffer.mul_(group["momentum"]).add_(update)
    ahead = update + group["momentum"] * buffer if group["nesterov"] else buffer
    parameter.sub_((group["lr"] * ahead).to(parameter.dtype))
