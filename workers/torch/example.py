"""What a PyTorch network takes, by example: the inputs of the first samples."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import nn

from collectors.networks.torch_network import unwrap

from ..errors import CallbackFunctionError
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..samples.data_sets import find_data_sets
from .own_loss import own_loss_of, whole
from .user_data import read_user_data


def example_inputs(model: object, network: nn.Module, dataset: object, count: int) -> Any:
    """Returns the inputs of the first samples: a tensor, a tuple of positions, or a dict of keywords."""
    module = unwrap(network)
    own_loss = own_loss_of(model, module)
    # Of several data sets, the first one counts.
    first = find_data_sets(dataset, MeasurementOptions(count))[0]
    samples, _ = read_user_data(first.data, first.options, SampleMemory(), network=module, own_loss=own_loss)
    batch = samples.own_batches[0]
    if own_loss is None:
        return tuple(batch.inputs) if isinstance(batch.inputs, list) else batch.inputs
    seen: list[dict[str, Any]] = []
    # Called once, to see what it takes; the user's network stays as it is.
    twin = copy.deepcopy(module).eval()
    signature = inspect.signature(twin.forward)

    def look(_module: nn.Module, positions: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        seen.append(_by_name(signature.bind(*positions, **keywords)))

    twin.register_forward_pre_hook(look, with_kwargs=True)
    try:
        with torch.no_grad():
            own_loss.forward(twin)(whole(batch))
    except Exception as error:
        if not seen:
            raise CallbackFunctionError(f"the network's own loss raised {type(error).__name__}: {error}") from error
    if not seen:
        raise CallbackFunctionError(
            "the network's own loss never calls the network itself, so that its inputs are not known; give them by "
            "hand (example=, in Python)."
        )
    return seen[0]


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            raise TypeError(f"forward takes any number of positions (*{name}), which cannot be named.")
        found.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return found
