"""What layers of PyTorch keep beside their parameters and buffers (``get_extra_state``), such as scales of float8."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

from ..errors import CheckpointError
from .weight_space import canonical_name, extra_states_left_out


def extra_states(module: nn.Module) -> dict[str, Any]:
    """Returns the extra state of each layer that has one, by the names of PyTorch's state dicts."""
    return {name: layer.get_extra_state() for name, layer in _layers(module).items()}


def set_extra_states(module: nn.Module, states: Mapping[str, Any], where: str) -> None:
    """Gives each layer its extra state; warns of layers and of states that are left over."""
    layers = _layers(module)
    for name, layer in layers.items():
        if name in states:
            try:
                layer.set_extra_state(states[name])
            except Exception as error:
                raise CheckpointError(
                    f"{where} holds an extra state that network's layer {type(layer).__name__} ({name!r}) does not "
                    f"take: {error!r}. Load it into a network that is built like the one that was saved."
                ) from error
    _warn("network", layers.keys() - states)
    _warn(where, states.keys() - layers)


def warn_of_extra_states(module: nn.Module) -> None:
    """Warns of layers that keep more than parameters and buffers."""
    _warn("network", _layers(module))


def _layers(module: nn.Module) -> dict[str, nn.Module]:
    return {
        canonical_name(f"{path}._extra_state" if path else "_extra_state"): layer
        for path, layer in module.named_modules()
        if type(layer).get_extra_state is not nn.Module.get_extra_state
    }


def _warn(label: str, names: Collection[str]) -> None:
    if names:
        text = f"{label} holds more than weights; {extra_states_left_out(sorted(names))}"
        warnings.warn(text, UserWarning, stacklevel=3)
