"""How far the statistics that normalization layers collected are from those of callback_fn's samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from collectors.weights.aligned import AlignedState
from workers.pool import StateTask

from ..curvature.experiment import find_out_how_losses_add_up
from ..grid.tasks import openers
from ..record.workers import open_workers


def variance_factors(
    callback_fn: Callable[[], Any], state: AlignedState, chosen: Mapping[str, Any]
) -> dict[str, float]:
    """Returns, by layer, how many times the inputs' variance around the collected mean is off the collected variance.

    The worst channel counts. Only PyTorch's batch normalization is looked at, where the pool is this process.
    """
    seen: dict[str, list[Any]] = {}

    def watched() -> Any:
        model, network, *others = callback_fn()
        network = copy.deepcopy(network)
        for name, layer in network.named_modules():
            if getattr(layer, "running_var", None) is not None and "BatchNorm" in type(layer).__name__:

                def look(layer: Any, inputs: tuple[Any, ...], name: str = name) -> None:
                    channels = inputs[0].detach().transpose(0, 1).flatten(1).float()
                    found = channels.mean(1), channels.var(1, correction=0), layer.running_mean, layer.running_var
                    arrays = [np.array(item.tolist()) for item in found]
                    seen.setdefault(name, []).append((channels.shape[1], layer.eps, *arrays))

                layer.register_forward_pre_hook(look)
        return (model, network, *others)

    with open_workers(watched, {**chosen, "compile": False}, points=1) as pool:
        find_out_how_losses_add_up(pool, {0: state})
        seen.clear()  # of other weights
        list(pool.run([StateTask(0, *openers(state, state.space))]))
    return {name: _factor(batches) for name, batches in seen.items()}


def _factor(batches: list[tuple[Any, ...]]) -> float:
    counts, (small, *_), means, variances, (middle, *_), (collected, *_) = zip(*batches, strict=True)
    mean = np.average(means, axis=0, weights=counts)
    here = np.average(variances + (means - mean) ** 2, axis=0, weights=counts)
    larger = (here + (mean - middle) ** 2 + small) / (collected + small)
    return float(max(larger.max(), ((collected + small) / (here + small)).max()))
