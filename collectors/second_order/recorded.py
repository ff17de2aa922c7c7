"""What a begun step has seen of a weight, as sums in the optimizer's state, so that checkpoints have it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .factors import Observation, block_shape, g_split

_SUMS = "recorded_sums"
_NAMES = ("recorded_a", "recorded_g", _SUMS)
_KEPT_BY_EARLIER_VERSIONS = ("a_factor", "g_factor", "positions")


class Passes:
    """Counts samples: a layer called again in one backward pass sees the same samples, in the next pass others."""

    def __init__(self) -> None:
        self._last: dict[nn.Module, tuple[int, float]] = {}

    def new_samples(self, layer: nn.Module, samples: float) -> float:
        """Returns how many of a layer's samples have not been counted in the present pass."""
        present = torch._C._current_graph_task_id()
        number, most = self._last.get(layer, (-1, 0.0))
        known = most if number == present else 0.0
        self._last[layer] = (present, max(samples, known))
        return max(samples - known, 0.0)

    def forget(self) -> None:
        self._last.clear()


def add(state: dict[str, Any], seen: Observation) -> None:
    sums = [seen.a_weight, seen.g_weight, seen.samples, 1.0]
    if _SUMS in state:
        state["recorded_a"].add_(seen.a)
        state["recorded_g"].add_(seen.g)
        sums = [before + new for before, new in zip(state[_SUMS], sums, strict=True)]
    else:
        state["recorded_a"], state["recorded_g"] = seen.a, seen.g
    state[_SUMS] = [float(number) for number in sums]


def total(state: dict[str, Any]) -> tuple[Observation, float] | None:
    """Returns the sum of a weight's observations and how many they are, None without any."""
    if _SUMS not in state:
        return None
    a_weight, g_weight, samples, calls = state[_SUMS]
    return Observation(state["recorded_a"], state["recorded_g"], a_weight, g_weight, samples), calls


def multiply_gradients(state: dict[str, Any], factor: float) -> None:
    """Makes a weight's state what it were if the loss had been multiplied by a factor."""
    if "recorded_g" in state:
        state["recorded_g"] = state["recorded_g"] * factor**2


def forget(state: dict[str, Any]) -> None:
    for name in _NAMES:
        state.pop(name, None)


def drop_factors(state: dict[str, Any]) -> None:
    """Drops the factors that earlier versions could keep in the state."""
    for name in _KEPT_BY_EARLIER_VERSIONS:
        state.pop(name, None)


def weight_of(layer: nn.Module) -> nn.Parameter:
    weight = layer._parameters["weight"]
    assert weight is not None
    return weight


def widths(layer: nn.Module) -> tuple[int, int]:
    weight = weight_of(layer)
    if isinstance(layer, nn.Embedding):
        return weight.shape[0], weight.shape[1]
    return weight[0].numel(), weight.shape[0]


def shapes(layer: nn.Module, variant: str, split: int) -> tuple[torch.Size, torch.Size]:
    """Returns the shapes of a layer's A and G in diagonal blocks; the A of an Embedding is a vector."""
    a_width, g_width = widths(layer)
    a_shape = (a_width,) if isinstance(layer, nn.Embedding) else block_shape(a_width, split)
    return torch.Size(a_shape), torch.Size(block_shape(g_width, g_split(layer, variant, split)))
